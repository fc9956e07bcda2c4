"""Starts training scripts: `crosstrain launch`, built on torch's elastic agent.

* `command`: the commands and their options. `config`, `accelerate_config`: the other sources of options.
* `options`: the user's options, checked against this machine, and the environment of the ranks.
* `target`: a script or module with its arguments, run as `__main__` as `python` would run it.
* `worker`: the entry point of every rank.
* `agent`: starts the ranks, waits for them and ends them.
* `failure`: which rank failed first, and what the user is told about it.
* `jobs`: a launch as a job file for SLURM, Kubernetes or a TPU.
* `rendezvous`, `network`, `loopback`: how launchers and processes connect.
* `unconverted`: recognises a plain script, which would become several unrelated trainings.
* `notebook`: launching from a cell. `selftest`: `crosstrain test`. `env`: `crosstrain env`.

In: a command line, configuration files, a function of a notebook. Out: processes with their variables, and an exit
code. Imports `comm`, `utils` and the configuration; imported by the command line. Only `agent`, `rendezvous`,
`notebook` and `selftest` import torch.
"""
