"""Abstract values: what an expression may stand for. A value is identified by where it was made."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TypeAlias

from crosstrain_migrate.syntax.nodes import FunctionNode


@dataclass(frozen=True, slots=True)
class Unknown:
    """Evaluated, and nothing that matters here: a number, a string, an unknown object.

    An empty set of values means *not evaluated yet*; the difference keeps the fixpoint monotone.
    """


@dataclass(frozen=True, slots=True)
class Absent(Unknown):
    """None: whose attributes and items nobody reads, so that there the value is another one."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name resolved through imports (or a builtin): `torch.nn.functional.cross_entropy`, `builtins.print`."""

    path: str

    def __hash__(self) -> int:
        return hash(self.path)


@dataclass(frozen=True, slots=True)
class Function:
    node: FunctionNode


@dataclass(frozen=True, slots=True)
class Class:
    node: ast.ClassDef


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class defined in the script. Attributes are shared by all objects of the class."""

    cls: ast.ClassDef
    site: ast.AST


@dataclass(frozen=True, slots=True)
class Method:
    """A function bound to its receiver."""

    receiver: Instance
    function: Function


@dataclass(frozen=True, slots=True)
class External:
    """What a call of an imported name returned: an optimizer, a loader, a parsed argument namespace.

    via: the call of the script's own function that made it, where calls of one function make several of them.
    key: which one, where a comprehension makes several in one place: its key in a dict, its position in a list.
    """

    path: str
    site: ast.AST
    via: ast.AST | None = None
    key: str | int | None = None

    def __hash__(self) -> int:
        return hash(self.site)  # of all its fields it would take four times as long


@dataclass(frozen=True, slots=True)
class Member:
    """Attribute `name` of a value that has no definition here (`optimizer.step`, `args.lr`, `x.size`)."""

    receiver: Value
    name: str

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def root(self) -> Value:
        """The start of the chain of attributes: of `model.backbone.fc`, the model."""
        owner = self.receiver
        while isinstance(owner, Member):
            owner = owner.receiver
        return owner


@dataclass(frozen=True, slots=True)
class Sequence:
    """A tuple, list, set or dict written at `site`; its elements live in the heap."""

    site: ast.AST


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters (or parameter groups) of a module."""

    of: Value


@dataclass(frozen=True, slots=True)
class Length:
    """`len(loader)`: a number of batches."""

    of: Value


@dataclass(frozen=True, slots=True)
class Iterator:
    """`iter(x)`, `enumerate(x)`, `tqdm(x)`: iterating it iterates `of`, with a counter when `counted`."""

    of: Value
    site: ast.AST
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Generator:
    """What a call of a generator function of the script returned: iterating it gives what the function yields."""

    site: ast.Call


@dataclass(frozen=True, slots=True)
class FromBatch:
    """A value computed from this rank's share of a loader's batch.

    kind: "batch" (a container of rows), "rows" (dim 0 runs over the samples), "mean" / "sum" (over the samples),
    "count" (how many samples), "other" (some other function of the share).
    origins: the calls that collapsed rows into this value. host: a Python number or NumPy array, no longer a tensor.
    """

    kind: str
    loader: Value
    origins: frozenset[ast.AST] = field(default_factory=frozenset)
    host: bool = False

    def __hash__(self) -> int:
        return hash(self.kind) ^ hash(self.origins)


Value: TypeAlias = (
    Unknown
    | Symbol
    | Function
    | Class
    | Instance
    | Method
    | External
    | Member
    | Sequence
    | Parameters
    | Length
    | Iterator
    | Generator
    | FromBatch
)
Values = frozenset[Value]


def site_of(value: Value) -> ast.AST:
    """Where an object was made. Only objects have a site."""
    site = getattr(value, "site", None)
    assert isinstance(site, ast.AST), value
    return site


def made_at(value: Value) -> ast.expr:
    """The call that gives this object to the script: of its own function where that makes several of them."""
    site = getattr(value, "via", None) or site_of(value)
    assert isinstance(site, ast.expr), value
    return site


def code_of(value: Value) -> FunctionNode | ast.ClassDef | None:
    """The script's own function or class that `value` is; None for anything else."""
    if isinstance(value, Method):
        return value.function.node
    return value.node if isinstance(value, Function | Class) else None


NOTHING: Values = frozenset()
ABSENT: Values = frozenset({Absent()})
UNKNOWN: Values = frozenset({Unknown()})
