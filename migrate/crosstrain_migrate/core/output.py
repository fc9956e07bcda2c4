"""CT401 to CT502 by use: one process prints, shows bars, writes files and downloads; what is saved is there for all.

Only statements that do nothing else are guarded. In an evaluation that is dealt, what the body does for a batch is done
once already, on the process that has the batch.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import Function, last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk

from .accelerator import Accelerators
from .plan import Plan
from .script import Frame, Script, is_method, is_statement_call

PRINT, FOLDER, FILE, DOWNLOAD, SAVE = "CT401", "CT402", "CT403", "CT404", "CT502"
_WRITERS = re.compile(r"writer|board|\btb\b|summary|vis\b|viz\b|logger", re.I)
_WRITES = re.compile(
    r"add_(scalar|scalars|image|images|graph|histogram|text|figure|embedding|hparams|video|pr_curve)$"
)
_FILES = {"savefig", "imwrite", "imsave", "save_image", "to_csv", "savetxt", "savez", "savemat", "dump_json"}
_MOVES = {f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "move", "rmtree", "copytree")}
_MOVES |= {"os.remove", "os.rename", "os.unlink", "os.replace"}
_MAIN_TEST = re.compile(r"rank|is_main|is_master|master_process|local_rank|main_process", re.I)


class Output:
    """Plans what one process does."""

    def __init__(
        self, plan: Plan, accelerators: Accelerators, training: list[Frame], dealt: list[ast.For]
    ) -> None:
        """training: the code that trains. dealt: the loops of evaluations that are dealt."""
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self.dealt = {id(node) for loop in dealt for node in walk(loop)}
        self._guarded: set[int] = set()  # what stands in blocks that one process comes to
        self._own_print = any(self.script.functions("print"))
        # The files that speak of the training: the script's own, and those that train or evaluate.
        self._speaking = {self.script.entry, *map(self.script.module, (*training, *dealt))}

    def run(self) -> None:
        for node in self.script.table.each(ast.With):
            stays = self.accelerators.is_early(node) or self._is_shared(node)
            if self.script.is_reached(node) and not stays:
                self._written_block(node)
        saves = [call for call in self.script.calls if self.script.dotted(call.func) == "torch.save"]
        for call in dict.fromkeys(
            (*saves, *self.script.calls)
        ):  # those make an accelerator, which others then use
            if self.accelerators.is_early(call) or self.script.in_lambda(call) or self._is_shared(call):
                continue
            if is_statement_call(self.script, call):
                self._statement(call)
            self._bar(call)
            self._tracker(call)
            self._download(call)

    def _is_shared(self, node: ast.AST) -> bool:
        """Whether a node stands in a file that other scripts import, and saves no weights: such a file speaks as before."""
        saves = isinstance(node, ast.Call) and self.script.dotted(node.func) == "torch.save"
        return self.script.is_shared(node) and not saves

    def _speaks(self, call: ast.Call) -> bool:
        """Whether a print is one of the training's; what a library of the project says, every process says."""
        if self.script.module(call) in self._speaking:
            return True
        reason = "files that neither train nor evaluate print on every process"
        self.plan.note(PRINT, call, reason, "nothing needs to be done")
        return False

    def state(self, node: ast.AST, group: str) -> str:
        """What knows whether this is the main process: the accelerator at hand, else the state of the processes."""
        if self.accelerators.at_hand(node):
            return self.accelerators.name
        return self.plan.state(node, group)

    # -- statements --------------------------------------------------------------------------------------------

    def _statement(self, call: ast.Call) -> None:
        name = self.script.dotted(call.func)
        if name == "print":
            if (
                not self._own_print
                and self._speaks(call)
                and not any(k.arg == "file" for k in call.keywords)
                and not self._is_guarded(call)
            ):
                self.plan.replace(
                    call.func, PRINT, "one process prints", f"{self.state(call, 'print')}.print", "print"
                )
        elif name == "torch.save":
            self._save(call)
        elif name in ("os.mkdir", "os.makedirs"):
            self._folder(call)
        elif is_method(call, "mkdir") and isinstance(call.func, ast.Attribute) and not name.startswith("os."):
            self._path_folder(call)
        elif self._writes_file(call, name) and id(call) not in self.dealt and not self._is_guarded(call):
            statement = self.script.statement(call)
            test = f"{self.state(call, 'files')}.is_main_process"
            self.plan.add(
                e.Guard(statement, FILE, "one process writes", transaction="files", last=statement, test=test)
            )

    def _writes_file(self, call: ast.Call, name: str) -> bool:
        last = name.rpartition(".")[2] or last_name(call.func)
        if isinstance(call.func, ast.Attribute) and _WRITES.match(call.func.attr):
            return _WRITERS.search(written(call.func.value)) is not None
        if name in _MOVES:
            return True
        if name in (
            "tqdm.write",
            "tqdm.tqdm.write",
            "pickle.dump",
            "json.dump",
            "numpy.save",
            "np.save",
            "yaml.dump",
        ):
            return True
        return last in _FILES

    def _is_guarded(self, node: ast.AST) -> bool:
        """Whether one process comes here: by the author's own code, or by a guard around the whole block."""
        if id(node) in self._guarded:
            return True
        below = node
        for one in self.script.around(node):
            if (
                isinstance(one, ast.If)
                and below not in one.orelse
                and _MAIN_TEST.search(ast.unparse(one.test))
            ):
                return True
            below = one
        return False

    def _save(self, call: ast.Call) -> None:
        if len(call.args) + len(call.keywords) < 2 or id(call) in self.dealt or id(call) in self._guarded:
            return  # in an evaluation that is dealt, one process saves for its batch, and no other comes here
        accelerator = self.accelerators.may_be_at(call)
        if accelerator is None:
            self.plan.imports(call, "Accelerator", "saving")
            accelerator = "Accelerator()"
        reason = "the main process writes the file, and it is there for all when the call returns"
        self.plan.replace(call.func, SAVE, reason, f"{accelerator}.save", "saving")

    def _folder(self, call: ast.Call) -> None:
        tried = any(isinstance(one, ast.Try) for one in self.script.around(call))
        asked = self._warns_if_there(call)
        if tried or asked or len(call.args) != 1 or call.keywords:
            return
        if last_name(call.func) == "mkdir" and not isinstance(call.func, ast.Attribute):
            return
        self.plan.replace(
            call,
            FOLDER,
            "several processes make the folder",
            "os.makedirs({path}, exist_ok=True)",
            "folders",
            path=call.args[0],
        )

    def _path_folder(self, call: ast.Call) -> None:
        if any(isinstance(one, ast.Try) for one in self.script.around(call)) or self._warns_if_there(call):
            return
        exist = next((k for k in call.keywords if k.arg == "exist_ok"), None)
        if exist is not None and isinstance(exist.value, ast.Constant) and exist.value.value is False:
            self.plan.replace(exist.value, FOLDER, "several processes make the folder", "True", "folders")
        elif exist is None and not call.args:
            self._give(call, FOLDER, "several processes make the folder", "folders", "exist_ok=True")

    def _warns_if_there(self, call: ast.Call) -> bool:
        """Whether the author's `if` does something else where the folder is there already."""
        above = next((one for one in self.script.around(call) if isinstance(one, ast.If)), None)
        return above is not None and "exists" in ast.unparse(above.test) and bool(above.orelse)

    # -- calls in expressions ----------------------------------------------------------------------------------

    def _bar(self, call: ast.Call) -> None:
        """Progress bars: one process shows one."""
        name = self.script.dotted(call.func)
        if (
            not name.startswith("tqdm.")
            or not name.endswith(("tqdm", "trange"))
            or any(k.arg in ("disable", None) for k in call.keywords)
        ):
            return
        if self._is_guarded(call):
            return
        code = f"disable=not {self.state(call, 'bars')}.is_main_process"
        self._give(call, PRINT, "one process shows the progress", "bars", code)

    def _tracker(self, call: ast.Call) -> None:
        """`wandb.init` of the other processes records nothing."""
        if self.script.dotted(call.func) != "wandb.init" or any(
            k.arg in ("mode", None) for k in call.keywords
        ):
            return
        if self._is_guarded(call):
            return
        code = f'mode=None if {self.state(call, "trackers")}.is_main_process else "disabled"'
        self._give(call, FILE, "one process records the run", "trackers", code)

    def _give(self, call: ast.Call, rule: str, reason: str, group: str, code: str) -> None:
        """Plans another keyword of a call."""
        self.plan.add(e.InsertArgument(call, rule, reason, transaction=group, position=-1, code=code))

    def _download(self, call: ast.Call) -> None:
        """`download=True`: the main process goes first."""
        asks = any(
            k.arg == "download" and isinstance(k.value, ast.Constant) and k.value.value is True
            for k in call.keywords
        )
        if not asks or self._is_guarded(call):
            return
        statement = self.script.statement(call)
        if not isinstance(statement, ast.Assign | ast.Expr | ast.AnnAssign) or any(
            isinstance(one, ast.With) and "main_process_first" in ast.unparse(one.items[0])
            for one in self.script.around(call)
        ):
            return
        if any(edit.node is statement and isinstance(edit, e.Within) for edit in self.plan.edits):
            return
        context = f"{self.state(call, 'downloads')}.main_process_first()"
        self.plan.add(
            e.Within(
                statement,
                DOWNLOAD,
                "one process downloads, the others read",
                transaction="downloads",
                context=context,
            )
        )

    # -- files opened for writing ------------------------------------------------------------------------------

    def _written_block(self, node: ast.With) -> None:
        """`with open(path, "w") as file:` whose body only writes."""
        opened = [item for item in node.items if self._opens_to_write(item.context_expr)]
        if not opened or len(node.items) != 1 or id(node) in self.dealt or self._is_guarded(node):
            return
        names = {
            n.id for n in walk(node.items[0]) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        inside = [n for s in node.body for n in walk(s)]
        frame = self.script.frame(node)
        stored = {
            written(n)
            for n in inside
            if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store)
        }
        if any(self._read_later(frame, node, text) for text in stored):
            return
        if any(
            is_method(n, "backward", "step") or (isinstance(n, ast.Call) and self._is_collective(n))
            for n in inside
        ):
            return
        if any(isinstance(n, ast.Return | ast.Yield | ast.Break | ast.Continue) for n in inside) or not names:
            return
        test = f"{self.state(node, 'files')}.is_main_process"
        self.plan.add(e.Guard(node, FILE, "one process writes", transaction="files", last=node, test=test))
        self._guarded |= {id(one) for one in walk(node)}

    def _opens_to_write(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call) or last_name(node.func) != "open":
            return False
        given = [*node.args, *(k.value for k in node.keywords if k.arg == "mode")]
        return any(
            isinstance(a, ast.Constant)
            and isinstance(a.value, str)
            and re.fullmatch(r"[wax]b?\+?t?", a.value)
            for a in given
        )

    def _read_later(self, frame: ast.AST, node: ast.With, text: str) -> bool:
        reads = self.script.reads(frame, text)  # type: ignore[arg-type]
        return any(place_of(read) > place_of(node) and read.lineno > (node.end_lineno or 0) for read in reads)

    def _is_collective(self, call: ast.Call) -> bool:
        """Whether a call may lead to code that communicates: to a function of the project, or one that was replaced."""
        if self.plan.is_replaced(call) or self.plan.is_replaced(call.func):
            return self.script.dotted(call.func) != "print"
        return any(
            self._communicates(one, set()) for one in self.script.functions(self.script.last(call.func))
        )

    def _communicates(self, function: Function, seen: set[Function]) -> bool:
        """Whether something is prepared, trained or merged in a function, or in one that it calls."""
        if function in seen:
            return False
        seen.add(function)
        inside = set(map(id, walk(function)))
        if any(id(edit.node) in inside and edit.rule != PRINT for edit in self.plan.edits):
            return True
        called = (
            f for c in self.script.calls_in(function) for f in self.script.functions(self.script.last(c.func))
        )
        return any(self._communicates(one, seen) for one in called)
