"""What runs once a batch in a script, and which of its variables hold tensors of the batch, as far as names can be followed."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from crosstrain_migrate.syntax.nodes import Function, last_name, words, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .forms import Frame, Loop, is_function_frame, is_method
from .script import Script

# What Python knows of a tensor without its values, or has read already.
_OF_THE_HOST = words("item tolist numpy cpu size dim numel shape device dtype ndim get keys")
_BUILT_IN = frozenset({"len", "int", "float", "str", "bool", "range", "enumerate", "print", "isinstance"})


class InStep:
    """Answers for one script. loops: those over batches. taking: the frames in which `next` takes batches."""

    def __init__(self, script: Script, loops: list[Loop], taking: Iterable[Frame] = ()) -> None:
        self.script = script
        self.loops = loops
        self._taking = taking

    # -- what runs once a batch --------------------------------------------------------------------------------

    def loop_around(self, node: ast.AST) -> Loop | None:
        return next((one for one in self.script.around(node) if one in self.loops), None)

    def function_around(self, node: ast.AST) -> Function | None:
        frame = self.script.frame(node)
        return frame if is_function_frame(frame) else None

    def in_batch_loop(self, node: ast.AST) -> bool:
        """Whether code runs once a batch: in a loop over batches, or in what such a loop calls."""
        return self.loop_around(node) is not None or self.script.frame(node) in self._called

    def in_module(self, node: ast.AST) -> bool:
        """Whether code stands in a method of a module, other than the one that makes it."""
        function = self.function_around(node)
        cls = self.script.class_of(function) if function is not None else None
        bases = [last_name(base) for base in cls.bases] if cls is not None else []
        return any(base.endswith("Module") for base in bases) and getattr(function, "name", "") != "__init__"

    @cached_property
    def _called(self) -> set[Frame]:
        found: set[Frame] = set()
        work: list[ast.AST] = [statement for loop in self.loops for statement in loop.body]
        while work:
            calls = [node for node in walk(work.pop()) if isinstance(node, ast.Call)]
            functions = {one for call in calls for one in self.script.functions_of(call)}
            new = functions - found
            found |= new
            work += new
        return found

    # -- tensors -----------------------------------------------------------------------------------------------

    def is_tensor(self, node: ast.AST) -> bool:
        """Whether an expression is computed from a batch, and on the device."""
        return self._is_tensor(node, self._tensors[self.script.frame(node)])

    @cached_property
    def _tensors(self) -> dict[Frame, set[str]]:
        """The variables and attributes of each frame that hold tensors of a batch."""
        found: dict[Frame, set[str]] = defaultdict(set)
        for loop in self.loops:
            if isinstance(loop, ast.For | ast.AsyncFor):
                counted = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "enumerate"
                targets = (
                    loop.target.elts[1:] if counted and isinstance(loop.target, ast.Tuple) else [loop.target]
                )
                found[self.script.frame(loop)] |= {
                    written(n) for n in walk_all(targets) if isinstance(n, ast.Name)
                }
        frames = {self.script.frame(loop) for loop in self.loops} | self._called | {*self._taking}
        for _ in range(3):  # as deep as values are followed through calls, in the order of the files
            known = frames | found.keys()
            for frame in (one for one in self.script.frames if one in known):
                self._spread(frame, found)
        return found

    def _spread(self, frame: Frame, found: dict[Frame, set[str]]) -> None:
        """Adds what a frame computes from its tensors, and the parameters of the functions that it gives them to."""
        for node in self.script.within(frame):
            if isinstance(node, ast.Assign | ast.AugAssign) and self._is_tensor(node.value, found[frame]):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [n for n in walk_all(targets) if isinstance(n, ast.Name | ast.Attribute)]
                found[frame] |= {written(n) for n in names if isinstance(n.ctx, ast.Store)}
            elif is_method(node, "append", "extend") and any(
                self._is_tensor(a, found[frame]) for a in node.args
            ):
                found[frame].add(written(node.func.value))
            elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
                if isinstance(node.iter, ast.Name) and node.iter.id in found[frame]:  # no `out.items()`
                    found[frame].add(node.target.id)
            elif isinstance(node, ast.Call):
                for function in self.script.functions_of(node):
                    given = self.script.given_by(node, function)
                    found[function] |= {n for n, one in given.items() if self._is_tensor(one, found[frame])}

    def _is_tensor(self, node: ast.AST, known: set[str]) -> bool:
        match node:
            case ast.Name():
                return node.id in known
            case ast.Attribute():
                return written(node) in known or (
                    node.attr not in _OF_THE_HOST and self._is_tensor(node.value, known)
                )
            case ast.Call(func=ast.Attribute() as func) if func.attr in _OF_THE_HOST:
                return False
            case ast.Call(func=ast.Name(id=name)) if name in _BUILT_IN:
                return False
            case ast.Call(func=ast.Name(id="next"), args=[ast.Name() | ast.Attribute(), *_]):
                return True  # a batch: in frames that take or go over them
            case ast.Call() if self._reads_out(node):
                return False
            case ast.Call():
                of = [node.func.value] if isinstance(node.func, ast.Attribute) else []
                return any(self._is_tensor(one, known) for one in (*of, *node.args))
            case (
                ast.BinOp()
                | ast.UnaryOp()
                | ast.Compare()
                | ast.Subscript()
                | ast.Tuple()
                | ast.List()
                | ast.BoolOp()
            ):
                return any(self._is_tensor(one, known) for one in ast.iter_child_nodes(node))
        return False

    def _reads_out(self, call: ast.Call) -> bool:
        """Whether a function of the project gives what it reads of a tensor: `return x.detach().cpu().numpy()`."""
        returned = [
            one for function in self.script.functions_of(call) for one in self.script.returned(function)
        ]
        return bool(returned) and all(is_method(one, *_OF_THE_HOST) for one in returned)
