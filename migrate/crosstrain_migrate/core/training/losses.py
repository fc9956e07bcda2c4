"""What the code says of a loss: whether it is a sum or a mean over rows, and of which variables it is made."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, is_method
from crosstrain_migrate.core.reading.keys import tabled
from crosstrain_migrate.core.reading.roles import Backward, Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import defaults_by_name, last_name, words, written
from crosstrain_migrate.syntax.walks import texts_in, walk

_DEPTH = 4
_FAR = 6  # how far a sum is followed
# What is computed of each element by itself.
_ELEMENTWISE = words(
    "log log1p log2 exp expm1 pow square sqrt abs sigmoid tanh relu softplus logsigmoid clamp clamp_min float double"
    " add sub mul neg"
)


def sums_over_rows(script: Script, roles: Roles) -> bool:
    """Whether the code shows that the loss is a sum over rows: then gradients are added, not averaged."""
    terms = [_terms(script, frame, loss, 0) for _, frame, loss in _all_losses(script, roles)]
    # Beside a loss it may be a penalty on weights.
    return SUM in terms or (bool(terms) and min(terms) >= OWN_SUM)


def sum_and_more(script: Script, roles: Roles) -> ast.AST | None:
    """The first backward of a loss of which one term is a loss function's sum, and none a mean: a mean it cannot be."""
    losses = _all_losses(script, roles)
    return next(
        (call for call, frame, loss in losses if _any_term(script, frame, loss, 0) == {SUM, OTHER}), None
    )


def _any_term(script: Script, frame: Frame, node: ast.AST, depth: int) -> set[int]:
    """What the terms of a loss are that are added up, by any of its values."""
    if depth > _DEPTH:
        return {OTHER}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        sides = (node.left, node.right)
        return {kind for side in sides for kind in _any_term(script, frame, side, depth)}
    if _is_mean(script, frame, node, depth):
        return {MEAN}
    values: list[tuple[Frame, ast.expr]] = []
    if isinstance(node, ast.Call):
        values = _returned(script, frame, node)
    elif isinstance(node, ast.Name) and not _is_scaled(script, frame, node.id):
        values = [(frame, value) for value in script.values(frame, node.id)]
    if not values:
        return {OTHER if isinstance(node, ast.Name) else _terms(script, frame, node, depth)}
    kinds = [_any_term(script, home, value, depth + 1) for home, value in values]
    return set().union(*kinds) if all(SUM in one for one in kinds) else {OTHER}


def _is_scaled(script: Script, frame: Frame, name: str) -> bool:
    """`loss /= len(rows)`"""
    return any(
        isinstance(node, ast.AugAssign)
        and written(node.target) == name
        and not isinstance(node.op, ast.Add | ast.Sub)
        for node in script.within(frame)
    )


def unseen_loss(script: Script, roles: Roles) -> ast.AST | None:
    """The first backward whose loss the code does not show to be a mean over rows; None where all are."""
    losses = _all_losses(script, roles)
    return next((call for call, frame, loss in losses if not _is_mean(script, frame, loss, 0)), None)


def _all_losses(script: Script, roles: Roles) -> list[tuple[ast.Call, Frame, ast.expr]]:
    """Each backward with what it starts from, where that is made: a helper's parameter is what its callers give for it."""
    work = [(one.call, one.frame, trained_loss(script, one)) for one in roles.backwards]
    found: list[tuple[ast.Call, Frame, ast.expr]] = []
    seen: set[tuple[Frame, str]] = set()
    while work:
        call, frame, loss = work.pop(0)
        name, given = written(loss), list[tuple[ast.Call, Frame, ast.expr]]()
        if is_function_frame(frame) and name in script.parameters(frame) and not script.values(frame, name):
            reached = filter(script.is_reached, script.runs_of(frame))
            runs = [(script.frame(run), script.argument_for(run, frame, name)) for run in reached]
            given = [(call, above, argument) for above, argument in runs if argument is not None]
        if not given:
            found.append((call, frame, loss))
        elif (frame, name) not in seen:
            seen.add((frame, name))
            work += given
    return found


def _is_mean(script: Script, frame: Frame, node: ast.AST, depth: int) -> bool:
    """Whether every term of a loss is the mean of one of torch's loss functions."""
    if depth > _DEPTH:
        return False
    if isinstance(node, ast.BinOp):
        sides = [_is_mean(script, frame, side, depth) for side in (node.left, node.right)]
        return all(sides) if isinstance(node.op, ast.Add | ast.Sub) else any(sides)
    if isinstance(node, ast.Name | ast.Attribute):
        values = [v for v in script.values(frame, written(node)) if not isinstance(v, ast.Constant)]
        return bool(values) and all(_is_mean(script, frame, value, depth + 1) for value in values)
    if not isinstance(node, ast.Call):
        return False
    if is_method(node, "mean") or script.dotted(node.func) == "torch.mean":
        return True
    if script.dotted(node.func).startswith("torch.nn.functional."):
        return not any(keyword.arg in ("reduction", "size_average", "reduce") for keyword in node.keywords)
    made = script.values_anywhere(written(node.func))
    return bool(made) and all(_makes_mean(script, value) for value in made)


def _makes_mean(script: Script, value: ast.expr) -> bool:
    """Whether a value is one of torch's loss functions, as it is made: `nn.CrossEntropyLoss().cuda()` too."""
    value = _unmoved(value)
    if not isinstance(value, ast.Call) or not script.dotted(value.func).startswith("torch.nn."):
        return False
    return not any(keyword.arg in ("reduction", "size_average", "reduce") for keyword in value.keywords)


def _unmoved(value: ast.expr) -> ast.expr:
    """What is made, without the calls that put it on a device."""
    while is_method(value, "to", "cuda", "cpu"):
        value = value.func.value
    return value


def loss_of(call: ast.Call) -> ast.expr:
    """What a backward starts from; the function itself where that is a bound method in a variable."""
    if call.args and not is_method(call, "backward"):
        return call.args[0]
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func


def trained_loss(script: Script, one: Backward) -> ast.expr:
    """What a pass starts from, also by a variable, `go = loss.backward`, and without what scales it: `scaler.scale(loss)`,
    `with amp.scale_loss(loss, optimizer) as scaled:`."""
    loss = loss_of(one.call)
    if isinstance(loss, ast.Name):
        bound = script.values(one.frame, loss.id) if loss is one.call.func else []
        withs = (n for n in script.around(one.call) if isinstance(n, ast.With))
        named = (n for w in withs for n in w.items if n.optional_vars and written(n.optional_vars) == loss.id)
        made = [
            *(n.value for n in bound[:1] if isinstance(n, ast.Attribute)),
            *(n.context_expr for n in named),
        ]
        loss = next(iter(made), loss)
    is_scaled = isinstance(loss, ast.Call) and last_name(loss.func) in ("scale", "scale_loss")
    return loss.args[0] if is_scaled and isinstance(loss, ast.Call) and loss.args else loss


def losses_in(roles: Roles, frame: Frame) -> set[str]:
    """What a frame calls backward on, as it is written."""
    return {written(trained_loss(roles.script, one)) for one in roles.backwards if one.frame is frame}


def parts_of(script: Script, frame: Frame, loss: ast.expr, depth: int = 0) -> set[str]:
    """The variable of a loss, and those that it adds up and that are sums, or none, as it is."""
    if not isinstance(loss, ast.Name) or depth > _DEPTH:
        return set()
    found, work = {loss.id}, [*script.values(frame, loss.id), *_added(script, frame, loss.id)]
    is_sum = _terms(script, frame, loss, 0) > OTHER
    while work:
        node = work.pop()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            work += [node.left, node.right]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            named = [one for one in (node.left, node.right) if isinstance(one, ast.Name)]
            work += named if len(named) == 1 else []  # `(1 - share) * part`
        elif isinstance(node, ast.Name) and node.id not in found:
            is_alike = (_terms(script, frame, node, 0) > OTHER) == is_sum
            found |= parts_of(script, frame, node, depth + 1) if is_alike else set()
    return found


# Of what the terms of a loss are: a loss function's `reduction="sum"`, a sum of what is computed element by element, a plain
# `.sum()`, which alone may be one over anything, and all else.
SUM, OWN_SUM, PLAIN_SUM, OTHER, MEAN = 3, 2, 1, 0, -1


def _terms(script: Script, frame: Frame, node: ast.AST, depth: int) -> int:
    """SUM where every term of a loss is a sum, undivided, and one at least is asked of a loss function."""
    if depth > _FAR:
        return OTHER
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return _joined([_terms(script, frame, side, depth) for side in (node.left, node.right)])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return max(_terms(script, frame, side, depth) for side in (node.left, node.right))
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and ast.unparse(node.right) in ("2", "2.0")
    ):
        return _terms(script, frame, node.left, depth)  # half a sum; by any other number it may be a mean
    if isinstance(node, ast.UnaryOp):
        return _terms(script, frame, node.operand, depth)
    if isinstance(node, ast.Name | ast.Attribute):
        if _is_scaled(script, frame, written(node)):
            return OTHER
        values = [v for v in _made(script, frame, written(node)) if not isinstance(v, ast.Constant)]
        added_up = [v for v in values if is_method(v, "sum") and written(v.func.value) == written(node)]
        values = [*(added_up or values), *_added(script, frame, written(node))]  # `each = each.sum()`
        if any(isinstance(one, ast.BinOp) and written(node) in texts_in(one) for one in values):
            return OTHER  # `loss = loss + more`
        parts = script.unpacked(frame, written(node))
        terms = [_terms(script, frame, value, depth + 1) for value in values]
        return _joined([*terms, *(_terms_of_call(script, frame, call, depth + 1, n) for call, n in parts)])
    if not isinstance(node, ast.Call):
        return OTHER
    if _asks_for(script, node, "sum"):
        return SUM
    if last_name(node.func) == "sum":
        is_whole = not node.keywords and len(node.args) == (
            0 if is_method(node, "sum") and written(node.func) != "torch.sum" else 1
        )
        if not is_whole:
            return OTHER
        of = node.func.value if isinstance(node.func, ast.Attribute) and not node.args else node.args[0]
        own = OWN_SUM if _is_elementwise(script, frame, of, depth) else PLAIN_SUM
        return SUM if _has_rows(script, frame, node) else own
    return _terms_of_call(script, frame, node, depth)


def _added(script: Script, frame: Frame, name: str) -> list[ast.expr]:
    """What is added to a variable: `loss += self.nll(x[t])`."""
    nodes = [one for one in script.within(frame) if isinstance(one, ast.AugAssign)]
    return [one.value for one in nodes if written(one.target) == name]


def _is_elementwise(script: Script, frame: Frame, node: ast.expr, depth: int) -> bool:
    """Whether an expression is arithmetic on what a function is given, element by element: `x * torch.log(p)`."""
    if depth > _FAR:
        return False
    if isinstance(node, ast.Name):
        values = script.values(frame, node.id)
        is_own = any(node.id in texts_in(one) for one in values)
        return (
            bool(values)
            and not is_own
            and all(_is_elementwise(script, frame, one, depth + 1) for one in values)
        )
    inside = walk(node)
    bound = [one for one in inside if isinstance(one, ast.Name) and script.values(frame, one.id)]
    return (
        isinstance(node, ast.BinOp | ast.Call)
        and not any(isinstance(one, ast.MatMult) for one in inside)
        and all(last_name(one.func) in _ELEMENTWISE for one in inside if isinstance(one, ast.Call))
        and all(_is_elementwise(script, frame, one, depth + 1) for one in bound)
    )


def _has_rows(script: Script, frame: Frame, sum_: ast.Call) -> bool:
    """Whether what is added up has a loss function's value for each row."""
    of = sum_.func.value if isinstance(sum_.func, ast.Attribute) and not sum_.args else sum_.args[0]
    values = script.values(frame, written(of)) if isinstance(of, ast.Name | ast.Attribute) else [of]
    return bool(values) and all(
        isinstance(one, ast.Call) and _asks_for(script, one, "none") for one in values
    )


def _joined(terms: list[int]) -> int:
    return OTHER if not terms or OTHER in terms else max(terms)


def _terms_of_call(script: Script, frame: Frame, call: ast.Call, depth: int, part: int | None = None) -> int:
    """The same of a loss object made with `reduction="sum"`, and of a function, or a module of the project, that returns such
    a loss, alone or as a part of a tuple."""
    if depth > _FAR:
        return OTHER
    made = _makers(script, frame, call)
    if made and all(isinstance(v, ast.Call) and _asks_for(script, v, "sum") for v in made):
        return SUM
    terms = []
    for function, value in _returned(script, frame, call):
        if part is not None:
            value = value.elts[part] if isinstance(value, ast.Tuple) and part < len(value.elts) else call
        terms.append(OTHER if value is call else _terms(script, function, value, depth + 1))
    return _joined(terms)


def _makers(script: Script, frame: Frame, call: ast.Call) -> list[ast.expr]:
    """What makes the object that is called: `criterion = nn.MSELoss(reduction="sum")`."""
    text = written(call.func)
    made = _given(script, frame, text) or _bound_anew(script.values_anywhere(text), text)
    return [origin for value in made for origin in _origins(script, value)]


def _returned(script: Script, frame: Frame, call: ast.Call) -> list[tuple[Frame, ast.expr]]:
    """What a function, or a module of the project, returns, and where."""
    classes = [cls for value in _makers(script, frame, call) if (cls := script.class_made(value)) is not None]
    forwards = [m for cls in classes for m in script.methods(cls) if m.name == "forward"]
    functions = [f for one in tabled(script, call.func) for f in script.functions(script.last(one))]
    return [
        (function, node.value)
        for function in forwards or functions
        for node in script.within(function)
        if isinstance(node, ast.Return) and node.value is not None
    ]


def _origins(script: Script, value: ast.expr, depth: int = 0) -> list[ast.expr]:
    """Where a value comes from that is a parameter of its function, or an entry of a dictionary: `settings["loss"]`, as
    it is made: without what puts it on a device."""
    origins, value = list[ast.expr](), _unmoved(value)
    if isinstance(value, ast.Name):
        origins = _given(script, script.frame(value), value.id)
    elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        for one in script.table.each(ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in one.keys]
            origins += [
                entry for key, entry in zip(keys, one.values, strict=True) if key == value.slice.value
            ]
    if not origins or depth > _DEPTH:
        return [value]
    return [found for one in origins for found in _origins(script, one, depth + 1)]


def _given(script: Script, frame: Frame, name: str) -> list[ast.expr]:
    """What the callers of a function give for a parameter, or what they have bound that to."""
    if not is_function_frame(frame) or name not in script.parameters(frame):
        return []
    found: list[ast.expr] = []
    for call in script.runs_of(frame):
        argument = script.argument_for(call, frame, name)
        if isinstance(argument, ast.Name):
            found += _made(script, script.frame(call), argument.id)
        elif argument is not None:
            found.append(argument)
    return found


def _made(script: Script, frame: Frame, name: str) -> list[ast.expr]:
    """What a variable is bound to, other than itself on a device: `criterion = criterion.cuda()`."""
    return _bound_anew(script.values(frame, name), name)


def _bound_anew(values: list[ast.expr], name: str) -> list[ast.expr]:
    return [one for one in values if written(_unmoved(one)) != name]


def _asks_for(script: Script, call: ast.Call, reduction: str) -> bool:
    for keyword in call.keywords:
        words = _words(script, keyword.value) if keyword.arg in ("reduction", "size_average") else []
        if keyword.arg == "reduction" and words and all(one == reduction for one in words):
            return True
        if keyword.arg == "size_average" and words and not any(words) and reduction == "sum":
            return not any(k.arg == "reduce" for k in call.keywords)
    return False


def _words(script: Script, node: ast.expr, depth: int = 0) -> list[object]:
    """The constants that an expression may be, also a parameter by its function's calls and its default."""
    if isinstance(node, ast.Constant):
        return [node.value]
    frame = script.frame(node)
    if not isinstance(node, ast.Name) or not is_function_frame(frame) or depth > _DEPTH:
        return [node]
    if node.id not in script.parameters(frame) or script.values(frame, node.id):
        return [node]
    default = defaults_by_name(frame.args).get(node.id)
    given = [script.argument_for(call, frame, node.id) or default for call in script.runs_of(frame)]
    return [word for one in given for word in ([node] if one is None else _words(script, one, depth + 1))]
