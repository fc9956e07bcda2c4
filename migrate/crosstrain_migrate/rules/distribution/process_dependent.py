"""Conditions that may differ between processes: they ask for the rank, a file system, a clock or the machine's name."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.sources import sources_of
from crosstrain_migrate.syntax.nodes import FunctionNode, last_name, written

from .launcher_settings import DIST, RANKS, SPAWNED_RANK, asked_variable
from .single_process import entries, returns_of, stored_under

EXITS = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "os._exit"})
RANK, FILES, CLOCK, MACHINE = "its own rank", "the file system", "the clock", "the machine's name"

_ASKS_FILES = frozenset(
    {
        *(f"os.path.{name}" for name in ("exists", "lexists", "isfile", "isdir", "getsize", "getmtime")),
        *("os.listdir", "os.scandir", "os.stat", "os.access", "glob.glob", "glob.iglob"),
    }
)
_METHODS_OF_PATHS = frozenset({"exists", "is_file", "is_dir", "iterdir", "glob", "rglob", "stat"})
_CLOCKS = frozenset({"time.time", "time.perf_counter", "time.monotonic", "time.process_time", "time.time_ns"})
_NOW = ("datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow")
_MACHINES = frozenset({"socket.gethostname", "socket.getfqdn", "platform.node", "os.uname", "os.getpid"})
_ASKS_RANK = frozenset({"get_rank", "get_node_local_rank", "get_global_rank"})
_OF_ACCELERATOR = frozenset(
    {"is_main_process", "is_local_main_process", "is_last_process", "process_index", "local_process_index"}
)
# Functions whose result still depends on what their argument depends on.
_PASSES_ON = frozenset(
    f"builtins.{name}"
    for name in ("len", "bool", "int", "float", "str", "max", "min", "any", "all", "abs", "sorted", "list")
)


class ProcessDependent:
    """Finds out which values of a script differ between processes, and why."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.sources = sources_of(facts)
        self._memo: dict[ast.expr, str | None] = {}

    def asks(self, node: ast.expr) -> str | None:
        """Why the value of an expression may differ between processes; None where nothing says that it does."""
        if node not in self._memo:
            self._memo[node] = None  # a name that is assigned from itself
            self._memo[node] = self._asks(node)
        return self._memo[node]

    def _asks(self, node: ast.expr) -> str | None:
        direct = self._itself(node)
        if direct is not None:
            return direct
        if isinstance(node, ast.Name | ast.Attribute):
            return self._first([s for s in self.sources.of(node) if s is not node])
        if isinstance(node, ast.Subscript):
            return self._entry(node) or self.asks(node.value)
        if isinstance(node, ast.Call):
            return self._call(node)
        parts = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
        passes = ast.BoolOp | ast.BinOp | ast.UnaryOp | ast.Compare | ast.IfExp | ast.NamedExpr
        return self._first(parts) if isinstance(node, passes) else None

    def _first(self, nodes: list[ast.expr]) -> str | None:
        return next((found for n in nodes if (found := self.asks(n)) is not None), None)

    # -- what asks itself ------------------------------------------------------------------------------------

    def _itself(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return RANK if node.id == SPAWNED_RANK or _is_mark(node.id) else None
        if (name := asked_variable(node)) is not None:
            return RANK if name in RANKS else None
        if isinstance(node, ast.Attribute) and node.attr in _OF_ACCELERATOR:
            return RANK if not self.sources.definitions(node) else None
        return self._library(node) if isinstance(node, ast.Call) else None

    def _library(self, call: ast.Call) -> str | None:
        paths = self.facts.paths(call.func)
        if any(p.startswith(DIST) and p.rsplit(".", 1)[-1] in _ASKS_RANK for p in paths):
            return RANK
        if paths & _ASKS_FILES or self._asks_path(call, paths):
            return FILES
        if paths & _CLOCKS or any(p.startswith(_NOW) for p in paths):
            return CLOCK
        return MACHINE if paths & _MACHINES else None

    def _asks_path(self, call: ast.Call, paths: set[str]) -> bool:
        """`path.exists()`, where the script has no method of that name."""
        known = all(p.startswith("pathlib.") for p in paths)
        return known and last_name(call.func) in _METHODS_OF_PATHS and not self.facts.targets(call)

    # -- what passes it on -----------------------------------------------------------------------------------

    def _call(self, call: ast.Call) -> str | None:
        if self.facts.paths(call.func) & _PASSES_ON:
            return self._first(call.args)
        found = (self._returned(function) for function in self.facts.targets(call))
        return next((what for what in found if what is not None), None)

    def _returned(self, function: FunctionNode) -> str | None:
        """Why the result of a function may differ: the values that it returns, and the tests around its `return`s."""
        if isinstance(function, ast.Lambda):
            return None
        returns = returns_of(self.facts, function)
        around = [a for r in returns for a in self.facts.table.ancestors(r) if isinstance(a, ast.If)]
        tests = [a.test for a in around if self.facts.enclosing_function(a) is function]
        return self._first([*(r.value for r in returns if r.value is not None), *tests])

    def _entry(self, node: ast.Subscript) -> str | None:
        """`options["rank"]`: what the script stores under that key."""
        if not isinstance(node.slice, ast.Constant):
            return None
        owner, key = written(node.value), node.slice.value
        stored = [value for holder, value in stored_under(self.facts, key) if written(holder) == owner]
        origins = self.sources.of(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else []
        return self._first([*stored, *(value for origin in origins for value in entries(origin, key))])


def _is_mark(name: str) -> bool:
    return any(name == f"__crosstrain_{asked}__" for asked in _OF_ACCELERATOR)
