"""What may know about devices: one room, and the options of `verify`, which emulates them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import crosstrain

RUNTIME = Path(crosstrain.__file__).parent
KNOW = {"cli.py", "launch/selftest.py"}  # the options of `verify`; a script of our own
ROOM = "comm"
KINDS = {"cuda", "xla", "mps", "xpu", "npu", "hpu", "mlu", "musa", "sdaa", "hip", "rocm"}


def _named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines that say a kind of device: as a word of its own, as `torch.cuda`, or where "cpu" is a device.

    `device="cpu"` is the host, wherever a script's default device is.
    """
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, (ast.expr, ast.keyword)) else ""
        if (
            (isinstance(node, ast.Constant) and str(node.value).partition(":")[0] in KINDS)
            or (isinstance(node, ast.Attribute) and node.attr in KINDS)
            or text in ("torch.accelerator", "torch.get_device_module")
            or (isinstance(node, ast.Compare) and "device" in text and "'cpu'" in text)
            or (isinstance(node, ast.Call) and text.endswith("device('cpu')"))
            or text == "map_location='cpu'"
        ):
            yield getattr(node, "lineno", 0), text


def test_no_module_but_the_backends_names_a_kind_of_device() -> None:
    found = []
    for path in sorted(RUNTIME.rglob("*.py")):
        name = path.relative_to(RUNTIME).as_posix()
        if name in KNOW or name.partition("/")[0] == ROOM:
            continue
        found += [f"{name}:{line}: {text}" for line, text in _named(ast.parse(path.read_text()))]
    assert found == []
