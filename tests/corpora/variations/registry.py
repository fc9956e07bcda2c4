"""The transformations by name. Each module of `families` registers its own with `@variation`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import libcst as cst

from tests.corpora.variations.script import Project, Script

# None: there is nothing in the script that it applies to.
Apply = Callable[[Script, Random], cst.Module | Project | None]


class Broken(Exception):
    """A transformation failed, or made something that is no Python: a mistake of its own."""


@dataclass(frozen=True)
class Variation:
    name: str
    family: str
    about: str
    function: Apply

    def apply(self, project: Project, rng: Random) -> Project | None:
        """The project in other words, or None if this does not apply."""
        try:
            made = self.function(Script(project), rng)
        except Exception as error:  # the text of libcst's own errors is the whole tree
            raise Broken(f"{self.name}: {type(error).__name__}") from error
        if isinstance(made, cst.Module):
            made = project.with_text(made.code)
        if made is None or made == project:
            return None
        for path, text in made.files.items():
            try:
                compile(text, path, "exec", dont_inherit=True)
            except SyntaxError as error:
                raise Broken(f"{self.name}: {path}:{error.lineno}: {error.msg}") from error
        return made


VARIATIONS: dict[str, Variation] = {}


def variation(function: Apply) -> Apply:
    """Register a function under its own name; its docstring's first line says what it does."""
    name = function.__name__.replace("_", "-")
    about = (function.__doc__ or "").strip().split("\n")[0]
    family = function.__module__.rpartition(".")[2]
    assert about and name not in VARIATIONS, name
    VARIATIONS[name] = Variation(name, family, about, function)
    return function
