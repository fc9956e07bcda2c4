"""What a call returns: constructors, modules, losses, tensor operations, the script's own functions."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from . import containers, context, tensors
from . import torch_api as api
from .scopes import all_arguments
from .values import (
    NOTHING,
    UNKNOWN,
    Class,
    External,
    Function,
    FunctionNode,
    Generator,
    Instance,
    Iterator,
    Length,
    Member,
    Method,
    Parameters,
    Sequence,
    Shard,
    Symbol,
    Unknown,
    Value,
    Values,
)

if TYPE_CHECKING:
    from .infer import Interpreter

PASS_THROUGH = frozenset(
    {
        "builtins.list",
        "builtins.tuple",
        "builtins.sorted",
        "builtins.set",
        "builtins.filter",
        "itertools.chain",
        "copy.copy",
    }
)
SAME_OBJECT = frozenset(
    {
        "to",
        "cuda",
        "cpu",
        "train",
        "eval",
        "double",
        "float",
        "half",
        "bfloat16",
        "apply",
        "requires_grad_",
        "compile",
    }
)


def is_loader(interp: Interpreter, value: Value) -> bool:
    if isinstance(value, External):
        return value.path in api.LOADERS
    return isinstance(value, Instance) and interp.inherits(value.cls, api.LOADERS)


def keywords_of(node: ast.Call) -> dict[str, ast.expr]:
    return {k.arg: k.value for k in node.keywords if k.arg is not None}


def evaluate(interp: Interpreter, node: ast.Call) -> Values:
    functions = interp.eval(node.func)
    for argument in (*node.args, *(k.value for k in node.keywords)):
        interp.eval(argument.value if isinstance(argument, ast.Starred) else argument)
        if isinstance(argument, ast.Starred):
            interp.eval(argument)
    if any(interp.is_module(f) for f in functions):  # a submodule that was assigned is no unknown method
        functions = frozenset(
            f for f in functions if not (isinstance(f, Member) and interp.is_module(f.receiver))
        )
    found: set[Value] = set()
    for function in functions:
        found |= _call(interp, function, node)
    # Nothing is made global inside a module: what is read into Python there is still one rank's.
    return frozenset(found) if not interp.in_module(node) else as_local(found)


def _call(interp: Interpreter, function: Value, node: ast.Call) -> Values:
    if isinstance(function, Symbol):
        return _call_symbol(interp, function.path, node)
    if isinstance(function, Function):
        return _call_function(interp, function.node, node)
    if isinstance(function, Method):
        return _call_function(interp, function.function.node, node, function.receiver)
    if isinstance(function, Class):
        return _construct(interp, function.node, node)
    if isinstance(function, Instance):
        return _call_instance(interp, function, node)
    if isinstance(function, External):
        return _call_external(interp, function, node)
    if isinstance(function, Member):
        return _call_member(interp, function, node)
    return _of_unknown(interp, node)


def as_local(values: Iterable[Value]) -> Values:
    return frozenset(replace(v, host=False) if isinstance(v, Shard) else v for v in values)


def arguments_of(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(k.value for k in node.keywords)]


def shards_of(interp: Interpreter, nodes: Iterable[ast.expr]) -> list[Shard]:
    """The shards among the arguments, those inside literal tuples, lists and dicts included."""
    found: list[Shard] = []
    for node in nodes:
        for value in interp.of(node):
            if isinstance(value, Shard):
                found.append(value)
            elif isinstance(value, Sequence):
                found.extend(e for e in interp.element(value) if isinstance(e, Shard))
            elif isinstance(value, Member) and isinstance(value.receiver, Shard):
                found.append(value.receiver)
    return found


def _of_unknown(interp: Interpreter, node: ast.Call) -> Values:
    """A call of something we know nothing about: whatever it does to its rows, it is some function of them."""
    shards = [s for s in shards_of(interp, arguments_of(node)) if s.kind not in {"count", "shape"}]
    if not shards:
        return UNKNOWN
    return frozenset(tensors.other(shard, node) for shard in shards)


# -- the script's own functions and classes ------------------------------------------------------------------


def _call_function(
    interp: Interpreter, function: FunctionNode, node: ast.Call, receiver: Instance | None = None
) -> Values:
    bind_arguments(interp, function, node, receiver)
    moved = argument_of(node, function, interp.movers.get(function, ""), receiver is not None)
    if moved is not None:
        return interp.of(moved)
    # A module's methods run its layers on their arguments, and hold no batch.
    local = function not in interp.touching or function in interp.module_methods
    if function in interp.generators and local:
        yielded = frozenset(interp.yields[function])
        interp.merge(
            interp.heap.cell((node, "*")), context.in_context(interp, function, node, yielded, local)
        )
        return frozenset({Generator(node)})
    results = context.returned_by(interp, function, node)
    if function in interp.factories:
        results = frozenset(_by_this_call(v, node) if interp.is_made_in(v, function) else v for v in results)
    return context.in_context(interp, function, node, results, local)


def argument_of(node: ast.Call, function: FunctionNode, name: str, bound: bool) -> ast.expr | None:
    """The expression that a call gives for parameter `name`; `bound`: the first parameter is the receiver."""
    keyword = next((k.value for k in node.keywords if k.arg == name), None)
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][bound:]
    if keyword is not None or name not in names:
        return keyword
    index = names.index(name)
    plain = index < len(node.args) and not any(isinstance(a, ast.Starred) for a in node.args[: index + 1])
    return node.args[index] if plain else None


def _by_this_call(value: Value, node: ast.Call) -> Value:
    return replace(value, via=node) if isinstance(value, External) else value


def bind_arguments(
    interp: Interpreter, function: FunctionNode, node: ast.Call, receiver: Instance | None = None
) -> None:
    """Lets a call's arguments flow into a function's parameters."""
    interp.merge_calls(function, node)
    scope = interp.table.scopes[function]
    parameters = [*function.args.posonlyargs, *function.args.args]
    if receiver is not None and parameters:
        interp.bind_argument(scope, parameters.pop(0), {receiver})
    for index, argument in enumerate(node.args):
        if isinstance(argument, ast.Starred):
            for parameter in parameters[index:]:
                interp.bind_argument(scope, parameter, interp.of(argument))
            break
        if index < len(parameters):
            interp.bind_argument(scope, parameters[index], interp.of(argument))
        elif function.args.vararg is not None:
            interp.bind_argument(scope, function.args.vararg, {Sequence(function.args.vararg)})
            interp.merge(interp.heap.cell((function.args.vararg, "*")), interp.of(argument))
    known = {a.arg: a for a in all_arguments(function)}
    taken = {a.arg for a in (*function.args.posonlyargs, *function.args.args)} - {p.arg for p in parameters}
    taken |= {p.arg for p in parameters[: len(node.args)]} | {k.arg for k in node.keywords if k.arg}
    for keyword in node.keywords:
        if keyword.arg is None:
            for name, parameter in known.items():
                if name in taken:
                    continue  # `self`, and what is given by position
                spread = {e for v in interp.of(keyword.value) for e in interp.element(v, name)}
                interp.bind_argument(scope, parameter, spread)
            _bind_rest(interp, function, {e for v in interp.of(keyword.value) for e in interp.element(v)})
        elif keyword.arg in known:
            interp.bind_argument(scope, known[keyword.arg], interp.of(keyword.value))
        else:
            _bind_rest(interp, function, interp.of(keyword.value))


def _bind_rest(interp: Interpreter, function: FunctionNode, values: Iterable[Value]) -> None:
    """What goes into `**kwargs`."""
    rest = function.args.kwarg
    if rest is not None:
        interp.bind_argument(interp.table.scopes[function], rest, {Sequence(rest)})
        interp.merge(interp.heap.cell((rest, "*")), values)


def _construct(interp: Interpreter, cls: ast.ClassDef, node: ast.Call) -> Values:
    if interp.in_module(node) and containers.is_record(interp, cls):
        from .infer import fields_of

        return containers.record(
            interp, node, fields_of(cls)
        )  # an output of the model, made anew by each call
    instance = Instance(cls, node)
    init = interp.method(cls, "__init__")
    if init is not None:
        bind_arguments(interp, init, node, instance)
    else:
        _bind_fields(interp, cls, node)
    if interp.inherits(cls, api.OPTIMIZER_BASES):
        _note_parameters(interp, node)
    return frozenset({instance})


def _bind_fields(interp: Interpreter, cls: ast.ClassDef, node: ast.Call) -> None:
    """A dataclass's generated constructor."""
    from .infer import fields_of

    for name, argument in zip(fields_of(cls), node.args, strict=False):
        interp.merge(interp.heap.cell((cls, name)), interp.of(argument))
    for key, argument in keywords_of(node).items():
        interp.merge(interp.heap.cell((cls, key)), interp.of(argument))


def _call_instance(interp: Interpreter, instance: Instance, node: ast.Call) -> Values:
    name = "forward" if interp.is_module(instance) else "__call__"
    method = interp.method(instance.cls, name)
    if method is None:
        return _call_module(interp, node) if interp.is_module(instance) else _of_unknown(interp, node)
    bind_arguments(interp, method, node, instance)
    results = context.returned_by(interp, method, node)
    return context.in_context(interp, method, node, results, local=interp.is_module(instance))


# -- modules and losses --------------------------------------------------------------------------------------


def _call_external(interp: Interpreter, function: External, node: ast.Call) -> Values:
    if api.is_loss_class(function.path):
        constructor = function.site
        assert isinstance(constructor, ast.Call)
        if (interp.tree, (function, "reduction")) in interp.heap:
            return _of_unknown(interp, node)  # `criterion.reduction = ...` later on
        return _loss(interp, node, keywords_of(constructor), api.loss_function_of(function.path))
    if function.path == "collections.namedtuple":
        return containers.record(interp, node, _field_names(function.site))
    if function.path in api.RECURRENT:
        return _recurrent(interp, function, node)
    if function.path == "torch.nn.Embedding" or interp.is_module(function):
        return _call_module(interp, node)
    return _of_unknown(interp, node)


def _field_names(site: ast.AST) -> list[str]:
    if not isinstance(site, ast.Call) or len(site.args) < 2:
        return []
    fields = site.args[1]
    if isinstance(fields, ast.Constant) and isinstance(fields.value, str):
        return fields.value.replace(",", " ").split()
    elements = fields.elts if isinstance(fields, ast.Tuple | ast.List) else []
    return [str(e.value) for e in elements if isinstance(e, ast.Constant)]


def _call_module(interp: Interpreter, node: ast.Call) -> Values:
    """A layer or model from a library treats every sample on its own: rows in, rows out."""
    shards = [s for s in shards_of(interp, arguments_of(node)) if s.kind in tensors.PER_SAMPLE | {"other"}]
    if not shards:
        return UNKNOWN
    kinds = {s.kind for s in shards}
    kind = next(k for k in ("other", "mixed", "layers", "rows", "batch") if k in kinds)
    return frozenset(Shard("rows" if kind == "batch" else kind, s.loader, s.origins) for s in shards)


def _recurrent(interp: Interpreter, function: External, node: ast.Call) -> Values:
    assert isinstance(function.site, ast.Call)
    flag = keywords_of(function.site).get("batch_first")
    batch_first = isinstance(flag, ast.Constant) and flag.value is True
    shards = shards_of(interp, node.args[:1])
    if not shards:
        return UNKNOWN
    for shard in shards:
        keeps = shard.kind == "rows" if batch_first else shard.kind == "mixed"
        output = Shard(shard.kind if keeps else "mixed", shard.loader)
        hidden = Shard("layers", shard.loader)
        interp.merge(interp.heap.cell((node, 0)), {output})
        interp.merge(interp.heap.cell((node, 1)), {Sequence(node.func), hidden})
        interp.merge(interp.heap.cell((node.func, "*")), {hidden})
    return frozenset({Sequence(node)})


def _loss(interp: Interpreter, node: ast.Call, options: dict[str, ast.expr], name: str) -> Values:
    shards = shards_of(interp, arguments_of(node))
    if not shards:
        return UNKNOWN
    reduction = options.get("reduction")
    kind = "mean"
    if reduction is not None:
        known = interp.constants.known(reduction) or frozenset()
        kinds = {"mean": "mean", "batchmean": "mean", "sum": "sum", "none": "rows"}
        kind = kinds.get(str(*known), "other") if len(known) == 1 else "other"
    legacy = {k for k in ("size_average", "reduce") if k in options}
    if legacy:
        kind = _legacy_reduction(options)
    if kind == "mean" and (_normalises(options, name) or _weighs_by_the_share(interp, options)):
        kind = "other"
    found: set[Value] = set()
    for shard in shards:
        if shard.kind == "other":
            found.add(tensors.other(shard, node))
        elif kind == "rows":
            found.add(Shard(shard.kind if shard.kind != "batch" else "rows", shard.loader))
        else:
            found.add(Shard(kind, shard.loader, frozenset({node})))
    return frozenset(found)


def _weighs_by_the_share(interp: Interpreter, options: dict[str, ast.expr]) -> bool:
    """`pos_weight=negatives / positives`, counted in this batch: every rank weighs by its own share."""
    given = [v for value in options.values() for v in interp.of(value)]
    return any(isinstance(v, Shard) and v.kind in tensors.SCALARS for v in given)


def _legacy_reduction(options: dict[str, ast.expr]) -> str:
    def is_false(node: ast.expr | None) -> bool:
        return isinstance(node, ast.Constant) and node.value is False

    if is_false(options.get("reduce")):
        return "rows"
    return "sum" if is_false(options.get("size_average")) else "mean"


def _normalises(options: dict[str, ast.expr], name: str) -> bool:
    for key in api.NORMALISING_ARGUMENTS & set(options):
        value = options[key]
        unset = isinstance(value, ast.Constant) and value.value is None
        if not unset and not (key == "weight" and name in api.PLAIN_WEIGHT_LOSSES):
            return True
    return False


# -- imported functions --------------------------------------------------------------------------------------


def _call_symbol(interp: Interpreter, path: str, node: ast.Call) -> Values:
    name = api.last(path)
    if path in {"builtins.next"} and node.args:
        return interp.iterate(interp.of(node.args[0]), node)
    if path in {"builtins.enumerate"} and node.args:
        return frozenset({Iterator(v, node, counted=True) for v in interp.of(node.args[0])})
    if path in {"builtins.zip"}:
        return _zip(interp, node)
    if path in api.ITERATORS and node.args:
        return _iterator(interp, path, node)
    if path == "builtins.map" and len(node.args) == 2:
        return _map(interp, node)
    if path in PASS_THROUGH:
        return frozenset(v for a in node.args for v in interp.of(a) if not isinstance(v, Function)) or UNKNOWN
    if path == "builtins.len" and node.args:
        return _length(interp, node)
    if path in {"copy.deepcopy"} and node.args:
        return _copy(interp, node)
    if api.is_optimizer_class(path):
        _note_parameters(interp, node)
        return frozenset({External(path, node)})
    if (
        api.is_scheduler_class(path)
        or api.is_module_class(path)
        or api.is_loss_class(path)
        or path in api.LOADERS
    ):
        return frozenset({External(path, node)})
    if path.startswith("torch.nn.functional.") and name in api.LOSSES:
        return _loss(interp, node, keywords_of(node), name)
    if path in {"torch.device", "torch.accelerator.current_accelerator"}:
        return frozenset({External("torch.device", node)})
    if path in api.PARAMETERS:
        return frozenset({External("torch.nn.Parameter", node)})
    if path == "torch.autograd.Variable" and node.args:
        return interp.of(node.args[0])
    if path == "torch.nn.SyncBatchNorm.convert_sync_batchnorm" and node.args:
        return interp.of(node.args[0])
    if path.startswith(("torch.nn.parallel.", "torch.compile")) and node.args:
        return interp.of(node.args[0]) | {External(path, node)}
    if path.startswith(("torch.", "numpy.")) or path in api.HOST_BUILTINS:
        return _tensor_function(interp, path, name, node)
    if path.startswith("builtins."):
        return _builtin(interp, name, node)
    if interp.in_module(node) and name.endswith("Output") and not node.args:
        return containers.record(interp, node, [])  # a library's record of what a model returns
    _note_foreign_optimizer(interp, node)
    shards = _of_unknown(interp, node)
    return shards if any(isinstance(v, Shard) for v in shards) else frozenset({External(path, node)})


def _iterator(interp: Interpreter, path: str, node: ast.Call) -> Values:
    values = interp.of(node.args[0])
    if path == "builtins.list":
        return values
    return frozenset({Iterator(v, node) for v in values})


def _map(interp: Interpreter, node: ast.Call) -> Values:
    """`map(lambda t: t.to(device), batch)`: of every tensor of a batch, a batch again."""
    over = interp.of(node.args[1])
    elements = interp.iterate(over, node)
    found: set[Value] = set()
    for function in (v.node for v in interp.of(node.args[0]) if isinstance(v, Function)):
        parameters = [*function.args.posonlyargs, *function.args.args]
        if parameters:
            interp.bind_argument(interp.table.scopes[function], parameters[0], elements)
        found |= context.in_context(interp, function, node, frozenset(interp.returns[function]), local=True)
    shards = [v for v in found if isinstance(v, Shard)]
    if not shards:
        interp.merge(interp.heap.cell((node, "*")), found)
        return frozenset({Sequence(node)})
    parts = any(isinstance(v, Shard) and v.kind == "batch" for v in over)
    return frozenset(
        replace(s, kind="batch") if parts and s.kind == "rows" else tensors.other(s, node) for s in shards
    )


def _zip(interp: Interpreter, node: ast.Call) -> Values:
    for index, argument in enumerate(node.args):
        interp.merge(interp.heap.cell((node, index)), interp.iterate(interp.of(argument), node))
    pair = Sequence(node)
    interp.merge(interp.heap.cell((node.func, "*")), {pair})
    return frozenset({Sequence(node.func)})


def _length(interp: Interpreter, node: ast.Call) -> Values:
    found: set[Value] = set()
    for value in interp.of(node.args[0]):
        if is_loader(interp, value):
            found.add(Length(value))
        elif isinstance(value, Shard) and value.kind in {"rows", "batch"} and not value.host:
            found.add(tensors.collapsed(value, "count", node))
        else:
            found |= UNKNOWN
    return frozenset(found)


def _copy(interp: Interpreter, node: ast.Call) -> Values:
    found: set[Value] = set()
    for value in interp.of(node.args[0]):
        if isinstance(value, Instance):
            found.add(Instance(value.cls, node))
        elif isinstance(value, External):
            found.add(External(value.path, node))
        else:
            found.add(value)
    return frozenset(found)


def parameters_in(interp: Interpreter, node: ast.Call) -> set[Value]:
    """The modules whose parameters a call is given, however wrapped (groups, chains, filters)."""
    found: set[Value] = set()
    work = [v for a in arguments_of(node) for v in interp.of(a)]
    seen: set[Value] = set()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, Parameters):
            found.add(value.of)
        elif isinstance(value, Sequence):
            work.extend(interp.element(value))
        elif isinstance(value, Iterator):
            work.append(value.of)
    return found


def _note_parameters(interp: Interpreter, node: ast.Call) -> None:
    interp.note_modules({m for m in parameters_in(interp, node) if isinstance(m, External | Instance)})


def _note_foreign_optimizer(interp: Interpreter, node: ast.Call) -> None:
    """Whatever takes `x.parameters()` and is no torch optimizer may be one: `x` is a module all the same."""
    _note_parameters(interp, node)


def _tensor_function(interp: Interpreter, path: str, name: str, node: ast.Call) -> Values:
    """torch.f(x, ...), F.f(x, ...), numpy.f(x, ...): the method f of its first row-like argument."""
    if path.startswith(("torch.nn.utils.clip_grad", "torch.nn.utils.rnn.")):
        return UNKNOWN if path.startswith("torch.nn.utils.clip_grad") else _of_unknown(interp, node)
    if name in api.JOINS:
        return _join(interp, name, node)
    if name in {"einsum", "cdist"}:
        return _of_unknown(interp, node)
    if name == "grad" and path.startswith("torch.autograd"):
        return frozenset(Shard("batch", s.loader) for s in shards_of(interp, arguments_of(node))) or UNKNOWN
    arguments = arguments_of(node)
    pending = [a for a in arguments if not interp.of(a)]
    if pending:
        return NOTHING
    shards = shards_of(interp, arguments)
    if name in api.FROM_DATA and node.args and interp.of(node.args[0]):
        given = [v for v in interp.of(node.args[0]) if isinstance(v, Shard) and v.kind == "rows"]
        if given:
            return frozenset(replace(s, host=False) for s in given)
    if name in api.FACTORIES or path.startswith("numpy.random."):
        return frozenset(Shard("rows", s.loader) for s in shards if s.kind in {"count", "shape"}) or (
            frozenset(tensors.other(s, node) for s in shards) or UNKNOWN
        )
    shards = [s for s in shards if s.kind not in {"count", "shape"}]
    if not shards:
        return UNKNOWN
    ranked = sorted(shards, key=lambda s: s.kind in tensors.SCALARS)
    first = ranked[0]
    holder = next(i for i, a in enumerate(arguments) if first in shards_of(interp, [a]))
    if len(node.args) > 1 and name == "where":
        holder = 0
    rest = node.args[1:] if holder == 0 else node.args[holder + 1 :]
    return _apply(
        interp, api_name(path, name), node, [s for s in ranked if s.loader], rest, keywords_of(node)
    )


def api_name(path: str, name: str) -> str:
    return {"builtins.float": "item", "builtins.int": "item", "builtins.bool": "item"}.get(path, name)


def _apply(
    interp: Interpreter,
    name: str,
    node: ast.Call,
    shards: list[Shard],
    rest: list[ast.expr],
    keywords: dict[str, ast.expr],
) -> Values:
    counts = frozenset(a for a in _flat(rest) if _is_count(interp, a))
    found: set[Value] = set()
    loaders = {s.loader for s in shards}
    for loader in loaders:
        mine = [s for s in shards if s.loader == loader]
        result = tensors.apply(name, mine[0], node, rest, keywords, counts, tuple(mine[1:]))
        if result is not None and len(mine) > 1:
            result = Shard(result.kind, loader, result.origins | _origins(mine), result.host)
        found |= {result} if result is not None else UNKNOWN
    return frozenset(found)


def _origins(shards: list[Shard]) -> frozenset[ast.AST]:
    return frozenset(o for s in shards for o in s.origins)


def _flat(nodes: list[ast.expr]) -> list[ast.expr]:
    found: list[ast.expr] = []
    for node in nodes:
        found.extend([node, *node.elts] if isinstance(node, ast.Tuple | ast.List) else [node])
    return found


def _is_count(interp: Interpreter, node: ast.expr) -> bool:
    return any(isinstance(v, Shard) and v.kind == "count" for v in interp.of(node))


def _join(interp: Interpreter, name: str, node: ast.Call) -> Values:
    shards = [s for s in shards_of(interp, node.args[:1]) if s.kind not in {"count", "shape"}]
    if not shards:
        return UNKNOWN
    dim = keywords_of(node).get(
        "dim", keywords_of(node).get("axis", node.args[1] if len(node.args) > 1 else None)
    )
    position = tensors.literal_int(dim)
    keeps = position is not None and position != 0 and name in {"cat", "concat", "concatenate", "stack"}
    found: set[Value] = set()
    for shard in shards:
        if shard.kind in tensors.SCALARS:
            found.add(shard if shard.kind == "mean" else tensors.other(shard, node))
        elif shard.host:
            found.add(tensors.other(shard, node))
        else:
            kind = shard.kind if keeps and shard.kind != "batch" else "mixed"
            found.add(Shard("rows" if kind == "batch" else kind, shard.loader, shard.origins, shard.host))
    return frozenset(found)


def _builtin(interp: Interpreter, name: str, node: ast.Call) -> Values:
    if name in {"print", "isinstance", "hasattr", "range", "type", "id", "super", "open", "input"}:
        return UNKNOWN
    if name == "dict":
        return _dict(interp, node)
    if name in {"getattr"} and len(node.args) >= 2 and isinstance(node.args[1], ast.Constant):
        return frozenset(
            v for o in interp.of(node.args[0]) for v in interp.attribute(o, str(node.args[1].value), node)
        )
    if name in {"sum", "max", "min", "abs", "round", "pow"}:
        return _host_reduction(interp, name, node)
    return _of_unknown(interp, node)


def _dict(interp: Interpreter, node: ast.Call) -> Values:
    for value in (v for a in node.args for v in interp.of(a)):
        if isinstance(value, Sequence):
            interp.merge(interp.heap.cell((node, "*")), interp.element(value))
    for key, argument in keywords_of(node).items():
        interp.merge(interp.heap.cell((node, key)), interp.of(argument))
    shards = _of_unknown(interp, node)
    return frozenset({Sequence(node), *(v for v in shards if isinstance(v, Shard) and node.args)})


def _host_reduction(interp: Interpreter, name: str, node: ast.Call) -> Values:
    shards = shards_of(interp, node.args)
    if not shards:
        return UNKNOWN
    if name == "round":
        return frozenset(s if s.host else tensors.other(s, node) for s in shards)
    if name == "sum" and all(s.kind in {"mean", "sum"} for s in shards):
        return frozenset(shards)
    return frozenset(tensors.other(s, node) for s in shards)


# -- methods of values we have no definition of --------------------------------------------------------------


def _call_member(interp: Interpreter, function: Member, node: ast.Call) -> Values:
    owner, name = function.receiver, function.name
    if name in {"format", "join"} and isinstance(owner, Unknown):
        return UNKNOWN
    if isinstance(owner, Shard):
        return _call_tensor_method(interp, owner, name, node)
    if interp.is_module(owner) or isinstance(owner, External | Instance):
        found = _call_object_method(interp, owner, name, node)
        if found is not None:
            return found
    if isinstance(owner, Sequence):
        return _call_container_method(interp, owner, name, node)
    return _of_unknown(interp, node)


def _call_tensor_method(interp: Interpreter, owner: Shard, name: str, node: ast.Call) -> Values:
    if any(not interp.of(a) for a in arguments_of(node)):
        return NOTHING
    if owner.kind == "batch" and name in {"items", "values", "keys"}:
        if name == "keys":
            return UNKNOWN
        pair = Sequence(node)
        interp.merge(interp.heap.cell((node, 0)), UNKNOWN)
        interp.merge(interp.heap.cell((node, 1)), {Shard("rows", owner.loader)})
        if name == "values":
            return frozenset({owner})
        interp.merge(interp.heap.cell((node.func, "*")), {pair})
        return frozenset({Sequence(node.func), owner})
    if owner.kind == "batch" and name in {"pop", "get", "__getitem__"}:
        return frozenset({Shard("rows", owner.loader)})
    others = [s for s in shards_of(interp, arguments_of(node)) if s.kind not in {"count", "shape"}]
    if name in api.SHAPE_AS:
        others = []
    return _apply(interp, name, node, [owner, *others], list(node.args), keywords_of(node))


def _call_object_method(interp: Interpreter, owner: Value, name: str, node: ast.Call) -> Values | None:
    if name in {"parameters", "named_parameters"}:
        return frozenset({Parameters(owner)})
    if name in SAME_OBJECT:
        return frozenset({owner})
    if interp.is_module(owner):
        if name in {"forward", "__call__"}:
            return _call_module(interp, node)
        if name in {"buffers", "state_dict", "load_state_dict", "keys"}:
            return UNKNOWN
        if name in {"modules", "children", "values", "named_modules", "named_children", "items"}:
            return _submodules(
                interp, owner, node, named=name in {"named_modules", "named_children", "items"}
            )
        return _of_unknown(interp, node)
    if isinstance(owner, External) and api.is_optimizer_class(owner.path):
        closures = [v.node for a in node.args for v in interp.of(a) if isinstance(v, Function)]
        if name == "step" and closures:
            return frozenset(v for closure in closures for v in interp.returns[closure])
        return UNKNOWN
    if name == "parse_args":
        return frozenset({External("argparse.Namespace", node)})
    return None


def _submodules(interp: Interpreter, owner: Value, node: ast.Call, named: bool) -> Values:
    """The parts of a module, one by one, or in pairs with their names."""
    assert isinstance(owner, External | Instance)  # nothing else is a module
    part = External(api.SUBMODULE, owner.site)
    if named:
        interp.merge(interp.heap.cell((node, 0)), UNKNOWN)
        interp.merge(interp.heap.cell((node, 1)), {part})
    interp.merge(interp.heap.cell((node.func, "*")), {Sequence(node) if named else part})
    return frozenset({Sequence(node.func)})


def _call_container_method(interp: Interpreter, owner: Sequence, name: str, node: ast.Call) -> Values:
    if name in {"append", "add", "insert", "appendleft"} and node.args:
        interp.merge(
            interp.heap.cell((owner.site, "*")), interp.kept(interp.of(node.args[-1]), owner.site, node)
        )
        return UNKNOWN
    if name == "extend" and node.args:
        elements = frozenset(e for v in interp.of(node.args[0]) for e in interp.element(v))
        interp.merge(interp.heap.cell((owner.site, "*")), interp.kept(elements, owner.site, node))
        return UNKNOWN
    if name in {"values", "pop", "get", "copy", "setdefault"}:
        return frozenset({owner}) if name in {"values", "copy"} else interp.element(owner) or NOTHING
    if name == "items":
        interp.merge(interp.heap.cell((node, 0)), UNKNOWN)
        interp.merge(interp.heap.cell((node, 1)), interp.element(owner))
        interp.merge(interp.heap.cell((node.func, "*")), {Sequence(node)})
        return frozenset({Sequence(node.func)})
    return UNKNOWN
