"""Small scripts, converted in this process."""

import ast

from crosstrain_migrate.core.conversion import Conversion, convert
from crosstrain_migrate.core.reading.imported import is_converted
from crosstrain_migrate.results import Finding, Severity

from .filling import filled


def conversion(text: str, runtime: str = "crosstrain") -> Conversion:
    return convert(filled(text), runtime, lambda rule, node: True)


def converted(text: str) -> str:
    """The new text, which parses; what is refused fails the test."""
    done = conversion(text)
    refused = [one.reason for one in done.findings if one.severity is Severity.REFUSED]
    assert not refused, refused
    ast.parse(done.text)
    return done.text


def notes(text: str, rule: str) -> list[Finding]:
    return [one for one in conversion(text).findings if one.rule == rule]


def once_more(after: str) -> str:
    """What a second run makes of a conversion: the engine leaves alone what is converted already."""
    return after if is_converted(ast.parse(after)) else conversion(after).text
