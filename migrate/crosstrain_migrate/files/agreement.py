"""Makes scripts that share a file agree: the file changes in one way for all of them, or they are left unchanged."""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from crosstrain_migrate.outcome import Migrated, display_name
from crosstrain_migrate.results import Finding, InputError, Severity
from crosstrain_migrate.syntax.problems import UNPARSABLE
from crosstrain_migrate.syntax.program import is_main_test, tree_of
from crosstrain_migrate.syntax.walks import walk

from .discovery import discover, has_neighbours
from .import_graph import ImportGraph, Project, is_script, mentioned
from .reading import decode
from .sources import Source, Unusable, read_bytes

RULE = "CT004"
# The most files around a script that are searched for uses of what changes.
MOST_NEIGHBOURS = 2000

Files = list[Migrated]  # one script's: what it imports, then itself


def agreed(programs: list[Files], follow: bool) -> Files:
    """Every file once. A script whose conversion would break another one is left unchanged, with a finding that says so."""
    kept = _Programs([files if follow else _without_imports_changed(files) for files in programs])
    around = _Neighbourhood()
    changing = True
    while changing:
        changing = False
        for number, files in enumerate(kept.all):
            reason = _objection(number, kept, around)
            if reason is not None:
                kept.all[number] = _withdrawn(files, *reason)
                changing = True
    known = {file.source.target for files in kept.all for file in files}
    return _merged([_with_other_users(files, known, around) for files in kept.all])


class _Programs:
    """All programs of a run, and which of them a file is part of."""

    def __init__(self, programs: list[Files]) -> None:
        self.all = programs
        self._numbers: dict[Path, list[int]] = defaultdict(list)
        for number, files in enumerate(programs):
            for file in files:
                self._numbers[file.source.target].append(number)

    def others(self, number: int, targets: Iterable[Path]) -> list[Files]:
        """The programs beside program `number` that one of these files is part of, in order."""
        found = {other for target in targets for other in self._numbers.get(target, ())}
        return [self.all[other] for other in sorted(found - {number})]


def _without_imports_changed(files: Files) -> Files:
    """With --no-follow: a conversion that changes an imported file is not made."""
    other = next((file for file in files[:-1] if file.result.changed), None)
    if other is None:
        return files
    reason = f"the conversion also changes {other.name}, which --no-follow forbids"
    return _withdrawn(files, reason, "leave --no-follow out, or bring the training into one file")


def _withdrawn(files: Files, reason: str, remedy: str) -> Files:
    """The same files, unchanged, with the reason at the script."""
    back = []
    for file in files:
        found = tuple(one for one in file.result.findings if one.severity is not Severity.ASSUMED)
        result = replace(file.result, after=file.result.before, changes=(), findings=found, extras={})
        back.append(replace(file, result=result))
    return _with_findings(back, [Finding(RULE, 1, 1, reason, remedy, Severity.REFUSED)])


def _with_findings(files: Files, said: list[Finding]) -> Files:
    """The same files with these findings at the script, before its own."""
    script = files[-1]
    result = replace(script.result, findings=(*said, *script.result.findings))
    return [*files[:-1], replace(script, result=result)]


def _objection(number: int, programs: _Programs, around: _Neighbourhood) -> tuple[str, str] | None:
    """Why program `number` cannot be changed as it is, and what to do."""
    files = programs.all[number]
    script = files[-1]
    changed = {file.source.target: file for file in files if file.result.changed}
    for file in changed.values():
        names = _used_by_main(file) & _changed_names(file) if file is not script else set()
        if names:
            reason = f"{file.name} is also a script of its own and calls `{min(names)}`, which changes"
            return reason, f"run migrate on {file.name} first, or move what both use into a module"
    for program in programs.others(number, changed):
        for file in program:
            mine = changed.get(file.source.target)
            if mine is None or mine.result.after == file.result.after:
                continue
            if file.result.changed:
                reason = f"{file.name} would have to change differently for {program[-1].name}"
                return reason, "give each script its own copy of what differs"
            for user in (one.source for one in program if one.source.target not in changed):
                names = _used_names(user, mine)
                if names:
                    return _unmigrated(script, user, mine, names)
    if len(changed) > (script.source.target in changed):
        for user, used in around.users(changed):
            if is_script(user.code) and not programs.others(number, [user.target]):
                for file in used:
                    names = _used_names(user, file)
                    if names:
                        return _unmigrated(script, user, file, names)
    return None


def _unmigrated(script: Migrated, user: Source, file: Migrated, names: set[str]) -> tuple[str, str]:
    name = display_name(user.path)
    reason = f"{name} uses `{min(names)}` of {file.name}, which changes, and is not migrated with it"
    return reason, f"name both (migrate {script.name} {name}), or resolve first what keeps {name} from it"


def _with_other_users(files: Files, known: set[Path], around: _Neighbourhood) -> Files:
    """Notes the files that nobody asked to migrate and that call what changes: a test, for instance."""
    changed = {file.source.target: file for file in files if file.result.changed}
    if not has_neighbours(changed) or not any(_changed_names(file) for file in changed.values()):
        return files
    said = []
    for user, used in around.users(changed):
        for file in used if user.target not in known else ():
            names = _used_names(user, file)
            if names:
                reason = f"{display_name(user.path)} uses `{min(names)}` of {file.name}, which is now called differently"
                said.append(Finding(RULE, 1, 1, reason, "adapt it", Severity.NOTE))
    return _with_findings(files, said)


def _used_names(user: Source, file: Migrated) -> set[str]:
    return _mentioned(user.text) & _changed_names(file)


def _changed_names(file: Migrated) -> set[str]:
    """Functions, classes and methods that the conversion removes or gives another signature."""
    before, after = _signatures(file.result.before), _signatures(file.result.after)
    changed = [name.split(".") for name, signature in before.items() if after.get(name) != signature]
    # Who calls a class calls its `__init__`.
    classes = {parts[0] for parts in changed if len(parts) > 1 and parts[-1] == "__init__"}
    return classes | {parts[-1] for parts in changed}


@lru_cache(maxsize=4)
def _signatures(text: str) -> dict[str, str]:
    found: dict[str, str] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + node.name] = ast.dump(node.args)
            elif isinstance(node, ast.ClassDef):
                found[prefix + node.name] = ""
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign):
                found.update({prefix + t.id: "" for t in node.targets if isinstance(t, ast.Name)})

    visit(tree_of(text).body, "")
    return found


def _mentioned(text: str) -> set[str]:
    """Every name in a text; none where it is not Python, because it cannot run."""
    try:
        tree = tree_of(text)
    except UNPARSABLE:
        return set()
    found: set[str] = set()
    for node in walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name)
    return found


def _used_by_main(file: Migrated) -> set[str]:
    """The names in a module's own `if __name__ == "__main__":`, which an import does not run."""
    tests = (n for n in tree_of(file.result.before).body if is_main_test(n))
    return {n.id for test in tests for n in walk(test) if isinstance(n, ast.Name)}


class _Neighbourhood:
    """The files around those that change: each folder is walked once, each file read once."""

    def __init__(self) -> None:
        self._graph = ImportGraph()
        self._found: dict[Path, list[Path]] = {}
        self._read: dict[Path, _Neighbour | None] = {}

    def users(self, changed: dict[Path, Migrated]) -> Iterator[tuple[Source, Files]]:
        """Files beside and below the changed ones that may use what changes, each with those that it imports."""
        folder = Path(os.path.commonpath([path.parent for path in changed]))
        # An import of one of them names it, or a package that it is in.
        names = {part for path in changed for part in path.relative_to(folder).with_suffix("").parts}
        packages = {path.parent for path in changed if (path.parent / "__init__.py").is_file()}
        names |= {package.name for package in packages}
        wanted = [name.encode() for file in changed.values() for name in _changed_names(file)]
        for one in self._in(folder):
            if one.target in changed or not any(name in one.data for name in wanted):
                continue
            own = {""} if packages.intersection(one.target.parents) else set()  # `from . import fit`
            if one.source is None or (names | own).isdisjoint(one.mentions):
                continue
            files = Project(one.source, self._graph).files
            used = [changed[file.target] for file in files if file.target in changed]
            if used:
                yield one.source, used

    def _in(self, folder: Path) -> Iterator[_Neighbour]:
        if folder not in self._found:
            found = (one for one, _ in zip(discover([folder]), range(MOST_NEIGHBOURS), strict=False))
            self._found[folder] = [one.path for one in found if not isinstance(one, InputError)]
        for path in self._found[folder]:
            if path not in self._read:
                try:
                    self._read[path] = _Neighbour(path, *read_bytes(path))
                except Unusable:  # nobody asked for it by name
                    self._read[path] = None
            one = self._read[path]
            if one is not None:
                yield one


@dataclass(frozen=True)
class _Neighbour:
    """A file that nobody asked to migrate."""

    path: Path
    data: bytes
    target: Path

    @cached_property
    def source(self) -> Source | None:
        """None where Python cannot import it either."""
        try:
            return decode(self.path, self.data, self.target)
        except Unusable:
            return None

    @cached_property
    def mentions(self) -> set[str]:
        # A notebook's code is not what lies on disk.
        return mentioned(self.source.code) if self.source is not None else set()


def _merged(programs: list[Files]) -> Files:
    """Each file once: with its change where it has one, and everything that was found in it."""
    by_target: dict[Path, Files] = defaultdict(list)
    for files in programs:
        for file in files:
            by_target[file.source.target].append(file)
    found = []
    for versions in by_target.values():
        # Where a script changes a file, what was said of the file by itself is beside the point.
        changed = [file for file in versions if file.result.changed]
        best = (changed or versions)[-1]
        findings = dict.fromkeys(one for file in changed or versions for one in file.result.findings)
        trains = any(file.result.trains for file in versions)
        found.append(replace(best, result=replace(best.result, findings=tuple(findings), trains=trains)))
    return found
