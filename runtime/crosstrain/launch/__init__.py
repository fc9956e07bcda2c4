"""Starting training scripts: `crosstrain launch`, built on torch's elastic agent.

* `command`: the commands and their options; `layers` and `foreign`: the other places options come from;
* `options`: what the user asked for, checked against this machine, and the environment the ranks get;
* `target`: a script or module and its arguments, run as `__main__` the way `python` would run it;
* `worker`: the entry point of every rank;
* `agent`: the process that starts the ranks, waits for them and ends them;
* `cores`: which processor cores a rank is bound to;
* `failure`: which rank failed first, and what the user is told about it;
* `emit`: a launch as a job file; `network`: how machines reach each other; `merge`: weights as one file.

Only `agent`, `selftest` and `merge` import torch.
"""
