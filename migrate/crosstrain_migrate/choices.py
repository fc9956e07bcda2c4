"""The values that options take. They stand apart so that `migrate --help` loads nothing else."""

from __future__ import annotations

from enum import Enum


class Mode(str, Enum):
    PREVIEW = "preview"  # show what would be done
    CHECK = "check"  # only say whether something would be done
    WRITE = "write"


class FailOn(str, Enum):
    """What makes a run end with exit code 1."""

    EDITS = "edits"  # a file would be, or was, changed
    REFUSED = "refused"  # a training script could not be converted
    FINDINGS = "findings"  # anything a person should look at


class Format(str, Enum):
    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    MARKDOWN = "markdown"
    HTML = "html"


class Snippet(str, Enum):
    GITHUB_ACTIONS = "github-actions"
    PRE_COMMIT = "pre-commit"


class Data(str, Enum):
    REAL = "real"
    SYNTHETIC = "synthetic"


class Backend(str, Enum):
    """Values of `--verify-backend`."""

    TORCH = "torch"
    XLA = "xla"


class Runtime(str, Enum):
    CROSSTRAIN = "crosstrain"
    ACCELERATE = "accelerate"
