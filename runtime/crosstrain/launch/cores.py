"""The processor cores that each rank of a machine is bound to with `--bind-cores`.

Ranks that move between cores lose their caches, and on machines with several memory nodes they often access memory of
another node. Each rank gets an equal, contiguous share of the usable cores, ordered so that the threads of one core and the
cores of one memory node stay together. Processes that a rank starts (data loader workers) share its cores.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

SYSTEM = Path("/sys/devices/system")


def parse_list(text: str) -> list[int]:
    """Numbers in the kernel's notation: `0-2,8` is [0, 1, 2, 8]."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


def in_order(usable: Sequence[int], system: Path = SYSTEM) -> list[int]:
    """The usable cores by memory node, then by physical core; by number if the system does not describe them."""
    node: dict[int, int] = {}
    for path in system.glob("node/node[0-9]*/cpulist"):
        node |= dict.fromkeys(parse_list(path.read_text()), int(path.parent.name.removeprefix("node")))
    return sorted(usable, key=lambda core: (node.get(core, 0), _first_sibling(core, system), core))


def _first_sibling(core: int, system: Path) -> int:
    path = system / f"cpu/cpu{core}/topology/thread_siblings_list"
    return parse_list(path.read_text())[0] if path.is_file() else core


def share(cores: Sequence[int], index: int, parts: int) -> list[int]:
    """The cores of rank ``index`` of ``parts``. With more ranks than cores, several ranks share one."""
    if parts > len(cores):
        return [cores[index * len(cores) // parts]]
    return list(cores[index * len(cores) // parts : (index + 1) * len(cores) // parts])


def bind(environ: Mapping[str, str] = os.environ) -> None:
    """Bind this process to the cores of its rank, which the environment names. Does nothing outside Linux."""
    if not hasattr(os, "sched_setaffinity"):
        return
    usable = in_order(sorted(os.sched_getaffinity(0)))
    os.sched_setaffinity(0, share(usable, int(environ["LOCAL_RANK"]), int(environ["LOCAL_WORLD_SIZE"])))
