"""The codes' documentation: pages, whose examples are their first tests.

They are texts of `templates/crosstrain_templates/rules`, between lines of `----`; advice for XLA and notebooks have theirs in
their modules. A page begins with a line `CT203: title` for each code, says What and Why (and what it Leaves and Refuses), and ends
with examples. Each names the places of a training script (`tests/rules/support.py` has it) that the code stands in:

    Example CT203 (step):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    Becomes (step):
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
    Stays (end):
        print(nn.utils.parameters_to_vector(model.parameters()).shape)

`And (place):` goes on with another place, and `(place): nothing` empties it. `Stays` shows code that the rule leaves as it is,
`Noted` code that is left with a note; for `Left` and `Refused` the whole script stays as it is. The code may be left out
where the file has only one.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

HERE = Path(__file__).parent
_HEAD = re.compile(r"^(CT\d{3}): (.+)$", re.MULTILINE)
_PLACE = re.compile(
    r"^(?P<kind>Example|Becomes|Stays|Noted|Left|Refused|And)(?: (?P<code>CT\d{3}))? \((?P<slot>\w+)\):"
    r"(?: nothing$|\n(?P<text>(?:(?: {4}.*)?(?:\n|$))+))",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Example:
    """What becomes of code of a script. before, after: place -> what stands there; after holds what changes."""

    code: str
    kind: str  # "Example", "Stays", "Noted", "Left" or "Refused"
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """One rule's documentation. text: its prose."""

    code: str
    title: str
    text: str
    examples: tuple[Example, ...] = ()


def catalogue() -> list[Page]:
    """Every rule's page, in order of the codes."""
    pages = [page for doc in (*_docstrings(), *_texts()) for page in pages_of(doc)]
    return sorted(pages, key=lambda page: page.code)


def titles() -> dict[str, str]:
    """Code -> title."""
    return {page.code: page.title for page in catalogue()}


def _docstrings() -> Iterator[str]:
    """Those of the modules that have one rule each. They are read, not imported: who asks for a title runs no rule."""
    for file in (*sorted(HERE.glob("*.py")), *sorted(HERE.glob("notebooks/*.py"))):
        source = file.read_text(encoding="utf-8")
        if re.match(r'"""CT\d{3}: ', source):
            yield inspect.cleandoc(ast.literal_eval(source[: source.index('"""', 3) + 3]))


def _texts() -> Iterator[str]:
    """Those of `templates/crosstrain_templates/rules`, a file for each family."""
    for file in files("crosstrain_templates").joinpath("rules").iterdir():
        yield from file.read_text(encoding="utf-8").split("\n----\n\n")


def pages_of(doc: str) -> list[Page]:
    """The pages in a rule's docstring: one for each code that it begins with."""
    head, _, rest = doc.partition("\n\n")
    codes = _HEAD.findall(head)
    found = _PLACE.search(rest)
    text, examples = (rest[: found.start()], _examples(rest, codes[0][0])) if found else (rest, [])
    return [
        Page(code, title, text.strip(), tuple(one for one in examples if one.code == code))
        for code, title in codes
    ]


def _examples(text: str, default: str) -> list[Example]:
    examples: list[Example] = []
    side: dict[str, str] = {}
    for place in _PLACE.finditer(text):
        if place["kind"] == "Becomes":
            side = examples[-1].after
        elif place["kind"] != "And":
            examples.append(Example(place["code"] or default, place["kind"]))
            side = examples[-1].before
        side[place["slot"]] = textwrap.dedent(place["text"] or "").strip("\n")
    return examples
