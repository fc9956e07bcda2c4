"""How often the patterns of public training scripts occur in the corpus: `python -m tests.golden.patterns`.

The figures beside are those of 43 public scripts (November 2026). A case counts once for a pattern;
what a pattern is, is told from the syntax tree alone. `python -m tests.golden.patterns docs/golden.md` writes the table between
`<!-- patterns -->` and `<!-- /patterns -->`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

GOLDEN = Path(__file__).parent.parent.parent / "golden"
START, END = "<!-- patterns -->", "<!-- /patterns -->"
# What a module has without its author's doing.
OF_EVERY_MODULE = frozenset(
    [
        "train",
        "eval",
        "parameters",
        "named_parameters",
        "state_dict",
        "load_state_dict",
        "to",
        "cuda",
        "cpu",
        "zero_grad",
        "modules",
        "children",
        "named_modules",
        "apply",
        "forward",
        "module",
        "double",
        "float",
        "half",
        "requires_grad_",
        "buffers",
        "named_buffers",
        "training",
    ]
)


@dataclass(frozen=True)
class Script:
    """One case: all of its files."""

    name: str
    texts: tuple[str, ...]

    @cached_property
    def trees(self) -> list[ast.Module]:
        return [ast.parse(text) for text in self.texts]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return [node for tree in self.trees for node in ast.walk(tree)]

    def calls(self, *names: str) -> list[ast.Call]:
        """Calls of a function or method with one of these names, however it is reached."""
        return [n for n in self.nodes if isinstance(n, ast.Call) and _name(n.func) in names]

    def functions(self) -> list[ast.FunctionDef]:
        return [n for n in self.nodes if isinstance(n, ast.FunctionDef)]

    def mentions(self, *words: str) -> bool:
        return any(_name(n) in words for n in self.nodes)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.alias):
        return node.name.rsplit(".", 1)[-1]
    return node.id if isinstance(node, ast.Name) else ""


def _holds(node: ast.AST, method: str) -> bool:
    return any(isinstance(n, ast.Call) and _name(n.func) == method for n in ast.walk(node))


def _to_device(script: Script) -> bool:
    given = [call.args[0] for call in script.calls("to") if call.args]
    return any("device" in ast.unparse(one) or "cuda" in ast.unparse(one) for one in given)


def _item_sums(script: Script) -> bool:
    """`correct += (...).item()` where nothing is trained."""
    suites = [f for f in script.functions() if not _holds(f, "backward")]
    suites += [n for n in script.nodes if isinstance(n, ast.With) and "no_grad" in ast.unparse(n.items[0])]  # type: ignore[misc]
    return any(
        isinstance(n, ast.AugAssign) and _holds(n.value, "item") for suite in suites for n in ast.walk(suite)
    )


def _saves(kind: Callable[[ast.expr], bool]) -> Callable[[Script], bool]:
    return lambda script: any(call.args and kind(call.args[0]) for call in script.calls("save"))


def _module_device(script: Script) -> bool:
    top = [s for tree in script.trees for s in tree.body if isinstance(s, ast.Assign)]
    return any("device" in ast.unparse(s.targets[0]).lower() for s in top)


def _own_attribute(script: Script) -> bool:
    """`model.encode(x)`, `net.fc.weight`: an attribute that the script's own class gave to the model."""
    classes = {n.name for n in script.nodes if isinstance(n, ast.ClassDef) and "Module" in ast.unparse(n)}
    models = {
        _name(n.targets[0])
        for n in script.nodes
        if isinstance(n, ast.Assign) and any(isinstance(m, ast.Call) and _name(m.func) in classes for m in ast.walk(n.value))
    }  # fmt: skip
    return any(
        isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id in models and n.attr not in OF_EVERY_MODULE
        for n in script.nodes
    )  # fmt: skip


def _meter(script: Script) -> bool:
    classes = [n for n in script.nodes if isinstance(n, ast.ClassDef)]
    return any(
        "meter" in c.name.lower()
        or (
            {"update"} <= {f.name for f in c.body if isinstance(f, ast.FunctionDef)}
            and ".avg" in ast.unparse(c)
        )
        for c in classes
    )


def _guarded_cuda(script: Script) -> bool:
    tests = [n for n in script.nodes if isinstance(n, ast.If)]
    return any(isinstance(s, ast.Assign | ast.Expr) and _holds(s, "cuda") for n in tests for s in n.body)


def _rate_by_hand(script: Script) -> bool:
    targets = [t for n in script.nodes if isinstance(n, ast.Assign) for t in n.targets]
    targets += [n.target for n in script.nodes if isinstance(n, ast.AugAssign)]
    return any(
        isinstance(t, ast.Subscript) and isinstance(t.slice, ast.Constant) and t.slice.value == "lr"
        for t in targets
    )


def _accumulates(script: Script) -> bool:
    return any(
        isinstance(n, ast.If) and any(isinstance(m, ast.Mod) for m in ast.walk(n.test)) and _holds(n, "step")
        for n in script.nodes
    )


def _several_optimizers(script: Script) -> bool:
    made = {"SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta"}
    named = [n for n in script.nodes if isinstance(n, ast.Assign) and any(
        isinstance(m, ast.Call) and _name(m.func) in made for m in ast.walk(n.value)
    )]  # fmt: skip
    return len({ast.unparse(n.targets[0]) for n in named}) > 1


def _resumes(script: Script) -> bool:
    texts = [n.value for n in script.nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return any(re.fullmatch(r"-*(resume|checkpoint|load|start[-_]epoch)[-_\w]*", text) for text in texts)


def _aliases(script: Script) -> bool:
    return any(isinstance(n, ast.Assign) and "FloatTensor" in ast.unparse(n.value) for n in script.nodes)


def _one_expression(script: Script) -> bool:
    """`DataLoader(TensorDataset(...), ...)`."""
    return any(call.args and isinstance(call.args[0], ast.Call) for call in script.calls("DataLoader"))


def _next_iter(script: Script) -> bool:
    return any(
        isinstance(call.func, ast.Name) and call.args and "iter(" in ast.unparse(call.args[0])
        for call in script.calls("next")
    )


def _indent(unit: str) -> Callable[[Script], bool]:
    """What the statements in a top-level suite begin with."""

    def is_used(script: Script) -> bool:
        for text, tree in zip(script.texts, script.trees, strict=True):
            lines = text.split("\n")
            for statement in tree.body:
                inner = getattr(statement, "body", None)
                if isinstance(inner, list) and lines[inner[0].lineno - 1][: inner[0].col_offset] == unit:
                    return True
        return False

    return is_used


PATTERNS: dict[str, tuple[int | None, Callable[[Script], bool]]] = {
    "`torch.cuda.is_available()` gate": (26, lambda s: bool(s.calls("is_available"))),
    "training loop inside a function": (26, lambda s: any(_holds(f, "backward") for f in s.functions())),
    "`.to(device)`": (22, _to_device),
    "`.cuda()`": (19, lambda s: bool(s.calls("cuda"))),
    "`.item()` sums in evaluation": (18, _item_sums),
    "`torch.load`": (18, lambda s: any("torch" in ast.unparse(c.func) for c in s.calls("load"))),
    "`save(state_dict)`": (15, _saves(lambda a: _holds(a, "state_dict") and not isinstance(a, ast.Dict))),
    "resume option": (14, _resumes),
    "module-level `device`": (14, _module_device),
    "torch scheduler": (13, lambda s: any("lr_scheduler" in ast.unparse(n) for t in s.trees for n in t.body)),
    "a model's own attribute or method": (12, _own_attribute),
    "hand-written DDP": (11, lambda s: s.mentions("DistributedDataParallel")),
    "`save({...})`": (11, _saves(lambda a: isinstance(a, ast.Dict))),
    "clipping": (10, lambda s: any("clip_grad" in _name(n) for n in s.nodes)),
    "AverageMeter": (10, _meter),
    "`if flag: x = x.cuda()`": (9, _guarded_cuda),
    "learning rate set by hand": (9, _rate_by_hand),
    "`device` as a parameter": (
        8,
        lambda s: any(a.arg == "device" for f in s.functions() for a in f.args.args),
    ),
    "DistributedSampler": (8, lambda s: s.mentions("DistributedSampler")),
    "no DataLoader at all": (7, lambda s: not s.mentions("DataLoader", "StatefulDataLoader")),
    "AMP": (6, lambda s: s.mentions("autocast", "GradScaler", "amp")),
    "accumulation": (6, _accumulates),
    "SyncBatchNorm": (6, lambda s: s.mentions("SyncBatchNorm")),
    "DataParallel": (5, lambda s: s.mentions("DataParallel")),
    "`mp.spawn` or a launcher of its own": (4, lambda s: s.mentions("spawn", "Process", "Popen")),
    "several optimizers": (4, _several_optimizers),
    "tensor-type aliases": (None, _aliases),
    "`Variable`": (None, lambda s: s.mentions("Variable")),
    "tabs": (None, _indent("\t")),
    "two-space indents": (None, _indent("  ")),
    "star imports": (None, lambda s: any(isinstance(n, ast.alias) and n.name == "*" for n in s.nodes)),
    "`next(iter(loader))`": (None, _next_iter),
    "data set and loader in one expression": (None, _one_expression),
    "configuration by `exec`": (None, lambda s: bool(s.calls("exec"))),
    "`Namespace`, dataclass or YAML configuration": (
        None,
        lambda s: s.mentions("dataclass", "safe_load", "OmegaConf", "hydra"),
    ),
    "Windows line ends": (None, lambda s: any("\r\n" in text for text in s.texts)),
}


def scripts() -> Iterator[Script]:
    for case in sorted(path.parent for path in GOLDEN.glob("*/run.toml")):
        single = case / "before.py"
        files = [single] if single.exists() else sorted((case / "before").rglob("*.py"))
        yield Script(case.name, tuple(file.read_bytes().decode() for file in files))


def counts() -> dict[str, list[str]]:
    """Pattern -> the cases that have it."""
    corpus = list(scripts())
    return {name: [s.name for s in corpus if has(s)] for name, (_, has) in PATTERNS.items()}


def table() -> str:
    found = counts()
    total = sum(1 for _ in scripts())
    lines = [f"| pattern | of 43 public scripts | of {total} cases |", "| --- | --- | --- |"]
    for name, (public, _) in PATTERNS.items():
        lines.append(f"| {name} | {'' if public is None else public} | {len(found[name])} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    if not arguments:
        print(table(), end="")
        return 0
    file = Path(arguments[0])
    before, start, rest = file.read_text("utf-8").partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        print(f"{file}: holds no {START} ... {END}", file=sys.stderr)
        return 1
    file.write_text(f"{before}{START}\n{table()}{END}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
