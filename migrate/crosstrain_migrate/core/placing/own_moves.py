"""Modules of the project that move themselves: a class with a `cuda()` of its own also moves what is no parameter or buffer."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written


def has_own_cuda(script: Script, of: ast.expr) -> bool:
    """Whether what is made here, or what a variable or an attribute may hold, has a `cuda()` of its own: `.to(device)` would
    not call it."""
    if isinstance(of, ast.Call):
        cls = script.class_made(of)
        return cls is not None and _defines_cuda(script, cls, 0)
    if not isinstance(of, ast.Name | ast.Attribute):
        return False
    frame = script.frame(of)
    cls = script.class_of(frame)
    frames = [frame, script.module(of), *(script.methods(cls) if cls is not None else [])]
    made = (script.class_made(value) for one in frames for value in script.values(one, written(of)))
    return any(one is not None and _defines_cuda(script, one, 0) for one in made)


def _defines_cuda(script: Script, cls: ast.ClassDef, depth: int) -> bool:
    """Whether a class, or one of the project that it is made of, has the method."""
    if any(one.name == "cuda" for one in script.methods(cls)):
        return True
    bases = [one for base in cls.bases for one in script.classes(last_name(base))]
    return depth < 4 and any(_defines_cuda(script, one, depth + 1) for one in bases)
