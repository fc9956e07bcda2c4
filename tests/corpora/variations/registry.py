"""The transformations by name. Each module of `families` registers its own with `@variation`."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import libcst as cst

from tests.corpora.variations.script import Project, Script

# None: there is nothing in the script that it applies to.
Apply = Callable[[Script, Random], cst.Module | Project | None]


@dataclass(frozen=True)
class Variation:
    name: str
    family: str
    about: str
    function: Apply

    def apply(self, project: Project, rng: Random) -> Project | None:
        """The project in other words, or None if this does not apply. What is no Python is a SyntaxError."""
        made = self.function(Script(project), rng)
        if isinstance(made, cst.Module):
            made = project.with_text(made.code)
        if made is None or made == project:
            return None
        for path, text in made.files.items():
            compile(text, f"{path} of {self.name}", "exec", dont_inherit=True)
        return made


VARIATIONS: dict[str, Variation] = {}


def variation(function: Apply) -> Apply:
    """Register a function under its own name; its docstring says what it does."""
    name = function.__name__.replace("_", "-")
    family = function.__module__.rpartition(".")[2]
    VARIATIONS[name] = Variation(name, family, function.__doc__ or "", function)
    return function
