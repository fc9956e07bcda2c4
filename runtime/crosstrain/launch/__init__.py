"""Starting training scripts: `crosstrain launch`, built on torch's elastic agent.

* `command`: the commands and their options; `config` and `accelerate_config`: the other places options come from;
* `options`: what the user asked for, checked against this machine, and the environment the ranks get;
* `target`: a script or module and its arguments, run as `__main__` the way `python` would run it;
* `worker`: the entry point of every rank;
* `agent`: the process that starts the ranks, waits for them and ends them;
* `cores`: which processor cores a rank is bound to;
* `failure`: which rank failed first, and what the user is told about it;
* `jobs`: a launch as a job file for SLURM, Kubernetes or a TPU; `rendezvous`, `network`,
  `loopback`: how launchers and processes reach each other;
* `unconverted`: a script that would be several unrelated trainings;
* `notebook`: launching from a cell; `selftest`: `crosstrain test`; `env`: `crosstrain env`.

In: a command line, configuration files, a function of a notebook. Out: processes with their variables, and an exit
code. Imports `comm`, `utils` and the configuration; imported by the command line. Only `agent`, `rendezvous`,
`notebook` and `selftest` import torch.
"""
