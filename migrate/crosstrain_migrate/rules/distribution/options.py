"""Command-line options that say how to distribute, and their values with and without a launcher."""

from __future__ import annotations

import ast
from collections.abc import Callable

from crosstrain_migrate.facts.arguments import keyword_of

from .constant_folding import PENDING, KnownValue
from .launcher_settings import OPTION, SIZE_OPTION, SWITCH, World


def option(
    call: ast.Call | None, name: str, world: World, value: Callable[[ast.expr], KnownValue | None]
) -> KnownValue | None:
    """The value of `args.NAME`, whose `add_argument` is `call`; None when the option does not say how to distribute."""
    if call is None:
        return KnownValue(world.local_rank, True) if name == "local_rank" else PENDING
    if not OPTION.match(name):
        return None
    switch = _switch(call)
    if world.several:
        return _launched(name, world, switch is not None)
    default = keyword_of(call, "default")
    held: object = None
    if default is not None:
        found = value(default)
        if found is None or found is PENDING:
            return found
        held = found.value
    elif switch is not None:
        if SWITCH.search(name) is None:
            return None  # `--gpu` without a value asks for a device, not for several processes
        held = not switch
    if SIZE_OPTION.match(name) and (held is None or (isinstance(held, int) and held > 1)):
        held = 1
    return KnownValue(held, True)


def _switch(call: ast.Call) -> bool | None:
    """What a flag sets its option to; None for options with values."""
    action = keyword_of(call, "action")
    if isinstance(action, ast.Constant) and action.value in {"store_true", "store_false"}:
        return bool(action.value == "store_true")
    return None


def _launched(name: str, world: World, switch: bool) -> KnownValue | None:
    """The value of an option when a launcher started several processes."""
    if name.endswith("rank") or name in {"nr", "gpu"}:
        return KnownValue(world.local_rank if name in {"local_rank", "gpu"} else world.rank, True)
    if SIZE_OPTION.match(name):
        return KnownValue(world.size if "world" in name else world.local_size, True)
    return KnownValue(True, True) if switch and SWITCH.search(name) else None
