"""The rules: what is to be changed in a script, and why. One package per family of rules, one module per concern.

In: the facts of a script. Out: edits and findings. `planning` runs the rules in the order in which they depend on each
other. A rule's module docstring is its page (`migrate --explain CODE`): its first lines give its codes and titles, which
`catalogue` reads. `gate` recognizes scripts that are not converted (CT9), `xla` what is slow on XLA (CT7); `policy` says
which rules may report and edit. `access` finds where code can have the accelerator; `base` is what every rule is given.
`engine`, the reports and the command import this room; it imports `facts`, `syntax` and the notebooks of `files`.
"""
