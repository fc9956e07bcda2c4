"""What is to be changed in a script, and why: one package per family of rules, one small module per concern.

In: the facts of a script. Out: edits and findings. `planning` runs the rules in the order in which they depend on each
other. A rule's module docstring is its page (`migrate --explain CODE`): its first line names its codes; `codes` has the
titles. What scripts that are not ours look like (CT9) is in `gate`, what XLA does slowly (CT7) in `xla`, which rules
may speak in `policy`; what all families share stands beside them. `engine`, the reports and the command import this
room; it imports `facts`, `syntax` and the notebooks of `files`.
"""
