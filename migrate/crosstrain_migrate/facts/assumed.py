"""What the code around a value says it is, where its origin does not tell: what a training loop goes over is a loader, and
what it goes backward through is a mean over the rows of the batch.

The first interpretation knows what torch's own names mean. `assumptions` looks at what is left open around the backward
passes, and says which places (an expression, or a variable where it is bound) are to be what; the next interpretation
starts from that.
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
from .torch_api import words
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

# Libraries whose functions return no DataLoader: known ones, and those that nobody takes for one.
NO_LOADERS = sys.stdlib_module_names | words("""
    builtins torch torchtext torchvision numpy scipy sklearn pandas PIL cv2 h5py gym gymnasium nvidia tensorflow tf jax
    matplotlib skimage networkx nltk spacy
""")
# Methods of Python's own containers, texts and arrays.
OF_CONTAINERS = words("items keys values split splitlines tolist unbind chunk itertuples iterrows")
# Losses that compare no output with labels row by row.
OF_PAIRS = words("""
    CTCLoss CosineEmbeddingLoss MarginRankingLoss TripletMarginLoss TripletMarginWithDistanceLoss cosine_embedding_loss
    margin_ranking_loss triplet_margin_loss
""")
COUNTERS = words("range count trange tnrange arange repeat")
WRAPPERS = words("enumerate zip iter cycle islice list reversed track chain")
NO_LOADER = Sequence | FromBatch | Generator | Instance | Parameters | Function | Class | Method | Length


def assumptions(facts: Losses) -> Assumed:
    """What is to be assumed once every loader is known; empty where nothing is open."""
    return _losses(facts) or _outputs(facts)


# -- loaders -------------------------------------------------------------------------------------------------


def open_loaders(facts: Losses) -> Assumed:
    """The places that make, or hold, what an open training loop goes over."""
    origins = {place for drawn in _open_draws(facts) for place in _Origins(facts).of(drawn)}
    places = origins - facts.interp.assumed.keys()
    twins = {twin for place in places for twin in _evaluation_loaders(facts, place)}
    return {place: _loader_at(facts, place) for place in places | twins}


def _loader_at(facts: Losses, place: ast.AST) -> Values:
    """A loader made at this place; or, where a call wraps one that is known, a stream of its batches."""
    given = arguments_of(place) if isinstance(place, ast.Call) else []
    wrapped = {v for argument in given for v in facts.of(argument) if facts.interp.is_loader(v)}
    streams: Values = frozenset(Stream(loader, place) for loader in wrapped)
    return streams or frozenset({External(api.ASSUMED_LOADER, place)})


def _open_draws(facts: Losses) -> Iterator[ast.expr]:
    """What the training loops go over, callers of the backward pass included, where that is no known loader; and what
    `next` draws a batch from that the loss is computed from."""
    for call, loss in facts.backward_calls:
        if batch_values_of(facts.interp, [loss]):
            continue
        for node in facts.loss_slice:
            if isinstance(node, ast.Call) and "builtins.next" in facts.paths(node.func):
                yield from node.args[:1] if not facts.interp.iterations.get(node) else ()
        loop = loop_around(facts, call)
        if loop is not None and not facts.loops.get(loop) and _feeds_the_loss(facts, loop):
            yield loop.iter


def loop_around(facts: Losses, call: ast.AST) -> ast.For | ast.AsyncFor | None:
    """The innermost loop around `call`, or around a call that leads to it, that does more than count."""
    loops = (around for around, _ in facts.enclosing(call) if isinstance(around, ast.For | ast.AsyncFor))
    return next((loop for loop in loops if not _counts(facts, loop.iter)), None)


def _counts(facts: Losses, node: ast.expr) -> bool:
    """`range(...)`, `count()`, `trange(...)`, and these under `enumerate` or a progress bar."""
    names = {api.last(path) for path in facts.paths(node.func)} if isinstance(node, ast.Call) else set()
    wrapped = node.args[:1] if isinstance(node, ast.Call) and names & (WRAPPERS | {"tqdm"}) else []
    return bool(names & COUNTERS) or any(_counts(facts, inner) for inner in wrapped)


def _feeds_the_loss(facts: Losses, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether the loss is computed from what the loop goes over, which is not called, as a model would be."""
    bound = {n for n in walk(loop.target) if isinstance(n, ast.Name)}
    uses = [n for n in facts.loss_slice if isinstance(n, ast.Name) and facts.bindings(n) & bound]
    return bool(uses) and not any(map(facts.interp.is_called, uses))


class _Origins:
    """Where what a loop goes over comes from; nowhere, where something says that it is no loader."""

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
        if made or any(isinstance(v, NO_LOADER) for v in values):
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
        if not isinstance(value, External) or _is_no_loader(value.path):
            return None
        return None if self._facts.interp.is_module(value) else value.site

    def _called(self, node: ast.Call) -> set[ast.AST]:
        facts = self._facts
        paths = facts.paths(node.func)
        if any(api.last(path) in WRAPPERS or path in api.ITERATORS for path in paths):
            return {place for argument in node.args for place in self.of(argument)}
        if any(_is_no_loader(path) for path in paths):
            return set()
        own = facts.targets(node)
        if own:
            functions = (function for function in own if isinstance(function, ast.FunctionDef))
            returned = (value for function in functions for value in facts.returned(function))
            return {place for value in returned for place in self.of(value)}
        if isinstance(node.func, ast.Attribute) and (
            node.func.attr in OF_CONTAINERS or any(map(_is_of_no_loader, facts.of(node.func.value)))
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
        if not isinstance(statement, ast.Assign):
            return set()
        made = statement.value
        if target in statement.targets:
            return self.of(made)
        if not isinstance(made, ast.Call) or any(isinstance(v, NO_LOADER) for v in self._facts.of(made)):
            return set()
        return set() if any(map(_is_no_loader, self._facts.paths(made.func))) else {target}

    def _held(self, node: ast.Attribute) -> set[ast.AST]:
        """`self.loader`: where the script sets it; an attribute of something unknown is one where it is read."""
        owners = self._facts.of(node.value)
        stores = (s for s, _ in self._facts.stores if isinstance(s, ast.Attribute) and s.attr == node.attr)
        own = [store for store in stores if self._facts.of(store.value) & owners]
        if own:
            return {place for store in own for place in self._stored(store)}
        return {node} if owners and not any(_is_of_no_loader(v) or _is_options(v) for v in owners) else set()


def _is_no_loader(path: str) -> bool:
    return path.split(".")[0] in NO_LOADERS or api.is_optimizer_class(path) or api.is_model_of_a_zoo(path)


def _is_of_no_loader(value: Value) -> bool:
    """Whether a value has no loaders among its attributes: something known, or of a library that makes none."""
    root = value.root if isinstance(value, Member) else value
    return isinstance(value, NO_LOADER) or (isinstance(root, External | Symbol) and _is_no_loader(root.path))


def _is_options(value: Value) -> bool:
    root = value.root if isinstance(value, Member) else value
    return isinstance(root, External) and root.path == "argparse.Namespace"


def _evaluation_loaders(facts: Losses, place: ast.AST) -> set[ast.AST]:
    """The other loaders that are made in the same way, and iterated: those of the evaluation."""
    over = [n.iter for n in facts.each(ast.For) if not facts.loops.get(n)]
    others = {other for iterated in over for other in _Origins(facts).of(iterated)} - {place}
    return {other for other in others if _is_made_like(facts, other, place)}


def _is_made_like(facts: Losses, one: ast.AST, other: ast.AST) -> bool:
    """Whether both come from calls of the same function, or from one call."""
    match one, other:
        case ast.Call(), ast.Call():
            return ast.unparse(one.func) == ast.unparse(other.func)
        case ast.Name(), ast.Name():
            return facts.table.statement_of(one) is facts.table.statement_of(other)
        case ast.Attribute() | ast.Subscript(), ast.Attribute() | ast.Subscript():
            return ast.unparse(one.value) == ast.unparse(other.value)
    return False


# -- losses --------------------------------------------------------------------------------------------------


def _losses(facts: Losses) -> Assumed:
    """What goes backward in a loop over a loader, and was not found to be computed from its batches."""
    found: Assumed = {}
    for call, loss in facts.backward_calls:
        if batch_values_of(facts.interp, [loss]):
            continue
        loop = loop_around(facts, call)
        over = facts.loops.get(loop, set()) if loop is not None else set()
        for place in facts.places_of(loss) if over else ():
            if place not in facts.interp.assumed:
                kind = _reduction(facts, loss)
                found[place] = frozenset(FromBatch(kind, loader, frozenset({place})) for loader in over)
    return found


def _reduction(facts: Losses, loss: ast.expr) -> str:
    """How a loss depends on the rows: it is their mean, unless a run has shown that it is their sum."""
    observation = facts.interp.observation
    verdict = observation.verdict("mean", loss) if observation is not None else None
    return "mean" if verdict is None or verdict.holds else "sum"


# -- outputs -------------------------------------------------------------------------------------------------


def _outputs(facts: Losses) -> Assumed:
    """What an unknown function returns has the rows of the labels beside which it goes into one of torch's losses."""
    found: Assumed = {}
    for call in facts.calls:
        if len(call.args) < 2 or not _is_a_loss(facts, call.func):
            continue
        output, labels = call.args[:2]
        held = {v for v in facts.of(labels) if isinstance(v, FromBatch) and not v.host}
        if not held or any(v.kind != "rows" for v in held) or not _is_of_unknown_module(facts, output):
            continue
        for place in facts.places_of(output) - facts.interp.assumed.keys():
            rows = frozenset(FromBatch("rows", v.loader) for v in held)
            found[place] = found.get(place, frozenset()) | rows
    return found


def _is_a_loss(facts: Losses, function: ast.expr) -> bool:
    """Whether an expression is one of torch's losses, and compares row by row."""
    paths = {v.path for v in facts.of(function) if isinstance(v, External)} | facts.paths(function)
    return bool(paths) and all(_compares_rows(path) for path in paths)


def _compares_rows(path: str) -> bool:
    functional = path.startswith("torch.nn.functional.") and api.last(path) in api.LOSSES
    return (functional or api.is_loss_class(path)) and api.last(path) not in OF_PAIRS


def _is_of_unknown_module(facts: Losses, output: ast.expr) -> bool:
    """Whether a module returned it whose function is not known; rows that are known to be mixed stay so."""
    found = {v.kind for v in facts.of(output) if isinstance(v, FromBatch) and not v.host}
    return "other" in found and found <= {"other", "mixed"} and _is_an_output(facts, output)


def _is_an_output(facts: Losses, output: ast.expr) -> bool:
    made: list[ast.AST] = [output]
    if isinstance(output, ast.Name):
        bound = (facts.table.statement_of(d) for d in facts.bindings(output))
        made = [s.value if isinstance(s, ast.Assign) else s for s in bound]
    return bool(made) and all(
        isinstance(node, ast.Call) and any(map(facts.interp.is_module, facts.of(node.func))) for node in made
    )
