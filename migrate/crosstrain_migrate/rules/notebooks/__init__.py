"""What is done to a notebook beyond what is done to a script.

In: the linked text of its cells (`files.notebooks`). Out: that text, migrated. `convert` does it; `aside` hides what
cells only look at, and no rule needs to see. `launch`, `needs`, `outside`, `changing`, `forms`, `writing`: each training
becomes a function, and `notebook_launcher` starts it; `kernel`: the cells around it become again what they were.
`engine` imports this folder.
"""
