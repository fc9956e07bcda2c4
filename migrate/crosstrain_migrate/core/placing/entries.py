"""A device that stands among settings, `model.to(config["train"]["device"])`: the accelerator is given it, and made below them."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import Frame, is_method
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.files.notebooks import is_linked
from crosstrain_migrate.syntax.nodes import last_name

from .accelerator import Choice
from .elsewhere import behind
from .origins import origin

# What reads settings from a file.
_READS = frozenset({"load", "safe_load", "full_load", "loads"})


def device_among_settings(script: Script, frames: list[Frame]) -> Choice | None:
    """The choice of an entry that something is moved to, where a dictionary says that it is the CPU, or a file says what it
    is; the script sets it nowhere else. In a notebook each process would have to set it again: it stays."""
    if is_linked(script.text):
        return None
    for frame in (*frames, *(one for one in script.reached_frames if one not in frames)):
        for node in script.within(frame):
            given = node.args[0] if is_method(node, "to") and node.args else None
            keys = _keys(given)
            if given is None or not keys or "device" not in keys[-1].lower() or _is_set(script, keys[-1]):
                continue
            home, text = origin(script, frame, ast.unparse(given))
            root = ast.parse(text, mode="eval").body
            while isinstance(root, ast.Subscript):
                root = root.value
            stores = script.stores(home, root.id) if isinstance(root, ast.Name) and home in frames else []
            values = script.values(home, root.id) if isinstance(root, ast.Name) else []
            if len(stores) != 1 or len(values) != 1 or not _may_say(values[0], keys):
                continue
            below = behind(script, home, stores[0])
            if below is not None:
                text = text.replace("'", '"')
                return Choice(f'str({text}) == "cpu"', home, below, device=text, option=text)
    return None


def _keys(node: ast.expr | None) -> list[str]:
    """`["train", "device"]` of `config["train"]["device"]`; empty for another expression."""
    keys: list[str] = []
    while isinstance(node, ast.Subscript):
        if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, str):
            return []
        keys.insert(0, node.slice.value)
        node = node.value
    return keys if isinstance(node, ast.Name) else []


def _is_set(script: Script, key: str) -> bool:
    """Whether the script assigns an entry of that name, or gives it to a function that sets it."""
    return any(
        isinstance(one.ctx, ast.Store) and isinstance(one.slice, ast.Constant) and one.slice.value == key
        for one in script.table.each(ast.Subscript)
    )


def _may_say(value: ast.expr, keys: list[str]) -> bool:
    """Whether a variable is a file's settings, or a dictionary that says "cpu" under these keys."""
    if isinstance(value, ast.Call):
        return last_name(value.func) in _READS
    inner: ast.expr | None = value
    for key in keys:
        if not isinstance(inner, ast.Dict):
            return False
        pairs = zip(inner.keys, inner.values, strict=True)
        inner = next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == key), None)
    return isinstance(inner, ast.Constant) and inner.value == "cpu"
