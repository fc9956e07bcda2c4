"""How a script learns what its launcher decided: environment variables, options, and the calls that set the process group up."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.syntax.nodes import written

DIST = "torch.distributed."
INIT = f"{DIST}init_process_group"
RANKS = frozenset(
    {"RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"}
)
LOCAL_RANKS = frozenset({"LOCAL_RANK", "SLURM_LOCALID"})
NODE_RANKS = frozenset({"NODE_RANK", "GROUP_RANK", "SLURM_NODEID"})
MACHINES = frozenset({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"})
SIZES = MACHINES | frozenset({"WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS"})
LAUNCHED = RANKS | SIZES | {"MASTER_ADDR", "MASTER_PORT"}
ENVIRONMENT = frozenset({"os.environ", "environ"})
ENVIRONMENT_CALLS = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})

# Command-line options that say how to distribute; without them on the command line their defaults hold.
OPTION = re.compile(
    r"^((use_|is_)?(ddp|dp|distributed|dist|data_?parallel|multi_?gpus?|parallel)|multiprocessing_distributed"
    r"|(node_|local_)?rank|nr|world_?size|dist_(url|backend)|backend|init_method|n?nodes|nproc_per_node"
    r"|(n|n_|num_)?gpus?(_per_node)?|gpu_ids?|device_ids?|master_(addr|port)|n_?gpus?)$"
)
SWITCH = re.compile(r"ddp|dp|dist|parallel|multi")
SIZE_OPTION = re.compile(r"^(world_?size|n?nodes|nproc_per_node|(n|n_|num_)gpus?(_per_node)?|gpus)$")
WRAPPERS = frozenset(
    {
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.data_parallel.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "apex.parallel.DistributedDataParallel",
    }
)

# The first argument of a function that mp.spawn started, once it is called directly. It never reaches the result: a use of it
# that nothing replaces is an unbound name, which is refused.
SPAWNED_RANK = "__spawned_rank__"
SPAWN = frozenset({"torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn"})
SETUP = frozenset(
    {
        INIT,
        "torch.distributed.destroy_process_group",
        "torch.cuda.set_device",
        "torch.accelerator.set_device_index",
        "torch.accelerator.set_device_idx",
        "torch.distributed.monitored_barrier",
    }
)


def asks_launcher(facts: Facts) -> bool:
    """Whether the script names an environment variable in which a launcher passes a rank."""
    texts = (n.value for n in facts.each(ast.Constant) if isinstance(n.value, str))
    return any(text in RANKS for text in texts)


def asked_variable(node: ast.expr) -> str | None:
    """The environment variable that an expression names: `os.environ["RANK"]`, `os.getenv("RANK", 0)`."""
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript) and written(node.value) in ENVIRONMENT:
        key = node.slice
    elif isinstance(node, ast.Call) and node.args and written(node.func) in ENVIRONMENT_CALLS:
        key = node.args[0]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def copied_variables(node: ast.DictComp) -> frozenset[str]:
    """The variables that `{key: os.environ[key] for key in ("RANK", "WORLD_SIZE")}` copies, each under its own name."""
    loop, value = node.generators[0], node.value
    names = loop.iter.elts if isinstance(loop.iter, ast.Tuple | ast.List | ast.Set) else []
    if len(node.generators) > 1 or loop.ifs or not isinstance(loop.target, ast.Name):
        return frozenset()
    copies = isinstance(value, ast.Subscript) and written(value.value) in ENVIRONMENT
    parts = (node.key, value.slice) if copies and isinstance(value, ast.Subscript) else ()
    if not parts or any(not isinstance(part, ast.Name) or part.id != loop.target.id for part in parts):
        return frozenset()
    return frozenset(str(n.value) for n in names if isinstance(n, ast.Constant))


@dataclass(frozen=True)
class World:
    """The process that a script is evaluated for: the only one, without a launcher, or one of several."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1
    local_size: int = 1

    @property
    def several(self) -> bool:
        return self.size > 1

    def variable(self, name: str) -> str | None:
        """The launcher's value of an environment variable; None when nothing launched the script."""
        if not self.several:
            return None
        if name in LOCAL_RANKS:
            return str(self.local_rank)
        if name in NODE_RANKS:
            return str(self.rank // self.local_size)
        if name in RANKS:
            return str(self.rank)
        if name in MACHINES:
            return str(self.size // self.local_size)
        if name in SIZES:
            return str(self.local_size if name.startswith("LOCAL") else self.size)
        return "here"


ONE = World()
FIRST = World(0, 0, 4, 2)  # of four processes on two machines
SECOND = World(1, 1, 4, 2)
ELSEWHERE = World(2, 0, 4, 2)
