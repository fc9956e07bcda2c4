"""What the tool does with scripts that nobody showed it before: `python -m tests.corpora.first_look FOLDER`.

`checkout` reads a tree, whatever is in it; `reach` says which code of it a script runs; `entries` finds the scripts that
train; `training` finds what their training loops read, and whether the conversion prepares it; `look` plans one script
and puts all of that together. None of them asks the tool what a script means.
"""
