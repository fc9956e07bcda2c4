"""Code that is never run, and files that are not the script."""

from __future__ import annotations

from random import Random

import libcst as cst

from tests.corpora.variations.families.placing import functions_in_module, models_in_module
from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import Project, Script, is_guard, with_import, with_top

DISTRIBUTED = """
def {name}(rank, world_size):
    \"\"\"Joins the group of processes.\"\"\"
    distributed.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)


def {other}(value):
    \"\"\"The mean of all processes.\"\"\"
    distributed.all_reduce(value)
    return value / distributed.get_world_size()

"""
DEAD_TRAINING = """
def {name}(net, batches, rate):
    \"\"\"The loop of the first version.\"\"\"
    solver = torch.optim.SGD(net.parameters(), lr=rate)
    for rows, labels in batches:
        solver.zero_grad()
        torch.nn.functional.cross_entropy(net(rows), labels).backward()
        solver.step()
    return net

"""
OWN_MAIN = """

def {name}():
    \"\"\"Trains on random numbers, to see whether it runs.\"\"\"
    net = torch.nn.Linear(4, 2)
    solver = torch.optim.SGD(net.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.zeros(8, dtype=torch.long))
    for rows, labels in torch.utils.data.DataLoader(data, batch_size=4):
        solver.zero_grad()
        torch.nn.functional.cross_entropy(net(rows), labels).backward()
        solver.step()


if __name__ == "__main__":
    {name}()
"""


def _torch(script: Script, made: cst.Module) -> cst.Module:
    return made if "torch" in script.globals() else with_import(made, "import torch")


@variation
def dead_function(script: Script, rng: Random) -> cst.Module | None:
    """a function that nothing calls trains, too"""
    code = DEAD_TRAINING.format(name=script.fresh("old_training"))
    return _torch(script, with_top(script.module, *script.parsed("\n" + code)))


@variation
def unused_distributed_helper(script: Script, rng: Random) -> cst.Module | None:
    """helpers for several processes that nothing calls"""
    if "init_process_group" in script.text:
        return None
    code = DISTRIBUTED.format(name=script.fresh("join_group"), other=script.fresh("mean_of_all"))
    made = with_top(script.module, *script.parsed("\n" + code))
    return _torch(script, with_import(made, "from torch import distributed"))


@variation
def unused_distributed_module(script: Script, rng: Random) -> Project | None:
    """an imported module has helpers for several processes that nothing calls"""
    if "init_process_group" in script.text or script.text.startswith('"""'):
        return None
    module = script.fresh("cluster")
    code = DISTRIBUTED.format(name="join_group", other="mean_of_all")
    made = with_import(script.module, f"import {module}")
    return script.project.with_text(
        made.code, {f"{module}.py": f"import torch\nfrom torch import distributed\n\n{code}"}
    )


def _moved(script: Script, rng: Random) -> Project | None:
    moved = functions_in_module(script, rng) or models_in_module(script, rng)
    return moved if isinstance(moved, Project) else None


def _new_module(script: Script, made: Project) -> str:
    return next(iter(set(made.files) - set(script.project.files)))


@variation
def module_with_own_main(script: Script, rng: Random) -> Project | None:
    """a module that the script imports trains something else when it is run itself"""
    made = _moved(script, rng)
    if made is None:
        return None
    path = _new_module(script, made)
    code = made.files[path].rstrip("\n") + "\n" + OWN_MAIN.format(name=script.fresh("try_out"))
    with_torch = with_import(cst.parse_module(code), "import torch").code
    return made.with_text(made.text, {path: with_torch})


@variation
def second_script(script: Script, rng: Random) -> Project | None:
    """another script imports the same module"""
    made = _moved(script, rng)
    other = f"{script.fresh('train_again')}.py"
    return None if made is None else made.with_text(made.text, {other: made.text})


@variation
def unreachable_main(script: Script, rng: Random) -> cst.Module | None:
    """a second main that is behind a condition that never holds"""
    if not any(is_guard(one) for one in script.module.body):
        return None
    name = script.fresh("sanity_check")
    code = DEAD_TRAINING.format(name=name)
    made = with_top(script.module, *script.parsed("\n" + code))
    last = script.one(f'\n\nif __name__ == "__mp_main__":\n    {name}(None, [], 0.1)')
    return _torch(script, made.with_changes(body=[*made.body, last]))
