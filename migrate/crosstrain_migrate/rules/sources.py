"""Where a value comes from: the assignments, arguments and calls that a variable, parameter or attribute gets it by."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import lru_cache

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import External, Instance
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.scopes import Scope

from .arguments import option_name

_BINDING = (ast.Name, ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias, ast.Attribute)
_NAMESPACES = frozenset(
    {"args", "opt", "opts", "options", "FLAGS", "hparams"}
)  # usual names for parsed options


@lru_cache(maxsize=1)
def sources_of(facts: Facts) -> Sources:
    """The sources of a script, made once for all the rules that ask."""
    return Sources(facts)


class Sources:
    """Answers for one script. `options`: its command-line options, by the attribute that each fills."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._bindings: dict[tuple[Scope, str], list[ast.AST]] = defaultdict(list)
        self._attributes: dict[str, list[ast.Attribute]] = defaultdict(list)
        self._collect()
        adds = ((option_name(call), call) for call in facts.method_calls("add_argument"))
        self.options: dict[str, ast.Call] = {name: call for name, call in adds if name}

    def _collect(self) -> None:
        of_node = self.facts.table.of_node
        for node in self.facts.each(*_BINDING):
            match node:
                case ast.Name(ctx=ast.Load()):
                    pass
                case ast.Name():
                    if (scope := of_node[node].resolve(node.id)) is not None:
                        self._bindings[scope, node.id].append(node)
                case ast.Attribute(ctx=ast.Store()):
                    self._attributes[node.attr].append(node)
                case ast.arg():
                    self._bindings[of_node[node], node.arg].append(node)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self._bindings[of_node[node], node.name].append(node)
                case ast.alias():
                    self._bindings[of_node[node], node.asname or node.name.split(".")[0]].append(node)

    def definitions(self, node: ast.Name | ast.Attribute) -> list[ast.AST]:
        """Where a variable, parameter or attribute may have got its value."""
        if isinstance(node, ast.Attribute):
            return [a for a in self._attributes[node.attr] if self._same_owner(a.value, node.value)]
        scope = self.facts.table.of_node[node].resolve(node.id)
        reaching = self.facts.interp.reaching.get(node)
        if scope is None:
            return []
        return sorted(reaching, key=place_of) if reaching is not None else self._bindings[scope, node.id]

    def of(self, node: ast.Name | ast.Attribute) -> list[ast.expr]:
        """The expressions that a variable, parameter or attribute may have been assigned."""
        found: list[ast.expr] = []
        for definition in self.definitions(node):
            if isinstance(definition, ast.arg):
                found += self.facts.given(definition)
                continue
            statement = self.facts.table.statement_of(definition)
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                found.append(statement.value)
        return found

    def origins(self, node: ast.expr, depth: int = 5) -> list[ast.expr]:
        """What a name stands for in the end, through parameters and other names."""
        if not isinstance(node, ast.Name | ast.Attribute) or not depth:
            return [node]
        sources = self.of(node)
        return [o for s in sources for o in self.origins(s, depth - 1)] if sources else [node]

    def sites(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Call]:
        """The calls of a function; of a class's constructor, where its objects are made."""
        return self.facts.callers.get(function, [])

    def is_namespace(self, node: ast.expr) -> bool:
        """Whether it holds the command-line options."""
        if any(isinstance(v, External) and v.path == "argparse.Namespace" for v in self.facts.of(node)):
            return True
        return last_name(node) in _NAMESPACES and bool(self.options)

    def _same_owner(self, a: ast.expr, b: ast.expr) -> bool:
        if written(a) == written(b) or (self.is_namespace(a) and self.is_namespace(b)):
            return True
        mine = {v.cls for v in self.facts.of(a) if isinstance(v, Instance)}
        return bool(mine & {v.cls for v in self.facts.of(b) if isinstance(v, Instance)})


def sets_by_name(facts: Facts) -> bool:
    """Whether the script may set variables of the module by names that are made at run time."""
    return any(isinstance(c.func, ast.Name) and c.func.id in ("exec", "globals") for c in facts.calls)
