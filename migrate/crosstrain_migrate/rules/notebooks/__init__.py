"""What is done to a notebook beyond what is done to a script.

In: the linked text of its cells (`files.notebooks`). Out: that text, migrated. `convert` runs all of it; `display_only`
hides statements that no rule needs to see. `launch` and `writing` turn each training into a function that
`notebook_launcher` starts; `kernel` gives the cells around it back their own statements. `engine` imports this folder.
"""
