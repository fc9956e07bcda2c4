"""Names and imports."""

from __future__ import annotations

import re
from random import Random

import libcst as cst

from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import Edits, Script, full_name, is_import, walk, with_import
from tests.golden.renaming import Renaming


@variation
def names_changed(script: Script, rng: Random) -> cst.Module | None:
    """every variable, function and class has another name"""
    if script.dynamic or len(script.project.files) > 1 or "import *" in script.text:
        return None
    return cst.parse_module(Renaming(script.text).apply(script.text))


@variation
def torch_aliased(script: Script, rng: Random) -> cst.Module | None:
    """`import torch as ...`"""
    alias = script.fresh("th")
    variable = script.globals().get("torch")
    lines = [
        one for one in script.nodes if isinstance(one, cst.Import) and script.code(one) == "import torch"
    ]
    bound = [
        n
        for n in script.nodes
        if isinstance(n, cst.ImportAlias) and full_name(n.name).split(".")[0] == "torch"
    ]
    hidden = [n for n in bound if isinstance(n.name, cst.Attribute) and n.asname is None]
    if variable is None or len(lines) != 1 or hidden or script.dynamic:
        return None
    edits: Edits = {
        lines[0]: lambda updated: cst.ensure_type(
            script.one(f"import torch as {alias}"), cst.SimpleStatementLine
        ).body[0]
    }
    uses = [n for n in script.nodes if isinstance(n, cst.Name) and n.value == "torch"]
    accessed = {id(a.node) for one in variable.scope["torch"] for a in one.references}
    for node in uses:
        above = script.parents[node]
        if id(node) in accessed or (
            isinstance(above, cst.Attribute) and above.value is node and _read(script, above)
        ):
            edits[node] = lambda updated: updated.with_changes(value=alias)
    return script.edited(edits)


def _read(script: Script, node: cst.CSTNode) -> bool:
    """Whether an attribute is an expression, not part of an import."""
    return script.enclosing(node, cst.Import, cst.ImportFrom) is None


def _imported(script: Script, name: str) -> cst.ImportAlias | None:
    """The alias of `from ... import name`, if the name is bound by it alone."""
    variable = script.globals().get(name)
    if variable is None or variable.stores or len(variable.scope[name]) != 1:
        return None
    found = [
        n
        for n in script.nodes
        if isinstance(n, cst.ImportAlias)
        and full_name(n.name) == name
        and n.asname is None
        and isinstance(script.parents[n], cst.ImportFrom)
    ]
    return found[0] if len(found) == 1 else None


@variation
def imports_aliased(script: Script, rng: Random) -> cst.Module | None:
    """`from torch.utils.data import DataLoader as ...`, and the like for every name of torch"""
    edits: Edits = {}
    for name in ("DataLoader", "TensorDataset", "nn", "optim", "Dataset"):
        alias = _imported(script, name)
        if alias is None:
            continue
        new = script.fresh({"nn": "layers", "optim": "solvers"}.get(name, f"Torch{name}"))
        edits[alias] = lambda updated, new=new: updated.with_changes(asname=cst.AsName(cst.Name(new)))
        for node in script.globals()[name].loads:
            edits[node] = lambda updated, new=new: updated.with_changes(value=new)
    return script.edited(edits) if edits else None


ALIASES = {
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "optim": "torch.optim",
    "DataLoader": "torch.utils.data.DataLoader",
}


@variation
def names_in_full(script: Script, rng: Random) -> cst.Module | None:
    """`torch.nn.functional.relu` instead of `F.relu`"""
    if not re.search(r"^import torch$", script.text, re.MULTILINE):
        return None
    edits: Edits = {}
    for name, whole in ALIASES.items():
        variable = script.globals().get(name)
        if variable is None or variable.stores or not _is_module(script, name, whole):
            continue
        for node in variable.loads:
            expression = cst.parse_expression(whole)
            edits[node] = lambda updated, expression=expression: expression
    return with_import(script.edited(edits), "import torch.utils.data") if edits else None


def _is_module(script: Script, name: str, whole: str) -> bool:
    parent, _, last = whole.rpartition(".")
    spelled = (
        f"import {whole} as {name}",
        f"from {parent} import {last}",
        f"from {parent} import {last} as {name}",
    )
    return any(
        line.strip() in spelled or re.match(rf"from {re.escape(parent)} import .*\b{last}\b(?! as)", line)
        for line in script.text.split("\n")
    )


@variation
def names_imported_one_by_one(script: Script, rng: Random) -> cst.Module | None:
    """`from torch.optim import SGD` instead of `torch.optim.SGD`"""
    found: dict[str, str] = {}
    edits: Edits = {}
    for node in script.nodes:
        if not isinstance(node, cst.Attribute) or not _read(script, node):
            continue
        whole = re.sub(r"^optim\.", "torch.optim.", full_name(node))
        parent, _, last = whole.rpartition(".")
        if parent in ("torch.optim", "torch.utils.data") and last[0].isupper() and script.fresh(last) != last:
            if last in script.globals() or script.enclosing(node, cst.Call) is None:
                continue
            found[last] = parent
            edits[node] = lambda updated, last=last: cst.Name(last)
    if not edits or ("optim" in script.globals() and "optim" not in _module_names(script)):
        return None
    made = script.edited(edits)
    for last, parent in found.items():
        made = with_import(made, f"from {parent} import {last}")
    return made


def _module_names(script: Script) -> set[str]:
    return {
        full_name(n.asname.name if n.asname else n.name)
        for one in script.module.body
        if is_import(one)
        for n in walk(one)
        if isinstance(n, cst.ImportAlias)
    }
