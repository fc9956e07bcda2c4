"""CT105 for lengths: packing padded sequences needs them on the CPU, and a prepared loader moves them to the device."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.facts.values import FromBatch
from crosstrain_migrate.rules.base import Context

RULE = "CT105"
PACKS = frozenset({"torch.nn.utils.rnn.pack_padded_sequence"})
SIMPLE = ast.Name | ast.Attribute | ast.Subscript | ast.Call


def plan(context: Context) -> None:
    for call in context.facts.calls_to(*PACKS):
        lengths = given(call, "lengths", 1)
        if isinstance(lengths, SIMPLE) and _comes_from_a_loader(context, lengths):
            # What a collate function of the script's own makes may be a list.
            template = 'torch.as_tensor({x}, device="cpu")' if _may_be_list(context, lengths) else "{x}.cpu()"
            context.replace(lengths, RULE, "packing wants lengths on the CPU", template, x=lengths)


def _batch_values(context: Context, node: ast.expr) -> list[FromBatch]:
    return [v for v in context.facts.of(node) if isinstance(v, FromBatch)]


def _comes_from_a_loader(context: Context, lengths: ast.expr) -> bool:
    """A tensor of prepared batches, and not one that is taken to the CPU or into Python here."""
    found = _batch_values(context, lengths)
    text = ast.unparse(lengths)
    there = text.endswith((".cpu()", ".tolist()", ".to('cpu')"))
    return not there and any(s.loader in context.subject.loaders and not s.host for s in found)


def _may_be_list(context: Context, lengths: ast.expr) -> bool:
    sites = [getattr(s.loader, "site", None) for s in _batch_values(context, lengths)]
    collated = any(isinstance(c, ast.Call) and any(k.arg == "collate_fn" for k in c.keywords) for c in sites)
    return collated and "torch" in context.facts.table.of_node[lengths].module.names
