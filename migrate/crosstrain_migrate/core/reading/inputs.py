"""Backward passes for the gradients of tensors that a function makes itself, an attack's inputs or latents: they train no model."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

from .forms import Frame, is_function_frame, is_method
from .script import Script


def moves_tensors_alone(script: Script, steps: list[tuple[Frame, ast.expr]]) -> bool:
    """Whether what is stepped was made of tensors that its function makes, a picture or latents, and of no model's."""
    return bool(steps) and all(_is_made_of_leaves(script, *one, own_leaves(script, one[0])) for one in steps)


def is_of_inputs(script: Script, frame: Frame, in_step: bool) -> bool:
    """Whether a function goes backward for the gradients of tensors that it makes itself; in_step: a training step calls it.

    It reads them and steps nothing, or steps nothing but what it makes of these tensors alone.
    """
    if not is_function_frame(frame):
        return False
    own = own_leaves(script, frame)
    steps = [c for c in script.calls_in(frame) if is_method(c, "step") and len(c.args) < 2]
    if steps:
        return in_step and all(_is_made_of_leaves(script, frame, one.func.value, own) for one in steps)
    return reads_own_gradients(script, frame)


def reads_own_gradients(script: Script, frame: Frame) -> bool:
    """Whether a function reads the gradients of tensors that it makes itself."""
    own = own_leaves(script, frame)
    return any(
        isinstance(node, ast.Attribute) and node.attr == "grad" and written(node.value) in own
        for node in script.within(frame)
    )


def own_leaves(script: Script, frame: Frame) -> set[str]:
    """The variables of a function that it makes, and makes require gradients."""
    found: set[str] = set()
    for node in script.within(frame):
        is_set = isinstance(node, ast.Attribute) and node.attr in ("requires_grad", "requires_grad_")
        if isinstance(node, ast.Attribute) and is_set and isinstance(node.value, ast.Name):
            found.add(node.value.id)
        if isinstance(node, ast.Assign) and any(map(_requires_grad, walk(node.value))):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    loops = [n for n in script.within(frame) if isinstance(n, ast.For) and written(n.target) in found]
    for text in map(written, (one.iter for one in loops if isinstance(one.iter, ast.Name))):
        if all(ast.unparse(value) == "[]" for value in script.values(frame, text)) and _is_filled(
            script, frame, text
        ):
            found.add(text)  # `for noise in noises: noise.requires_grad = True`
    return {name for name in found if script.values(frame, name)}


def _is_filled(script: Script, frame: Frame, text: str) -> bool:
    """Whether a list gets what the function makes, `noises.append(torch.zeros(4))`, and no model's parameter from a loop."""
    added = [c.args[0] for c in script.calls_in(frame) if is_method(c, "append") and c.args]
    own = [one for one in added if written(getattr(script.parent(one), "func", one)) == f"{text}.append"]
    return bool(own) and all(isinstance(o, ast.Call) or script.values(frame, written(o)) for o in own)


def _requires_grad(node: ast.AST) -> bool:
    """`x.requires_grad_()`, `Variable(x.data, requires_grad=True)`, `nn.Parameter(x.data)`"""
    if is_method(node, "requires_grad_") or (
        isinstance(node, ast.Call) and last_name(node.func) == "Parameter"
    ):
        return True
    keywords = node.keywords if isinstance(node, ast.Call) else []
    return any(
        k.arg == "requires_grad" and isinstance(k.value, ast.Constant) and k.value.value for k in keywords
    )


def _is_made_of_leaves(
    script: Script, frame: Frame, stepped: ast.expr, own: set[str], depth: int = 2
) -> bool:
    """Whether what is stepped was made here of a list of these variables, or, as a scheduler, of what was."""
    text = written(stepped)
    made = script.values(frame, text)
    grown = [c for c in script.calls_in(frame) if is_method(c, "append", "extend", "insert")]
    if len(script.stores(frame, text)) > len(made) or any(written(c.func.value) == text for c in grown):
        return False  # `pieces = [code]`, to which a model's parameters are added
    given = [one.args[0] if isinstance(one, ast.Call) and one.args else one for one in made]
    while any(isinstance(one, ast.BinOp) for one in given):  # `[latent] + noises`
        pairs = [[one.left, one.right] if isinstance(one, ast.BinOp) else [one] for one in given]
        given = [one for pair in pairs for one in pair]
    return (
        bool(made)
        and len(given) >= len(made)
        and all(
            {written(part) for part in one.elts} <= own and bool(one.elts)
            if isinstance(one, ast.List)
            else written(one) in own
            or (
                depth > 0
                and isinstance(one, ast.Name)
                and _is_made_of_leaves(script, frame, one, own, depth - 1)
            )
            for one in given
        )
    )
