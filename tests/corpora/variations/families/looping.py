"""How a loop gets its batches, and takes them apart."""

from collections.abc import Callable
from random import Random
from typing import Any

import libcst as cst

from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import Edits, Script, called, full_name, source, with_top

WRAPPER = """
class {name}:
    \"\"\"A loader with a length.\"\"\"

    def __init__(self, loader):
        self.loader = loader
        self.dataset = loader.dataset
        self.batch_size = loader.batch_size

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for batch in self.loader:
            yield batch
"""
THIN_WRAPPER = """
class {name}:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)
"""


def chosen(script: Script, rng: Random) -> list[cst.For]:
    """The loops that train and, half of the times, those that evaluate."""
    loops = script.training_loops()
    return loops + script.evaluation_loops() if loops and rng.random() < 0.5 else loops


def _sources(script: Script, rng: Random, wrapped: Callable[[str], str]) -> cst.Module | None:
    """The script whose loops read something made of what they read."""
    edits: Edits = {}
    for loop in chosen(script, rng):
        read = source(loop.iter)
        if isinstance(read, cst.Name | cst.Attribute | cst.Subscript):
            made = cst.parse_expression(wrapped(script.code(read)))
            edits[read] = lambda updated, made=made: made
    return script.edited(edits) if edits else None


@variation
def loop_over_generator_expression(script: Script, rng: Random) -> cst.Module | None:
    """the loop reads a generator expression over the loader"""
    name = script.fresh("one")
    return _sources(script, rng, lambda read: f"({name} for {name} in {read})")


@variation
def loop_over_wrapper(script: Script, rng: Random) -> cst.Module | None:
    """the loop reads an object of a class with `__iter__` around the loader"""
    name = script.fresh("Reader")
    made = _sources(script, rng, lambda read: f"{name}({read})")
    return made and with_top(made, *script.parsed(THIN_WRAPPER.format(name=name)))


def _simple(loop: cst.For) -> bool:
    """What it reads is a name, so that it may be read in another place."""
    return isinstance(source(loop.iter), cst.Name | cst.Attribute | cst.Subscript)


def _loops(
    script: Script, rng: Random, code: str, usable: Callable[[cst.For], bool] = _simple
) -> cst.Module | None:
    """The script with code in place of its loops; the old body is behind that of the code's last statement."""
    rows, item, number = (script.fresh(name) for name in ("iterator", "current", "round_number"))
    edits: Edits = {}
    for loop in chosen(script, rng):
        if usable(loop):
            target, read, length = map(script.code, (loop.target, loop.iter, source(loop.iter)))
            made = script.parsed(
                code.format(rows=rows, item=item, number=number, target=target, read=read, length=length)
            )
            edits[loop] = lambda updated, made=made: _with_body(made, updated)
    return script.edited(edits) if edits else None


def _with_body(made: list[Any], loop: cst.For) -> cst.FlattenSentinel[Any]:
    block = made[-1].body
    made[-1] = made[-1].with_changes(body=block.with_changes(body=[*block.body, *loop.body.body]))
    made[0] = made[0].with_changes(leading_lines=loop.leading_lines)
    return cst.FlattenSentinel(made)


@variation
def loop_while_next(script: Script, rng: Random) -> cst.Module | None:
    """`while True` with `next(iterator, None)`"""
    code = "{rows} = iter({read})\nwhile True:\n    {item} = next({rows}, None)\n"
    return _loops(script, rng, code + "    if {item} is None:\n        break\n    {target} = {item}")


@variation
def loop_try_next(script: Script, rng: Random) -> cst.Module | None:
    """`while True` that ends at StopIteration"""
    code = "{rows} = iter({read})\nwhile True:\n    try:\n        {target} = next({rows})\n"
    return _loops(script, rng, code + "    except StopIteration:\n        break")


@variation
def loop_range_next(script: Script, rng: Random) -> cst.Module | None:
    """`for i in range(len(loader))` with `next(iterator)`"""
    if "DataLoader(" not in script.text or "IterableDataset" in script.text:
        return None  # it may have no length
    code = "{rows} = iter({read})\nfor {number} in range(len({length})):\n    {target} = next({rows})"
    return _loops(script, rng, code, lambda loop: isinstance(source(loop.iter), cst.Name))


@variation
def loader_in_wrapper(script: Script, rng: Random) -> cst.Module | None:
    """the loader is made inside a wrapper class with `__iter__` and `__len__`"""
    name = script.fresh("Batches")
    edits: Edits = {}
    for call in script.calls("DataLoader"):
        above = script.parents[call]
        if not isinstance(above, cst.Assign) or not isinstance(above.targets[0].target, cst.Name):
            continue
        loader = above.targets[0].target.value
        attributes = {
            script.code(n.attr)
            for n in script.nodes
            if isinstance(n, cst.Attribute) and full_name(n.value) == loader
        }
        if attributes <= {"dataset", "batch_size"}:
            edits[call] = lambda updated: cst.Call(cst.Name(name), [cst.Arg(updated)])
    if not edits:
        return None
    return with_top(script.edited(edits), *script.parsed(WRAPPER.format(name=name)))


def _batch(loop: cst.For) -> cst.BaseExpression:
    """The part of the target that is the batch."""
    target: cst.BaseExpression = loop.target
    if called(loop.iter) == "enumerate" and isinstance(target, cst.Tuple) and len(target.elements) == 2:
        return target.elements[1].value
    return target


def _parts(script: Script, target: cst.BaseExpression) -> list[str]:
    """The names that a batch is unpacked to; none if it is not unpacked to names alone."""
    if not isinstance(target, cst.Tuple | cst.List) or not target.elements:
        return []
    names = [one.value for one in target.elements if isinstance(one, cst.Element)]
    if len(names) < len(target.elements) or not all(isinstance(one, cst.Name) for one in names):
        return []
    return [script.code(one) for one in names]


@variation
def batch_by_field(script: Script, rng: Random) -> cst.Module | None:
    """the batch becomes a dictionary that is read by key"""
    item, fields = script.fresh("batch"), script.fresh("fields")
    edits: Edits = {}
    for loop in chosen(script, rng):
        target = _batch(loop)
        if parts := _parts(script, target):
            keys = ", ".join(f'"{part}"' for part in parts)
            lines = [f"{fields} = dict(zip([{keys}], {item}))"]
            lines += [f'{part} = {fields}["{part}"]' for part in parts]
            head = script.parsed("\n".join(lines))
            edits[target] = lambda updated: cst.Name(item)
            edits[loop.body] = lambda updated, head=head: updated.with_changes(body=[*head, *updated.body])
    return script.edited(edits) if edits else None
