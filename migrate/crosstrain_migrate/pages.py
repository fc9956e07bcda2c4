"""The rules' pages, for `--explain` and `--list-rules`: what each docstring and its examples say."""

from __future__ import annotations

import inspect
import textwrap

from crosstrain_migrate.rules import catalogue


def rule_table() -> str:
    """One line per rule: code, name, first sentence."""
    rules = sorted(catalogue(), key=lambda rule: rule.code)
    width = max((len(rule.name) for rule in rules), default=0)
    return "".join(f"{rule.code}  {rule.name:<{width}}  {_first_line(rule.doc)}\n" for rule in rules)


def rule_names() -> dict[str, str]:
    """Code -> name."""
    return {rule.code: rule.name for rule in catalogue()}


def rule_page(code: str) -> str | None:
    """A rule's page; None where no rule has the code."""
    for rule in catalogue():
        if rule.code == code.strip().upper():
            break
    else:
        return None
    title = f"{rule.code}: {rule.name}"
    parts = [f"{title}\n{'=' * len(title)}", inspect.cleandoc(rule.doc)]
    if rule.before:
        parts += ["Before:\n\n" + _indented(rule.before)]
    if rule.after:
        parts += ["After:\n\n" + _indented(rule.after)]
    parts += [f"To leave a line alone: # migrate: skip {rule.code}"]
    return "\n\n".join(parts) + "\n"


def _first_line(doc: str) -> str:
    return inspect.cleandoc(doc).partition("\n")[0]


def _indented(code: str) -> str:
    return textwrap.indent(inspect.cleandoc(code), "    ")
