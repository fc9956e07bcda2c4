"""The jinja2 environment of the reports."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape


@cache
def environment() -> Environment:
    """HTML templates escape all that is not marked as safe; Markdown ones call their own functions."""
    return Environment(
        loader=PackageLoader("crosstrain_templates", ""),
        autoescape=select_autoescape(enabled_extensions=("html.j2",), default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
