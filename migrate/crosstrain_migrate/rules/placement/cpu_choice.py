"""For CT102: what `cpu=` must be so that the script's own switch (`--no-cuda`, `--device cpu`) keeps working."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.torch_api import names_a_device
from crosstrain_migrate.facts.values import External
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.rules.sources import sets_by_name
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.walks import walk

from .construction import only_definition
from .devices import BY_GPU_IDS, SELECTS_A_GPU, Devices, default_statement, is_cpu, named_by

RULE = "CT105"
AVAILABLE = (".is_available", "cuda.device_count")


def cpu_option(context: Context, definition: ast.Assign) -> str | None:
    """The `cpu=` that obeys the choice of `definition`; None where it does not depend on an option."""
    said = len(context.findings)
    chosen = _decided_before(context, definition.value)
    if len(chosen) == 1:
        definition = ast.Assign(definition.targets, chosen[0])
    option = _of_value(context, definition)
    if option is not None and _is_known_at_home(context, option):
        return option
    if option is not None or _reads_options(context, definition.value):
        del context.findings[said:]  # what would be obeyed
        _report_lost(context, definition.value)
    return None


def of_overrides(context: Context, definitions: list[ast.Assign]) -> str | None:
    """The `cpu=` for an `if` that chooses a GPU, among other things, where the device is the CPU otherwise."""
    for definition in definitions:
        around, value = context.facts.table.parents[definition], definition.value
        if not isinstance(around, ast.If) or definition not in around.body or is_cpu(value):
            continue
        if _is_cpu_otherwise(context, around, definition.targets[0]):
            choice = ast.IfExp(around.test, named_by(value), ast.Constant("cpu"))
            return cpu_option(context, ast.Assign(definition.targets, choice))
    return None


def _is_cpu_otherwise(context: Context, around: ast.If, target: ast.expr) -> bool:
    suite = suite_of(context.facts, around)
    others = around.orelse or suite[: suite.index(around)]
    return any(
        isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == ast.unparse(target) and is_cpu(s.value)
        for s in others
    )


def check_other(context: Context, definition: ast.Assign) -> None:
    """Notes a further choice of a device whose switch is not the one that `cpu=` obeys already."""
    if _decided_before(context, definition.value):
        return  # by a definition that is checked itself
    said = len(context.findings)
    option = _of_value(context, definition)
    del context.findings[said:]  # the first choice has reported them
    if option is not None and option != context.options.get("cpu"):
        _report_lost(context, definition.value)


def _decided_before(context: Context, value: ast.expr) -> list[ast.expr]:
    return Devices(context.facts).decided_before(value) if isinstance(value, ast.Attribute) else []


def _of_value(context: Context, definition: ast.Assign) -> str | None:
    value = definition.value
    facts = context.facts
    if default_statement(facts, definition) is not None and isinstance(definition.targets[0], ast.Attribute):
        return f'{ast.unparse(definition.targets[0])} == "cpu"'
    _report_numbers_and_names(context, value)
    if not names_a_device(value):
        value = named_by(value)
    if isinstance(value, ast.IfExp):
        return _from_choice(context, value)
    if isinstance(value, ast.Attribute | ast.Name) and _is_setting(context, value):
        return _from_option(context, value)
    return None


def _is_setting(context: Context, value: ast.Attribute | ast.Name) -> bool:
    """Whether it is a variable that names a device, such as `args.device`, and no device object."""
    plain = all(isinstance(n, ast.Name | ast.Attribute | ast.expr_context) for n in walk(value))
    return plain and not any(isinstance(v, External) for v in context.facts.of(value))


def _report_numbers_and_names(context: Context, value: ast.expr) -> None:
    if any(names_ordinal(n) for n in walk(value)):
        context.note(RULE, value, SELECTS_A_GPU, BY_GPU_IDS)
    if context.home.scope.parent is None and sets_by_name(context.facts):
        context.note(
            RULE,
            value,
            "`exec` or `globals()` in this script may set this choice of a device by its name, which has no effect any more",
            "choose the device where the script is launched: `crosstrain launch --cpu`",
        )


def _from_option(context: Context, value: ast.Attribute | ast.Name) -> str:
    """`torch.device(args.device)`"""
    text = _text(context, value)
    context.note(
        RULE,
        value,
        f"`{text}` chooses the device: `cpu` is still obeyed, a GPU number in it is not (the launcher hands out devices)",
        BY_GPU_IDS,
    )
    return f'{text} == "cpu"' if isinstance(value, ast.Attribute) else f'str({text}) == "cpu"'


def names_ordinal(node: ast.AST) -> bool:
    """Part of a device with a number: `"cuda:1"`, `f"cuda:{gpu}"`, `"cuda:{}".format(gpu)`, `device("cuda", 1)`."""
    if isinstance(node, ast.Constant):
        text = node.value if isinstance(node.value, str) else ""
        return text.startswith("cuda:") and text != "cuda:0"
    if isinstance(node, ast.Call) and len(node.args) == 2:
        kind, number = node.args
        first = isinstance(number, ast.Constant) and number.value == 0
        return isinstance(kind, ast.Constant) and kind.value == "cuda" and not first
    return False


# -- `x if test else y` --------------------------------------------------------------------------------------


def _from_choice(context: Context, value: ast.IfExp) -> str | None:
    test, body = value.test, value.body
    negated = _operand_of_not(test)
    if is_cpu(body) and negated is not None:
        test, body = negated, value.orelse  # "cpu" if not test else "cuda"
    if is_cpu(body):
        return _unless(context, test)
    wanted = _wanted(context, test)
    if wanted is None:
        return f"not ({_text(context, test)})"
    if not wanted and isinstance(body, ast.Attribute) and _is_setting(context, body):
        return _from_option(context, body)  # args.device if torch.cuda.is_available() else "cpu"
    return _negated(context, wanted)


def _negated(context: Context, wanted: list[ast.expr]) -> str | None:
    if not wanted:
        return None
    if len(wanted) > 1:
        return f"not ({' and '.join(_text(context, t) for t in wanted)})"
    negated = _operand_of_not(wanted[0])
    return f"not {_text(context, wanted[0])}" if negated is None else _text(context, negated)


def _operand_of_not(test: ast.expr) -> ast.expr | None:
    return test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None


def _unless(context: Context, test: ast.expr) -> str | None:
    """`"cpu" if args.cpu or not torch.cuda.is_available() else "cuda"`"""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    wanted = [p for p in parts if not asks_availability(_operand_of_not(p))]
    return " or ".join(_text(context, p) for p in wanted) or None


def _text(context: Context, node: ast.expr) -> str:
    return context.source(node) if hasattr(node, "lineno") else ast.unparse(node)


def asks_availability(node: ast.AST | None) -> bool:
    """`torch.cuda.is_available()`, `torch.cuda.device_count() > 0`"""
    if isinstance(node, ast.Compare):
        node = node.left
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(AVAILABLE)


def _wanted(context: Context, test: ast.expr) -> list[ast.expr] | None:
    """The conditions that `test` joins by `and`, but for questions about the machine; None where it joins them otherwise."""
    terms = _terms(context, test)
    return None if terms is None else [t for t in terms if not asks_availability(t)]


def _terms(context: Context, test: ast.expr) -> list[ast.expr] | None:
    """The conditions that `test` joins by `and`, variables replaced by what they were assigned once."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        parts = [_terms(context, part) for part in test.values]
        return None if None in parts else [term for part in parts for term in part or ()]
    if isinstance(test, ast.Name):
        definition = only_definition(context.facts, test)
        return _terms(context, definition) if definition is not None and _asks(definition) else [test]
    if isinstance(test, ast.Attribute):
        return _of_attribute(context, test)
    return None if _asks(test) and not asks_availability(test) else [test]


def _of_attribute(context: Context, test: ast.Attribute) -> list[ast.expr] | None:
    """`args.cuda`, by what it was assigned once: `args.cuda = not args.no_cuda and torch.cuda.is_available()`."""
    facts = context.facts
    made = [
        (target, node.value)
        for node in facts.each(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and target.attr == test.attr
        and facts.of(target.value) & facts.of(test.value)
    ]
    if len(made) != 1 or not _asks(made[0][1]):
        return [test]
    target, definition = made[0]
    if any(isinstance(n, ast.Attribute) and ast.unparse(n) == ast.unparse(target) for n in walk(definition)):
        return [test]  # args.cuda = args.cuda and torch.cuda.is_available()
    terms = _terms(context, definition)
    return None if terms is None else [_seen_from(test, target, term) for term in terms]


def _seen_from(test: ast.Attribute, target: ast.Attribute, term: ast.expr) -> ast.expr:
    """`args.no_cuda`, where what was `args` there is `self.args` here."""
    if isinstance(term, ast.UnaryOp):
        return ast.UnaryOp(term.op, _seen_from(test, target, term.operand))
    if isinstance(term, ast.Attribute) and ast.unparse(term.value) == ast.unparse(target.value):
        return ast.Attribute(test.value, term.attr, ast.Load())
    return term


def _asks(test: ast.expr) -> bool:
    return any(map(asks_availability, walk(test)))


# -- `if test:` around moves ---------------------------------------------------------------------------------


def of_guards(context: Context, tests: list[ast.expr]) -> str | None:
    """The `cpu=` for an `if test:` around what moved the models, where nothing else chose a device."""
    found = {_of_guard(context, test): test for test in sorted(tests, key=place_of, reverse=True)}
    if len(found) != 1:
        return None
    option, test = next(iter(found.items()))
    if option is None or _is_known_at_home(context, option):
        return option
    _report_lost(context, test)
    return None


def _of_guard(context: Context, test: ast.expr) -> str | None:
    """Only flags are obeyed: a comparison may choose among several GPUs."""
    wanted = _wanted(context, test) or []
    flags = [_operand_of_not(term) or term for term in wanted]
    return _negated(context, wanted) if all(isinstance(f, ast.Name | ast.Attribute) for f in flags) else None


# -- what cannot be obeyed -----------------------------------------------------------------------------------


def _is_known_at_home(context: Context, option: str) -> bool:
    """Whether every variable of the option exists where the Accelerator is made."""
    scope, statement = context.home.scope, context.home.statement
    assert statement is not None
    for name in (n for n in walk(ast.parse(option)) if isinstance(n, ast.Name)):
        bound = scope.resolve(name.id)
        if bound is None and name.id != "str":
            return False
        if bound is scope and not _is_bound_above(context, name.id, statement):
            return False
    return True


def _is_bound_above(context: Context, name: str, statement: ast.stmt) -> bool:
    table, scope = context.facts.table, context.home.scope
    return any(
        name in _bound_by(node) and table.of_node[node] is scope and node.lineno < statement.lineno
        for node in walk(scope.node)
        if isinstance(node, ast.stmt | ast.Name | ast.arg)
    )


def _bound_by(node: ast.stmt | ast.Name | ast.arg) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Store) else set()
    if isinstance(node, ast.arg):
        return {node.arg}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).split(".")[0] for a in node.names}
    return {getattr(node, "name", "")}


def _reads_options(context: Context, value: ast.expr) -> bool:
    """Whether a choice of a device depends on a variable, other than for the number of a GPU."""
    if names_a_device(value) or (isinstance(value, ast.Call) and asks_availability(value)):
        return False
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("device"):
        return bool(value.args) and _reads_options(context, value.args[0])
    if isinstance(value, ast.Name):
        definition = only_definition(context.facts, value)
        if definition is not None and _asks(definition):
            return _reads_options(context, definition)
        paths = context.facts.paths(value)
        return not any(path.startswith(("torch", "builtins.")) for path in paths)
    return any(
        _reads_options(context, part) for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr)
    )


def _report_lost(context: Context, place: ast.expr) -> None:
    context.note(
        RULE,
        place,
        f"`{ast.unparse(place)}` chose the device by a switch that cannot reach the Accelerator, so it has no effect any more",
        "use `crosstrain launch --cpu` (or --gpu-ids) in its place",
    )
