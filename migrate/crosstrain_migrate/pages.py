"""What the command prints of itself: the rules' pages, from docstrings and examples, and CI snippets."""

from __future__ import annotations

import inspect
import textwrap

from crosstrain_migrate import __version__
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


def ci_snippet(name: str) -> str:
    """The file that runs `migrate --check` in "github-actions" or "pre-commit"."""
    from crosstrain_migrate.reports.templates import environment

    (template,) = environment().list_templates(filter_func=lambda file: file.startswith(f"ci-{name}."))
    return environment().get_template(template).render(version=__version__)


def _first_line(doc: str) -> str:
    return inspect.cleandoc(doc).partition("\n")[0]


def _indented(code: str) -> str:
    return textwrap.indent(inspect.cleandoc(code), "    ")
