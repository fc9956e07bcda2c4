"""What the modules of this room have planned: edits in groups, and what is said about what stays."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from crosstrain_migrate.assumptions import how_checked
from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import line_of, place_of
from crosstrain_migrate.syntax.program import path_of

from .reading.imported import imported
from .reading.script import Script

CORE = e.CORE
OURS = "crosstrain"  # the runtime that a conversion is for by default
IMPORT = "what the conversion uses is imported"
WRITTEN = ("code", "template", "test", "context", "arms")  # the fields of an edit that hold new code
_NAMES = ("Accelerator", "PartialState")
_REDUCED = re.compile(r"([\w., ]+) = .*\.(reduce|merge)\((?:.*\"(sum|mean)\")?")
_TORCH = re.compile(r"(?<![\w.])torch\.")


def finding_at(
    node: ast.AST, rule: str, reason: str, remedy: str, severity: Severity, kind: str = ""
) -> Finding:
    """What is said about a place."""
    column = getattr(node, "col_offset", 0) + 1
    return Finding(rule, line_of(node) or 1, column, reason, remedy, severity, kind)


def told_by(edit: e.Edit) -> str:
    """The new code that an edit holds."""
    return " ".join(str(getattr(edit, name)) for name in WRITTEN if hasattr(edit, name))


@dataclass
class Plan:
    """Edits, each of a group: those of `CORE` are made together, every other group is made or left by itself."""

    script: Script
    runtime: str = OURS
    edits: list[e.Edit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    begins_early: bool = False  # one of them is above the script's choice of its device
    # What is prepared: its name, and where it is used.
    models: list[tuple[str, ast.AST]] = field(default_factory=list)
    # By frame and variable, the statement above which it is prepared.
    prepared: dict[tuple[ast.AST, str], ast.stmt] = field(default_factory=dict)
    _notes: dict[tuple[str, str, str], list[ast.AST]] = field(default_factory=lambda: defaultdict(list))
    _wrapped: set[ast.AST] = field(default_factory=set)
    _inserted: set[tuple[ast.AST, str]] = field(default_factory=set)
    _imported: set[tuple[ast.AST, str, str]] = field(default_factory=set)
    _bound: dict[tuple[ast.Module, str], bool] = field(default_factory=dict)

    # -- edits -------------------------------------------------------------------------------------------------

    def replace(
        self, node: ast.expr, rule: str, reason: str, template: str, group: str = CORE, /, **holes: ast.expr
    ) -> bool:
        """Plans to replace an expression; False where something else replaces it already."""
        if node in self._wrapped:
            return False
        self._wrapped.add(node)
        self.edits.append(e.Replace(node, rule, reason, transaction=group, template=template, holes=holes))
        return True

    def is_replaced(self, node: ast.AST) -> bool:
        return node in self._wrapped

    def take_back(self, node: ast.AST) -> None:
        """Forgets that an expression is to be replaced."""
        self._wrapped.discard(node)
        self.edits = [one for one in self.edits if not (isinstance(one, e.Replace) and one.node is node)]

    def take_back_to(self, edits: set[e.Edit], group: str) -> None:
        """Forgets the edits of a group that were planned since there were those of `edits`."""
        new = {one for one in self.edits if one.transaction == group and one not in edits}
        new -= {one for one in new if isinstance(one, e.AddImport)}  # what nobody uses is dropped in the end
        self.edits = [one for one in self.edits if one not in new]
        self._wrapped -= {one.node for one in new if isinstance(one, e.Replace)}
        inserted = (one for one in new if isinstance(one, e.InsertBefore | e.InsertAfter))
        self._inserted -= {(one.node, text) for one in inserted for text in (one.code, f"behind: {one.code}")}

    def before(self, statement: ast.stmt, rule: str, reason: str, code: str, group: str = CORE) -> None:
        if (statement, code) not in self._inserted:
            self._inserted.add((statement, code))
            self.edits.append(e.InsertBefore(statement, rule, reason, transaction=group, code=code))

    def after(self, statement: ast.stmt, rule: str, reason: str, code: str, group: str = CORE) -> None:
        if (statement, f"behind: {code}") not in self._inserted:
            self._inserted.add((statement, f"behind: {code}"))
            self.edits.append(e.InsertAfter(statement, rule, reason, transaction=group, code=code))

    def within(self, statement: ast.stmt, rule: str, reason: str, context: str, group: str = CORE) -> None:
        if (statement, context) not in self._inserted:
            self._inserted.add((statement, context))
            self.edits.append(e.Within(statement, rule, reason, transaction=group, context=context))

    def reduced_as(self, frame: ast.AST, text: str) -> str:
        """How a number, or an object, is made that of all processes in a frame: "sum", "mean" or "merge"; empty where it is not."""
        inserted = (one for one in self.edits if isinstance(one, e.InsertBefore | e.InsertAfter))
        codes = (one.code for one in inserted if self.script.frame(one.node) is frame)
        found = [m for code in codes if (m := _REDUCED.match(code)) and text in m[1].split(", ")]
        return (found[0][3] or found[0][2]) if found else ""

    def remove(self, statement: ast.stmt, rule: str, reason: str) -> None:
        self.edits.append(e.RemoveStatement(statement, rule, reason))

    def is_removed(self, statement: ast.AST) -> bool:
        return any(isinstance(one, e.RemoveStatement) and one.node is statement for one in self.edits)

    def add(self, edit: e.Edit) -> None:
        self.edits.append(edit)

    def imports(self, node: ast.AST, name: str, group: str = CORE) -> None:
        """The file of a node imports a name of the runtime, for each group of edits that needs it: one may be left out."""
        module = self.script.module(node)
        code = f"from {self.runtime} import {name}"
        if self._imported.isdisjoint({(module, code, CORE), (module, code, group)}):
            self._imported.add((module, code, group))
            self.edits.append(e.AddImport(module, "CT101", IMPORT, transaction=group, code=code))

    def drop_unused_imports(self) -> None:
        """Takes back the imports that were asked for by an edit that was not made in the end."""
        used: dict[ast.Module, str] = defaultdict(str)
        for one in self.edits:
            if not isinstance(one, e.AddImport):
                used[self.script.module(one.node)] += told_by(one) + "\n"
        self.edits = [
            one
            for one in self.edits
            if not isinstance(one, e.AddImport)
            or one.code.rpartition(" ")[2] in used[self.script.module(one.node)]
        ]

    def in_words_of_files(self) -> None:
        """Says torch and the runtime in the words of each file: `th.cuda.is_available()` where torch is imported as `th`, and
        `crosstrain.Accelerator()` where the file has an `Accelerator` of its own."""
        self.edits = [
            replace(one, **changed) if (changed := self._in_words_of_file(one)) else one for one in self.edits
        ]

    def _in_words_of_file(self, edit: e.Edit) -> dict[str, Any]:
        torch = self.script.name_of("torch", edit.node)
        own = [name for name in _NAMES if self._is_bound_by_author(self.script.module(edit.node), name)]
        if isinstance(edit, e.AddImport):
            return {"code": f"import {self.runtime}"} if edit.code.rpartition(" ")[2] in own else {}
        changed: dict[str, Any] = {}
        for kind in WRITTEN if own or torch != "torch" else ():
            text = getattr(edit, kind, None)
            if isinstance(text, str):
                told = _TORCH.sub(f"{torch}.", text)
                for name in own:
                    told = re.sub(rf"(?<![\w.]){name}\(", f"{self.runtime}.{name}(", told)
                changed |= {kind: told} if told != text else {}
        return changed

    def _is_bound_by_author(self, module: ast.Module, name: str) -> bool:
        """Whether a file binds a name of the runtime to something of its own, anywhere."""
        if (module, name) not in self._bound:
            self._bound[module, name] = any(
                name in scope.names and self.script.module(scope.node) is module
                for scope in self.script.table.scopes.values()
            ) and f"{self.runtime}.{name}" not in (path for path, _ in imported(module))
        return self._bound[module, name]

    def leave_converted(self) -> None:
        """Takes back what is planned for the modules that were converted before, with another script of the project."""
        converted = self.script.converted
        self.edits = [one for one in self.edits if self.script.module(one.node) not in converted]
        for key, nodes in self._notes.items():
            self._notes[key] = [one for one in nodes if self.script.module(one) not in converted]

    def share_of(self, whole: ast.expr, knows: str, drops: str = "") -> str:
        """The template of one process's share of a number of batches `it`, rounded as a prepared loader has them. drops: what says
        that an incomplete last batch is dropped, `True` or `loader.drop_last`."""
        if self.runtime == OURS:
            return f"{knows}.share({{it}}, drop_last={drops})" if drops else f"{knows}.share({{it}})"
        it = "({it})" if isinstance(whole, ast.BinOp) else "{it}"
        return f"{it} // {knows}.num_processes" if drops == "True" else f"-(-{it} // {knows}.num_processes)"

    def state(self, node: ast.AST, group: str = CORE) -> str:
        """The state of the processes, for code that has no accelerator at hand."""
        self.imports(node, "PartialState", group)
        return "PartialState()"

    # -- what is said ------------------------------------------------------------------------------------------

    def note(self, rule: str, node: ast.AST, reason: str, remedy: str) -> None:
        """Says something about a place; places of which the same is said have one note together."""
        self._notes[rule, reason, remedy].append(node)

    def assume(self, kind: str, rule: str, node: ast.AST, claim: str) -> None:
        """Says what the conversion takes for granted, once; `kind` is a key of `assumptions.CHECKS`."""
        checked = how_checked(kind, self.runtime)
        self.findings.append(finding_at(node, rule, claim, checked, Severity.ASSUMED, kind))

    def observed(self, rule: str, node: ast.AST, claim: str, run: str) -> None:
        """Says what a run of the script has shown."""
        self.findings.append(finding_at(node, rule, claim, f"seen in {run}", Severity.OBSERVED))

    def notes(self) -> list[Finding]:
        found = []
        for (rule, reason, remedy), nodes in self._notes.items():
            if not nodes:
                continue
            first, *others = sorted(set(nodes), key=place_of)
            others = [one for one in others if line_of(one) != line_of(first)]
            places = list(dict.fromkeys(self._place(one, first) for one in others))
            lines = ", ".join(places[:8]) + (f" and {len(places) - 8} more" if len(places) > 8 else "")
            more = f" (also line{'s' if len(places) > 1 else ''} {lines})" if places else ""
            found.append(finding_at(first, rule, reason + more, remedy, Severity.NOTE))
        return [*self.findings, *found]

    def _place(self, node: ast.AST, beside: ast.AST) -> str:
        """The line of a node in its file, with the file's path where a note stands in another file."""
        module = self.script.module(node)
        line = str((line_of(node) or 1) - getattr(module, "lineno", 1) + 1)
        return line if module is self.script.module(beside) else f"{path_of(module)}:{line}"
