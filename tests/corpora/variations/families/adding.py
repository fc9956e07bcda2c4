"""Code that is never run, and files that are not the script."""

from random import Random

import libcst as cst

from tests.corpora.variations.families.placing import functions_in_module
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


def _torch(script: Script, made: cst.Module) -> cst.Module:
    return made if "torch" in script.globals() else with_import(made, "import torch")


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


@variation
def second_script(script: Script, rng: Random) -> Project | None:
    """another script imports the same module"""
    made = functions_in_module(script, rng)
    other = f"{script.fresh('train_again')}.py"
    return made.with_text(made.text, {other: made.text}) if isinstance(made, Project) else None


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
