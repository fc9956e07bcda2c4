"""The values that options take. They stand apart so that `migrate --help` loads nothing else."""

from __future__ import annotations

from enum import Enum


class _Choice(str, Enum):
    """One of the values of an option; its text is what is typed."""

    def __str__(self) -> str:
        return str(self.value)


class Mode(_Choice):
    PREVIEW = "preview"  # show what would be done
    CHECK = "check"  # only say whether something would be done
    WRITE = "write"


class FailOn(_Choice):
    """What makes a run end with exit code 1."""

    EDITS = "edits"  # a file would be, or was, changed
    REFUSED = "refused"  # a training script could not be converted
    ASSUMPTIONS = "assumptions"  # a conversion rests on something that is not known
    FINDINGS = "findings"  # there is anything to say


class Format(_Choice):
    TEXT = "text"
    CONCISE = "concise"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    MARKDOWN = "markdown"
    HTML = "html"


class Snippet(_Choice):
    GITHUB_ACTIONS = "github-actions"
    PRE_COMMIT = "pre-commit"


class Data(_Choice):
    REAL = "real"
    SYNTHETIC = "synthetic"


class Backend(_Choice):
    """Values of `--verify-backend`."""

    TORCH = "torch"
    XLA = "xla"


class Runtime(_Choice):
    CROSSTRAIN = "crosstrain"
    ACCELERATE = "accelerate"
