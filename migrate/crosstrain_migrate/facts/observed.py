"""What an observed run has seen at each place of a script, as facts.

The facts file (`migrate --observe` writes it, `crosstrain_verify.observing` says what is in it) names places by file, line
and column. Here they become nodes of a tree, and what stood there becomes a value of the interpreter: the class that a
registry holds, a loader that a library made, a tensor with the batch's rows. What is known without a run stays as it is.
"""

from __future__ import annotations

import ast
import difflib
import json
import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from crosstrain_migrate.syntax.program import Region

from . import torch_api as api
from .values import Class, External, Function, Instance, Symbol, Value

At = tuple[int, int, int, int]  # line, column, end line, end column, in the text of a script or program
# The classes that stand for those of libraries that the tables do not name.
MODULE = "torch.nn.Module"
OF_ROLE = {
    "loss": "",
    "module": MODULE,
    "optimizer": "torch.optim.Optimizer",
    "scheduler": "torch.optim.lr_scheduler.LRScheduler",
    "loader": api.OBSERVED_LOADER,
}


@dataclass(frozen=True, slots=True)
class TensorFact:
    """A tensor that stood at a place while the script had a batch of a loader (an object's number); kinds as in
    `crosstrain_verify.observing.tensors`."""

    kind: str
    loader: int
    shape: tuple[int, ...] = ()
    row_wise: bool = False


@dataclass(frozen=True)
class Sighting:
    """What was seen at one place: objects (by their numbers), functions and classes, a tensor."""

    objects: tuple[int, ...] = ()
    code: tuple[Mapping[str, Any], ...] = ()
    tensor: TensorFact | None = None


@dataclass(frozen=True)
class Sightings:
    """What was seen in a text.

    first: by file, its first line in that text, as `sightings` is given it. run: what messages call it,
    "`train.py --epochs 1`, 60 steps". made: by object, the places that first gave it to the script, in order.
    """

    text: str
    first: Mapping[str, int]
    run: str
    objects: tuple[Mapping[str, Any], ...]
    places: Mapping[At, Sighting]
    made: Mapping[int, tuple[At, ...]]

    def in_text(self, text: str) -> Sightings:
        """What was seen in the lines that a rewritten text has kept."""
        moved = _unchanged_lines(self.text, text)

        def there(at: At) -> At | None:
            lines = [moved[line] for line in range(at[0], at[2] + 1) if line in moved]
            return (lines[0], at[1], lines[-1], at[3]) if len(lines) == at[2] + 1 - at[0] else None

        places = {new: one for at, one in self.places.items() if (new := there(at)) is not None}
        made = {
            number: tuple(new for at in found if (new := there(at)) is not None)
            for number, found in self.made.items()
        }
        return replace(self, text=text, places=places, made=made)


def sightings(document: str, text: str, first: Mapping[str, int]) -> Sightings:
    """What a facts file tells, in the lines of a script's text, or of the program of the script and its modules.

    first: the line of the text that is the first of each file, by the file's path from the script's folder; of a notebook,
    of each cell.
    """
    facts = json.loads(document)

    def at(place: list[Any]) -> At | None:
        file, line, column, end, end_column = place
        start = first.get(posixpath.normpath(file))
        return None if start is None else (line + start - 1, column, end + start - 1, end_column)

    places = {
        where: Sighting(tuple(one.get("objects", ())), tuple(one.get("code", ())), _tensor(one.get("tensor")))
        for one in facts["places"]
        if (where := at(one["at"])) is not None
    }
    made = {
        number: tuple(where for place in one.get("made", ()) if (where := at(place)) is not None)
        for number, one in enumerate(facts["objects"])
    }
    run = facts["run"]
    spoken = " ".join([facts["script"], *run["arguments"]])
    return Sightings(text, first, f"`{spoken}`, {run['steps']} steps", tuple(facts["objects"]), places, made)


def _tensor(told: Mapping[str, Any] | None) -> TensorFact | None:
    if not told:
        return None
    return TensorFact(told["is"], told["loader"], tuple(told.get("shape", ())), "alone" in told)


def _unchanged_lines(before: str, after: str) -> dict[int, int]:
    matcher = difflib.SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
    return {
        block.a + offset + 1: block.b + offset + 1
        for block in matcher.get_matching_blocks()
        for offset in range(block.size)
    }


# -- in a tree -----------------------------------------------------------------------------------------------


# (what is claimed of a tensor, what a run has shown it to be) -> in words for the reader.
_SHOWN = {
    ("rows", "rows"): "seen in {run}: its rows follow those of the batch when these are permuted",
    ("rows", "misplaced"): "in {run}, its entries did not follow the rows of a permuted batch",
    ("rows", "fixed"): "in {run}, its entries did not follow the rows of a permuted batch",
    ("rows", "no rows"): "in {run}, it was {shape}, whatever the rows",
    ("mean", "mean"): "seen in {run}: it stays the same when every row is there twice",
    ("mean", "sum"): "in {run}, it doubled when every row was there twice, as a sum does",
}


@dataclass(frozen=True)
class Verdict:
    """Whether a claim held in the observed run, in words for the reader."""

    holds: bool
    said: str


@dataclass(frozen=True)
class Observed:
    """What the interpreter is told of one node. rows_of: where the loader was made whose batch's rows a tensor has.
    row_wise: each of these rows depends on no other row."""

    values: frozenset[Value] = field(default_factory=frozenset)
    rows_of: ast.AST | None = None
    row_wise: bool = False


class Observation:
    """Sightings in a tree."""

    def __init__(
        self,
        seen: Sightings,
        tree: ast.Module,
        reaching: Mapping[ast.Name, frozenset[ast.AST]],
        uses: Mapping[ast.AST, list[ast.Name]],
    ) -> None:
        self._seen = seen
        self._reaching = reaching
        self._uses = uses
        self._nodes: dict[At, ast.expr] = {}
        self._definitions: dict[tuple[str, str], list[ast.AST]] = defaultdict(list)
        for file, node, name in _definitions(tree):
            self._definitions[file, name].append(node)
        for node in ast.walk(tree):
            if isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store):
                self._nodes.setdefault(_at(node), node)

    def _all_at(self, node: ast.AST) -> list[Sighting]:
        """What was seen at a node and, where it binds a variable, at the uses of that variable."""
        places = [node, *self._uses.get(node, ())]
        return [one for place in places if (one := self.at(place)) is not None]

    def verdict(self, claim: str, node: ast.AST) -> Verdict | None:
        """Whether the run has shown what is claimed of a value, or the contrary; None where it shows neither."""
        find = self._is_loader if claim == "loader" else partial(self._has_shown, claim)
        found = [verdict for one in self._all_at(node) if (verdict := find(one)) is not None]
        return next((v for v in found if not v.holds), next(iter(found), None))

    def _is_loader(self, sighting: Sighting) -> Verdict | None:
        roles = {self._seen.objects[n]["role"] for n in sighting.objects}
        if "loader" in roles:
            return Verdict(True, f"seen in {self.run}")
        other = min(roles, default="")
        return Verdict(False, f"in {self.run}, it was a {other}") if other else None

    def _has_shown(self, claim: str, sighting: Sighting) -> Verdict | None:
        fact = sighting.tensor
        if fact is None or (claim, fact.kind) not in _SHOWN:
            return None
        shape = "x".join(map(str, fact.shape))
        said = _SHOWN[claim, fact.kind].format(run=self.run, shape=shape)
        return Verdict(claim == fact.kind, said)

    @property
    def run(self) -> str:
        """What messages call the run."""
        return self._seen.run

    def at(self, node: ast.AST) -> Sighting | None:
        """What was seen at a node."""
        return self._seen.places.get(_at(node)) if isinstance(node, ast.expr) else None

    @cached_property
    def observed(self) -> dict[ast.AST, Observed]:
        """By node, what the interpreter may take from the run; where a variable is bound, what all its uses agree on."""
        told: dict[ast.AST, Observed] = {}
        bound: dict[ast.AST, set[Observed]] = defaultdict(set)
        for at, sighting in self._seen.places.items():
            node = self._nodes.get(at)
            if node is not None and (found := self._observed_at(sighting)) is not None:
                told[node] = found
                bound[self._bound(node)].add(found)
        return told | {binding: next(iter(all_)) for binding, all_ in bound.items() if len(all_) == 1}

    def _bound(self, node: ast.expr) -> ast.expr:
        """The place that binds a variable, where it is the only one that reaches its use."""
        bindings = self._reaching.get(node, ()) if isinstance(node, ast.Name) else ()
        only = next(iter(bindings), None) if len(bindings) == 1 else None
        return only if isinstance(only, ast.Name) else node

    def _observed_at(self, sighting: Sighting) -> Observed | None:
        values = self._objects(sighting) or self._code(sighting)
        fact = sighting.tensor
        site = self.site(fact.loader) if fact is not None and fact.kind == "rows" else None
        row_wise = fact is not None and fact.row_wise
        return Observed(frozenset(values), site, row_wise) if values or site is not None else None

    def _objects(self, sighting: Sighting) -> list[Value]:
        """The objects that stood at a place. None of them where one has no place of its own: the script's calls of a
        factory, say, all give it at the factory's place."""
        found = [self.value(number) for number in sighting.objects]
        return [value for value in found if value is not None] if all(found) else []

    def value(self, number: int) -> Value | None:
        """An object as the interpreter knows it: by where it was made."""
        one = self._seen.objects[number]
        site, role, kind = self.site(number), one["role"], one["class"]
        if site is None or role not in OF_ROLE or one.get("part"):
            return None  # a part is known by the module that it belongs to
        if "file" in kind:
            cls = self._class(kind)
            return Instance(cls, site) if cls is not None else None
        if role == "loss":
            # The call that made it need not tell that its reduction is another one.
            row_mean = one.get("reduction") == "mean" and not one.get("weighs")
            return External(kind["name"], site) if row_mean and api.is_loss_class(kind["name"]) else None
        known = role != "loader" and api.IS_OF_ROLE[role](kind["name"])
        return External(kind["name"] if known else OF_ROLE[role], site)

    def site(self, number: int) -> ast.expr | None:
        """The first place that gave the script this object alone, or only objects of its kind."""
        places = [at for at in self._seen.made.get(number, ()) if at in self._nodes]
        stood = {at: seen.objects for at in places if (seen := self._seen.places.get(at)) is not None}
        alone = [at for at, objects in stood.items() if len(objects) == 1]
        alike = [at for at, objects in stood.items() if len({self._kind(n) for n in objects}) == 1]
        found = next(iter((*alone, *alike)), None)
        return self._bound(self._nodes[found]) if found is not None else None

    def _kind(self, number: int) -> tuple[str, str]:
        one = self._seen.objects[number]
        return one["role"], one["class"]["name"]

    def _code(self, sighting: Sighting) -> list[Value]:
        """A function or class, where it was always the same one."""
        if len(sighting.code) != 1:
            return []
        (one,) = sighting.code
        if "file" not in one:
            return [Symbol(one["name"])]
        line = one.get("line", 0) + self._seen.first.get(posixpath.normpath(one["file"]), 1) - 1
        for node in self._defined(one):
            if isinstance(node, ast.ClassDef):
                return [Class(node)]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and line in {
                begin.lineno for begin in (node, *node.decorator_list)
            }:
                return [Function(node)]
        return []

    def _class(self, kind: Mapping[str, Any]) -> ast.ClassDef | None:
        found = [node for node in self._defined(kind) if isinstance(node, ast.ClassDef)]
        return found[0] if len(found) == 1 else None

    def _defined(self, one: Mapping[str, Any]) -> list[ast.AST]:
        file = posixpath.normpath(one["file"])
        return self._definitions.get((file, one["name"])) or self._definitions.get(("", one["name"]), [])

    def owned_by(self, place: ast.AST) -> set[Value]:
        """The modules that own the parameters of the optimizers made at a place; none where not all are owned by some."""
        sighting = self.at(place)
        made = [self._seen.objects[number] for number in (sighting.objects if sighting is not None else ())]
        owners = [self.value(number) for one in made for number in one.get("of", ())]
        loose = any(one.get("loose") for one in made)
        return {value for value in owners if value is not None} if all(owners) and not loose else set()


def _at(node: ast.expr) -> At:
    return (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST, str]]:
    """(file, node, qualified name) of every function and class; in a single script, the file's name is empty."""
    regions = [node for node in tree.body if isinstance(node, Region)]
    folder = posixpath.dirname(regions[-1].path) if regions else ""
    modules: list[ast.Module] = [*regions] or [tree]
    for module in modules:
        file = posixpath.relpath(module.path, folder or ".") if isinstance(module, Region) else ""
        yield from ((file, node, name) for node, name in _inside(module, ""))


def _inside(owner: ast.AST, prefix: str) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(owner):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            yield child, name
            yield from _inside(child, f"{name}.")
        elif not isinstance(child, ast.expr):
            yield from _inside(child, prefix)
