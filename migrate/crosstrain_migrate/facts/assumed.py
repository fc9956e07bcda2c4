"""What the code around a value says it is, where its origin says nothing: what a training loop goes over is a loader, and
what it goes backward through is a mean over the rows of the batch.

The first interpretation knows what torch's own names mean. `assumptions` looks at what is left open around the backward
passes, and says which places (an expression, or a variable where it is bound) are to be what; the next one begins with
that.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator

from crosstrain_migrate.syntax.walks import walk

from . import torch_api as api
from .argument_values import batch_values_of
from .arguments import arguments_of
from .losses import Losses
from .values import (
    Class,
    External,
    FromBatch,
    Function,
    Generator,
    Instance,
    Length,
    Member,
    Method,
    Parameters,
    Sequence,
    Symbol,
    Value,
    Values,
)
from .values import Iterator as Stream

Assumed = dict[ast.AST, Values]  # by place: what is assumed to be there, too

# Whose functions return no DataLoader: what is known of them, and what nobody takes for one.
NO_LOADERS = sys.stdlib_module_names | frozenset(
    {
        "builtins",
        "torch",
        "torchtext",
        "torchvision",
        "numpy",
        "scipy",
        "sklearn",
        "pandas",
        "PIL",
        "cv2",
        "h5py",
    }
    | {
        "gym",
        "gymnasium",
        "nvidia",
        "tensorflow",
        "tf",
        "jax",
        "matplotlib",
        "skimage",
        "networkx",
        "nltk",
        "spacy",
    }
)
# Methods of Python's own containers, texts and arrays.
OF_CONTAINERS = frozenset(
    {"items", "keys", "values", "split", "splitlines", "tolist", "unbind", "chunk", "itertuples", "iterrows"}
)
# Losses that compare no output with labels row by row.
OF_PAIRS = frozenset(
    {
        "torch.nn.CTCLoss",
        "torch.nn.CosineEmbeddingLoss",
        "torch.nn.MarginRankingLoss",
        "torch.nn.TripletMarginLoss",
        "torch.nn.TripletMarginWithDistanceLoss",
        "torch.nn.functional.cosine_embedding_loss",
        "torch.nn.functional.margin_ranking_loss",
        "torch.nn.functional.triplet_margin_loss",
    }
)
COUNTERS = frozenset({"range", "count", "trange", "tnrange", "arange", "repeat"})
OVER = frozenset({"enumerate", "zip", "iter", "cycle", "islice", "list", "reversed", "track", "chain"})
KNOWN = Sequence | FromBatch | Generator | Instance | Parameters | Function | Class | Method | Length


def assumptions(facts: Losses) -> Assumed:
    """What is to be assumed where every loader is known; empty where everything is."""
    return _losses(facts) or _outputs(facts)


# -- loaders -------------------------------------------------------------------------------------------------


def open_loaders(facts: Losses) -> Assumed:
    """The places that make, or hold, what an open training loop goes over."""
    places = {
        place
        for drawn in _open_draws(facts)
        for place in Origins(facts).of(drawn)
        if place not in facts.interp.assumed
    }
    places |= {twin for place in places for twin in _twins(facts, place)}
    return {place: _loader_at(facts, place) for place in places}


def _loader_at(facts: Losses, place: ast.AST) -> Values:
    """A loader made at this place; or, where a call wraps one that is known, a stream of its batches."""
    given = arguments_of(place) if isinstance(place, ast.Call) else []
    wrapped = {v for argument in given for v in facts.of(argument) if facts.interp.is_loader(v)}
    return frozenset(Stream(loader, place) for loader in wrapped) or frozenset(
        {External(api.ASSUMED_LOADER, place)}
    )


def _open_draws(facts: Losses) -> Iterator[ast.expr]:
    """What the loops around each backward pass, callers included, go over where that is no known loader; and what
    `next` draws the batch from that the loss is computed from."""
    for call, loss in facts.backward_calls:
        if batch_values_of(facts.interp, [loss]):
            continue
        for node in facts.loss_slice:
            drawn = node.args[:1] if isinstance(node, ast.Call) and _is_next(facts, node) else []
            yield from drawn if not facts.interp.iterations.get(node) else ()
        loop = loop_around(facts, call)
        if loop is not None and not facts.loops.get(loop) and _feeds_the_loss(facts, loop):
            yield loop.iter


def _is_next(facts: Losses, node: ast.Call) -> bool:
    return "builtins.next" in facts.paths(node.func)


def loop_around(facts: Losses, call: ast.AST) -> ast.For | ast.AsyncFor | None:
    """The innermost loop around `call`, or around a call that leads to it, that does more than count."""
    work, seen = [call], set[ast.AST]()
    while work:
        current = work.pop(0)
        for around in facts.table.ancestors(current):
            if isinstance(around, ast.For | ast.AsyncFor) and not _counts(facts, around.iter):
                return around
            if around in facts.table.scopes:
                if around not in seen:
                    seen.add(around)
                    work.extend(facts.callers.get(around, ()))
                break
    return None


def _counts(facts: Losses, node: ast.expr) -> bool:
    """`range(...)`, `count()`, `trange(...)`, and these under `enumerate` or a progress bar."""
    if not isinstance(node, ast.Call):
        return False
    names = {api.last(path) for path in facts.paths(node.func)}
    if names & COUNTERS:
        return True
    return bool(names & (OVER | {"tqdm"}) and node.args) and _counts(facts, node.args[0])


def _feeds_the_loss(facts: Losses, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether the loss is computed from what the loop goes over, and that is not called itself as a model is."""
    bound = {n for n in walk(loop.target) if isinstance(n, ast.Name)}
    uses = [
        n
        for n in facts.loss_slice
        if isinstance(n, ast.Name) and facts.interp.reaching.get(n, frozenset()) & bound
    ]
    parents = facts.table.parents
    called = [n for n in uses if isinstance(call := parents.get(n), ast.Call) and call.func is n]
    return bool(uses) and not called


class Origins:
    """Where what a loop goes over comes from, as far as nothing says that it is no loader."""

    def __init__(self, facts: Losses) -> None:
        self._facts = facts
        self._seen: set[ast.AST] = set()

    def of(self, node: ast.expr) -> set[ast.AST]:
        """The calls that make it, or the places where a variable is bound to it."""
        if node in self._seen:
            return set()
        self._seen.add(node)
        values = self._facts.of(node)
        made = {site for v in values if (site := self._made(v)) is not None}
        if made or any(isinstance(v, KNOWN) for v in values):
            return made
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.Name):
            return {place for binding in self._bindings(node) for place in self._bound(binding)}
        if isinstance(node, ast.Attribute):
            return self._held(node)
        if isinstance(node, ast.IfExp):
            return self.of(node.body) | self.of(node.orelse)
        return {node} if isinstance(node, ast.Subscript) else set()

    def _made(self, value: Value) -> ast.AST | None:
        """The call of a library's that made a value, where that may be a loader."""
        if isinstance(value, Stream):
            return self._made(value.of)
        if (
            not isinstance(value, External)
            or _is_no_loader(value.path)
            or self._facts.interp.is_module(value)
        ):
            return None
        return value.site

    def _called(self, node: ast.Call) -> set[ast.AST]:
        facts = self._facts
        paths = facts.paths(node.func)
        if any(api.last(path) in OVER or path in api.ITERATORS for path in paths):
            return {place for argument in node.args for place in self.of(argument)}
        if any(_is_no_loader(path) for path in paths):
            return set()
        own = facts.targets(node)
        if own:
            returned = (
                value
                for function in own
                if isinstance(function, ast.FunctionDef)
                for value in facts.returned(function)
            )
            return {place for value in returned for place in self.of(value)}
        if isinstance(node.func, ast.Attribute):
            owners = facts.of(node.func.value)
            if node.func.attr in OF_CONTAINERS or any(
                isinstance(v, KNOWN) or _comes_from_none(v) for v in owners
            ):
                return set()
        return {node}

    def _bindings(self, name: ast.Name) -> Iterable[ast.AST]:
        facts = self._facts
        reaching = facts.interp.reaching.get(name)
        if reaching is not None:
            return reaching
        scope = facts.table.of_node[name].resolve(name.id)
        if scope is None:
            return ()
        return [n for n in facts.mentions(scope, name.id) if isinstance(n.ctx, ast.Store)]

    def _bound(self, binding: ast.AST) -> set[ast.AST]:
        """Where what a variable is bound to comes from: itself, where it is a part of something unknown."""
        if isinstance(binding, ast.arg):
            return {place for given in self._facts.given(binding) for place in self.of(given)}
        return self._stored(binding) if isinstance(binding, ast.Name | ast.Attribute) else set()

    def _stored(self, target: ast.Name | ast.Attribute) -> set[ast.AST]:
        statement = self._facts.table.statement_of(target)
        if isinstance(statement, ast.Assign):
            if target in statement.targets:
                return self.of(statement.value)
            made = statement.value
            paths = self._facts.paths(made.func) if isinstance(made, ast.Call) else set()
            known = any(isinstance(v, KNOWN) for v in self._facts.of(made)) or any(map(_is_no_loader, paths))
            return {target} if isinstance(made, ast.Call) and not known else set()
        return set()

    def _held(self, node: ast.Attribute) -> set[ast.AST]:
        """`self.loader`: where the script sets it; an attribute of something unknown is one where it is read."""
        owners = self._facts.of(node.value)
        stores = [
            store
            for store, _ in self._facts.stores
            if isinstance(store, ast.Attribute)
            and store.attr == node.attr
            and self._facts.of(store.value) & owners
        ]
        if stores:
            return {place for store in stores for place in self._stored(store)}
        unknown = not any(isinstance(v, KNOWN) or _comes_from_none(v) or _is_options(v) for v in owners)
        return {node} if unknown and owners else set()


def _is_no_loader(path: str) -> bool:
    return path.split(".")[0] in NO_LOADERS or api.is_optimizer_class(path) or api.is_model_of_a_zoo(path)


def _comes_from_none(value: Value) -> bool:
    """Whether a value belongs to a library that makes no loaders: `folds` of scikit-learn's."""
    if isinstance(value, Member):
        value = value.root
    path = getattr(value, "path", "") if isinstance(value, External | Symbol) else ""
    return bool(path) and _is_no_loader(path)


def _is_options(value: Value) -> bool:
    root = value.root if isinstance(value, Member) else value
    return isinstance(root, External) and root.path == "argparse.Namespace"


def _twins(facts: Losses, place: ast.AST) -> set[ast.AST]:
    """The other loaders that are made in the same way, and iterated: those of the evaluation."""
    over = [n.iter for n in facts.each(ast.For) if not facts.loops.get(n)]
    others = {other for iterated in over for other in Origins(facts).of(iterated)} - {place}
    return {other for other in others if _is_made_like(facts, other, place)}


def _is_made_like(facts: Losses, one: ast.AST, other: ast.AST) -> bool:
    """Whether both come from calls of the same function, or from one call."""
    if isinstance(one, ast.Call) and isinstance(other, ast.Call):
        return ast.unparse(one.func) == ast.unparse(other.func)
    if isinstance(one, ast.Name) and isinstance(other, ast.Name):
        return facts.table.statement_of(one) is facts.table.statement_of(other)
    return (
        isinstance(one, ast.Attribute | ast.Subscript)
        and isinstance(other, ast.Attribute | ast.Subscript)
        and (ast.unparse(one.value) == ast.unparse(other.value))
    )


# -- losses --------------------------------------------------------------------------------------------------


def _losses(facts: Losses) -> Assumed:
    """What goes backward in a loop over a loader, and was not found to be computed from its batches."""
    found: Assumed = {}
    for call, loss in facts.backward_calls:
        if batch_values_of(facts.interp, [loss]):
            continue
        loop = loop_around(facts, call)
        over = facts.loops.get(loop, set()) if loop is not None else set()
        for place in _places_of(facts, loss) if over else ():
            if place not in facts.interp.assumed:
                kind = _reduction(facts, loss)
                found[place] = frozenset(FromBatch(kind, loader, frozenset({place})) for loader in over)
    return found


def _reduction(facts: Losses, loss: ast.expr) -> str:
    """How a loss follows from the rows: by their mean, unless a run has shown that it is their sum."""
    observation = facts.interp.observation
    verdict = observation.verdict("mean", loss) if observation is not None else None
    return "mean" if verdict is None or verdict.holds else "sum"


# -- outputs -------------------------------------------------------------------------------------------------


def _outputs(facts: Losses) -> Assumed:
    """What goes into one of torch's losses beside labels that have rows, and could not be followed: it has theirs."""
    found: Assumed = {}
    for call in facts.calls:
        if len(call.args) < 2 or not _is_a_loss(facts, call.func):
            continue
        output, labels = call.args[:2]
        held = {v for v in facts.of(labels) if isinstance(v, FromBatch) and not v.host}
        if not held or any(v.kind != "rows" for v in held) or not _is_open(facts, output):
            continue
        for place in _places_of(facts, output) - facts.interp.assumed.keys():
            rows = frozenset(FromBatch("rows", v.loader) for v in held)
            found[place] = found.get(place, frozenset()) | rows
    return found


def _is_a_loss(facts: Losses, function: ast.expr) -> bool:
    """Whether it is a loss of torch's that compares row by row."""
    paths = {v.path for v in facts.of(function) if isinstance(v, External)} | facts.paths(function)
    return bool(paths) and all(
        path not in OF_PAIRS
        and (
            api.is_loss_class(path)
            or (path.startswith("torch.nn.functional.") and api.last(path) in api.LOSSES)
        )
        for path in paths
    )


def _is_open(facts: Losses, output: ast.expr) -> bool:
    """Whether it comes out of a module that could not be followed; rows that are known to be mixed stay so."""
    found = {v.kind for v in facts.of(output) if isinstance(v, FromBatch) and not v.host}
    return "other" in found and found <= {"other", "mixed"} and _is_an_output(facts, output)


def _is_an_output(facts: Losses, output: ast.expr) -> bool:
    if isinstance(output, ast.Name):
        bound = [facts.table.statement_of(d) for d in facts.interp.reaching.get(output, ())]
        made = [s.value for s in bound if isinstance(s, ast.Assign)]
        return len(made) == len(bound) > 0 and all(_calls_a_module(facts, value) for value in made)
    return _calls_a_module(facts, output)


def _calls_a_module(facts: Losses, made: ast.expr) -> bool:
    return isinstance(made, ast.Call) and any(facts.interp.is_module(v) for v in facts.of(made.func))


def _places_of(facts: Losses, loss: ast.expr) -> set[ast.AST]:
    """The bindings of a variable, or the expression itself."""
    if isinstance(loss, ast.Name):
        bound = facts.interp.reaching.get(loss, frozenset())
        return {n for n in bound if isinstance(n, ast.Name)}
    return {loss}
