"""How a script writes the paths of its files, and which calls read what is written there, themselves or in what they lead to."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.output import commands, on_disk, writers
from crosstrain_migrate.core.placing.options import origin
from crosstrain_migrate.core.reading.forms import FUNCTIONS, is_function_frame, names_in
from crosstrain_migrate.core.reading.roles import Backward
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.computed_imports import pattern_of
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all

from .audience import Audience

_PATHS = (ast.Attribute, ast.JoinedStr, ast.BinOp, ast.Call)
_DEPTH = 2  # how far what calls give is followed
_GIVES_PATH = re.compile(r"(\w+\.)+\w+\(\)")
_OF_PATH = ("open", "read_text", "read_bytes")  # methods of a path
_WORD = re.compile(r"[^\s<>|;/]+(?![^\s<>|;])")  # the last part of each word
_NUMBER = re.compile(r"\d+")
_NAMED = re.compile(r"[a-zA-Z]{2}.*\.\w+$")  # a name of a file beside its ending
_CALLS = 2  # how far calls are followed to one that reads a file
# By what data are read that these functions write.
_READERS = {"numpy.save": "numpy.load", "numpy.savez": "numpy.load", "numpy.savez_compressed": "numpy.load"}
_READERS |= {"torch.save": "torch.load", "joblib.dump": "joblib.load"}


class Paths:
    """Says by which texts a path can be known."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def of_write(self, call: ast.Call) -> set[str]:
        """How the paths are written that a call writes to."""
        if commands.is_command(self.script, call):
            return self.told(call)
        path = writers.path_of_write(self.script, call)
        if path is None:
            return set()
        given = {text for one in self._given(path, _DEPTH) for text in self.spelled(one)}
        return (
            self.spelled(path) | self.in_folder(path, written_to=True) | given | self._words_of_caller(path)
        )

    def told(self, call: ast.Call) -> set[str]:
        """How the paths may be written that a command is told of."""
        nodes = walk_all(call.args)
        named = [n for n in nodes if isinstance(n, ast.Name | ast.Attribute | ast.Constant)]
        return {text for one in named for text in self.spelled(one)}

    def _given(self, path: ast.expr, depth: int) -> list[ast.expr]:
        """What a parameter is given that is the path: `save(rows, "rows.pkl")`, which calls `dump(rows, path)`."""
        frame = self.script.frame(path)
        if not isinstance(path, ast.Name) or not depth or self.script.stores(frame, path.id):
            return [path]
        given = [value for value, _ in self.script.given_for(frame, path.id)]
        return given + [inner for one in given for inner in self._given(one, depth - 1)]

    def _words_of_caller(self, path: ast.expr) -> set[str]:
        """An option in the words of who parsed it: `args.rows` of `prepare(config)`, which writes to `config.rows`."""
        options = [one for one in self._given(path, _DEPTH) if isinstance(one, ast.Attribute)]
        return {origin(self.script, self.script.frame(one), ast.unparse(one))[1] for one in options}

    def in_folder(self, path: ast.expr, *, written_to: bool = False) -> set[str]:
        """The folder of a path that is joined, `os.path.join(args.out, name)`: a file of any name there may be the same, but
        not of another ending. written_to: none where the file's own name is written out."""
        values = (
            self.script.values(self.script.frame(path), path.id) if isinstance(path, ast.Name) else [path]
        )
        joined = [
            v for v in values if isinstance(v, ast.Call) and self.script.dotted(v.func) == "os.path.join"
        ]
        # Who has no ending meets all of the others'.
        any_end, for_others = ("?", "*") if written_to else ("*", "?")
        return {
            f"in {folder}{end}"
            for one in joined
            if len(one.args) == 2 and not (written_to and isinstance(one.args[1], ast.Constant))
            if (folder := last_name(one.args[0]))
            for end in ((_ending(one.args[1]), any_end) if _ending(one.args[1]) else {for_others, "*"})
        }

    def spelled(self, path: ast.expr) -> set[str]:
        """How a path is written, and the file's own name, because one path may be put together in several ways."""
        if isinstance(path, ast.Call) and written(path.func) == "str" and len(path.args) == 1:
            path = path.args[0]
        texts = [n.value for n in walk(path) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        names = {_name_of(n) for n in walk(path)}
        found = {name for name in names if "." in name.strip(".{}%sd")} | _family(path)
        if isinstance(path, _PATHS):
            found.add(ast.unparse(path))
        elif isinstance(path, ast.Name):
            found.add(f"{path.id} of {id(self.script.frame(path))}")
            found |= self._named_once(path)
        return found | {*texts} if isinstance(path, ast.Constant) else found

    def is_named(self, path: ast.expr, depth: int = _DEPTH) -> bool:
        """Whether a text says the name of a path's file, here or where its variables are bound or given."""
        if any("." in _name_of(n).strip(".{}%sd") for n in walk(path)):
            return True
        names = [n for n in walk(path) if isinstance(n, ast.Name) and depth]
        values = [v for n in names for v in self.script.values(self.script.frame(n), n.id)]
        values += [one for n in names for one in self._given(n, 1) if one is not n]
        return any(self.is_named(one, depth - 1) for one in values)

    def _named_once(self, path: ast.Name) -> set[str]:
        """The file's own name, where `path` is a variable of its file that is bound once, to a text, and what puts the path together,
        or the method that gives it, where it is one of a function: `path = tag + ".json"`, `path = self.path_of_rows()`."""
        module, frame = self.script.module(path), self.script.frame(path)
        if self.script.binds(frame, path.id) and frame is not module:
            bound = self.script.values(frame, path.id)
            is_one = len(bound) == 1 and path.id not in names_in(bound[0])
            is_put = is_one and isinstance(bound[0], ast.BinOp | ast.JoinedStr)
            is_given = is_one and _GIVES_PATH.fullmatch(ast.unparse(bound[0]))
            return {ast.unparse(bound[0])} if is_put or is_given else set()
        values = self.script.values(module, path.id)
        is_bound_once = len(values) == len(self.script.stores(module, path.id)) == 1
        is_text = is_bound_once and isinstance(values[0], ast.Constant)
        return self.spelled(values[0]) if is_text else set()

    def spelled_in(self, test: ast.expr) -> set[str]:
        """How the paths are written that a test asks for."""
        calls = [n for n in walk(test) if isinstance(n, ast.Call)]
        named = [
            a for c in calls for a in (*c.args, getattr(c.func, "value", None)) if isinstance(a, ast.expr)
        ]
        return {text for path in named for text in self.spelled(path)}


class Reads:
    """Knows of each call whether it reads a file, and of which paths it may be given."""

    def __init__(self, script: Script, audience: Audience, paths: Paths) -> None:
        self.script = script
        self.audience = audience
        self.paths = paths
        self._given: dict[ast.Call, set[str]] = {}  # how the paths are written that a call may be given
        self._readers: dict[tuple[ast.Call, int], bool] = {}  # whether it reads a file, by depth

    def behind(self, call: ast.Call, statement: ast.stmt, paths: set[str], *, before: bool = False) -> bool:
        """Whether all read behind a statement, or before it, what is written there, by a call that is given one of its
        paths."""
        if call not in self._given:
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if isinstance(call.func, ast.Attribute) and call.func.attr in _OF_PATH:
                given.append(call.func.value)
            texts = {text for one in given for text in self.paths.spelled(one) | self.paths.in_folder(one)}
            if commands.is_heard(self.script, call):
                texts |= self.paths.told(call) | {*_WORD.findall(commands.command_of(*call.args))}
            self._given[call] = texts | {_NUMBER.sub("*", one) for one in texts}  # of `rows_*.csv`
        if not paths & self._given[call]:
            return False
        is_read = self.audience.is_all(call) and self._reads(call, 0)
        return is_read and self.audience.comes_after(*((statement, call) if before else (call, statement)))

    def decided_by(self, opening: ast.stmt, path: ast.expr) -> bool:
        """Whether code above asks if a file is there that stays open from here on, and does by that what the others would not:
        `if isfile(log): resumes = True`. How a file is opened, `"a" if isfile(log) else "w"`, is the main process's alone."""
        suite, texts, inside = self.script.suite_of(opening), self.paths.spelled(path), walk(opening)
        for above in suite[: suite.index(opening)]:
            asks = getattr(above, "test", None) or getattr(above, "value", None)
            if not isinstance(asks, ast.expr) or not on_disk.asks_for_files(asks):
                continue
            kept = [written(one) for one in stores_in(above)]
            reads = [read for text in kept for read in self.script.reads(self.script.frame(above), text)]
            if texts & self.paths.spelled_in(asks) and any(read not in inside for read in reads):
                return True
        return False

    def is_of_earlier_run(self, read: ast.Call, statement: ast.stmt) -> bool:
        """Whether a constructor reads what an earlier run has left, above the place where it goes on writing it."""
        frame = self.script.frame(read)
        is_made = is_function_frame(frame) and frame.name == "__init__" and not self.script.loops_around(read)
        return is_made and frame is self.script.frame(statement) and place_of(read) < place_of(statement)

    def handed_on(self, statement: ast.stmt, paths: set[str]) -> ast.stmt | None:
        """Where a text that is one of the paths written there becomes a variable's or an option's, behind it, for whoever reads
        the file: `args.rows = "/tmp/rows.h5"`; the first of several texts."""
        suite = self.script.suite_of(statement)
        below = [one for one in suite[suite.index(statement) + 1 :] if isinstance(one, ast.Assign)]
        texts = [one for one in below if isinstance(getattr(one.value, "value", None), str)]
        return texts[0] if any(paths & self.paths.spelled(one.value) for one in texts) else None

    def by_kind(self, write: ast.Call, paths: set[str], trained: list[Backward]) -> bool:
        """Whether data go to a file of which no text says the name, before anything is trained, and such data are read behind it
        from one that has none either: `np.load(path)`, where `np.savez(os.path.join(folder, split + ".npz"), rows)` has been."""
        path, reader = writers.path_of_write(self.script, write), _READERS.get(self.script.dotted(write.func))
        if path is None or reader is None or self.paths.is_named(path):
            return False
        statement = self.script.statement(write)
        if any(self.audience.comes_after(statement, one.call) for one in trained):
            return False
        reads = [c for c in self.script.calls if c.args and self.script.dotted(c.func) == reader]
        reads = [c for c in reads if self.audience.is_all(c) and self.audience.comes_after(c, statement)]
        known = any(self.behind(c, statement, paths) for c in reads)
        return not known and not all(self.paths.is_named(c.args[0]) for c in reads)

    def filled(self, call: ast.Call, statement: ast.stmt) -> list[ast.stmt]:
        """Behind which statement a folder has what a call writes there under names that are not written out, where all list a
        folder later: the outermost that no process leaves out, and in which nobody lists one."""
        path = writers.path_of_write(self.script, call)
        others = (writers.removes_file, writers.happens_once, writers.opens_to_write, writers.records)
        is_other = any(is_one(self.script, call) for is_one in (*others, commands.is_command))
        if path is None or self.paths.is_named(path) or is_other:
            return []
        lists = (c for c in self.script.calls if on_disk.lists_folder(self.script, c))
        later = [c for c in lists if self.audience.is_all(c) and self.audience.comes_after(c, statement)]
        ways = [way for one in later for way in self.audience.ways(one)]
        ends: list[ast.stmt] = []
        for one in (statement, *self.script.around(statement)) if later else ():
            is_test = isinstance(one, ast.If) and bool(ends or self.script.loops_around(one))
            if not isinstance(one, ast.stmt) or isinstance(one, FUNCTIONS) or is_test:
                break  # behind a test all would wait in every turn
            inside = [n for part in getattr(one, "body", [one]) for n in walk(part)]
            ends += [one] if self.audience.comes_alike(one) and not any(way in inside for way in ways) else []
        return ends[-1:]

    def made_again(self, removal: ast.Call, paths: set[str]) -> ast.Call | None:
        """Where all make a folder behind its removal: `rmtree(out)`, `os.system("rm -rf " + out)`."""
        if not writers.removes_file(self.script, removal) and not commands.removes(self.script, removal):
            return None
        makes = [c for c in self.script.calls if on_disk.makes_folder(self.script, c)]
        made = ((c, on_disk.path_of_folder(c)) for c in makes if self.audience.is_all(c))
        again = [c for c, path in made if path is not None and paths & self.paths.spelled(path)]
        return next((c for c in again if self.audience.comes_after(c, removal)), None)

    def _reads(self, call: ast.Call, depth: int) -> bool:
        """Whether a call reads a file, itself or in the function or class of the project that it calls."""
        if (call, depth) not in self._readers:
            self._readers[call, depth] = self._find_read(call, depth)
        return self._readers[call, depth]

    def _find_read(self, call: ast.Call, depth: int) -> bool:
        if on_disk.reads_file(self.script, call) or commands.is_heard(self.script, call):
            return True
        return depth < _CALLS and any(
            self._reads(one, depth + 1)
            for function in self.script.run_by(call)
            for one in self.script.calls_in(function)
        )


def _name_of(node: ast.AST) -> str:
    """The file's own name in a text of a path; empty for what is none."""
    text = node.value if isinstance(node, ast.Constant) else ""
    return text.replace("\\", "/").rpartition("/")[2] if isinstance(text, str) else ""


def _family(path: ast.expr) -> set[str]:
    """`rows_*.csv` of `folder + "/rows_" + str(epoch) + ".csv"`"""
    joined = path.args if isinstance(path, ast.Call) and last_name(path.func) == "join" else []
    name = pattern_of(joined[-1] if joined else path).rpartition("/")[2]
    return {name} if "*" in name and _NAMED.search(name) else set()


def _ending(name: ast.expr) -> str:
    """`.pdf` of `"loss_{}.pdf".format(epoch)`; empty where it is not written out."""
    match name:
        case ast.JoinedStr(values=[*_, last]) | ast.BinOp(left=last, op=ast.Mod()) | ast.BinOp(right=last):
            return _ending(last)
        case ast.Call(func=ast.Attribute(value=text, attr="format")):
            return _ending(text)
        case ast.Constant(value=str(text)) if found := re.search(r"\.\w+$", text):
            return found.group()
    return ""
