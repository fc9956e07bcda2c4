"""Recognises a plain training script, which on several processes would become several unrelated trainings.

Before anything starts, the launcher reads the script and what it imports from its own folder. It warns only if the script is
certainly plain: an unknown library, an import by a computed name, or an environment variable that distinguishes processes
prevents the warning.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from crosstrain.launch.target import Target

# Libraries that start no processes and no group for the script.
_LIBRARIES = """
    PIL absl albumentations attr click cv2 datasets einops evaluate fire gym gymnasium h5py huggingface_hub imageio
    kornia librosa lpips matplotlib mlflow networkx nltk numba numpy omegaconf packaging pandas prettytable psutil
    pydantic regex requests rich sacrebleu safetensors scipy seaborn sentencepiece six skimage sklearn soundfile spacy
    tabulate tensorboard tensorboardX timm tokenizers torch torchaudio torchinfo torchmetrics torchsummary torchtext
    torchvision tqdm transformers typer wandb yaml
"""
HARMLESS = frozenset(_LIBRARIES.split())
# Names by which a script uses other processes, is one of several on purpose, or runs code from elsewhere.
PROCESS_NAMES = re.compile(
    r"distributed|\w*process_group|Accelerator|\w*Trainer|\w*TrainingArguments|agent|sweep|spawn|Popen|subprocess|"
    r"import_module|__import__|run_path|run_module|exec"
)
PROCESS_TEXTS = re.compile(
    r"(.*[-_])?rank|.*world[-_]?size|(SLURM|OMPI|PMI|TORCHELASTIC|MASTER)_\w*", re.IGNORECASE
)


def is_unconverted_training(target: Target) -> bool:
    """Whether the target certainly trains, and certainly does not know of other processes."""
    first = _file_of(target)
    if first is None:
        return False
    root = Path.cwd() if target.is_module else first.resolve().parent
    waiting, seen, trains = [first.resolve()], set[Path](), False
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return False
        if any(map(_mentions_processes, ast.walk(tree))):
            return False
        trains = trains or any(map(_is_backward, ast.walk(tree)))
        for name, level in _imports(tree):
            found = _local_files(name, path.parents[level - 1] if level else root)
            if not (found or level or _is_harmless(name)):
                return False
            waiting += found
    return trains


def _file_of(target: Target) -> Path | None:
    """The source file of a script, or of a module below the working folder; None if a module has none there."""
    if not target.is_module:
        return Path(target.name)
    place = Path(*target.name.split("."))
    return next((path for path in (place / "__main__.py", place.with_suffix(".py")) if path.is_file()), None)


def _mentions_processes(node: ast.AST) -> bool:
    """Whether a name or text shows that the script may be one of several processes."""
    match node:
        case ast.Constant(value=str(text)):
            return PROCESS_TEXTS.fullmatch(text) is not None
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return any(map(PROCESS_NAMES.fullmatch, name.split(".")))
        case ast.ImportFrom(module=str(name)):
            return any(map(PROCESS_NAMES.fullmatch, name.split(".")))
    return False


def _is_backward(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
    )


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The imported names with the number of their leading dots; ``from a import b`` gives ``a.b``, as b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            head = f"{node.module}." if node.module else ""
            yield from ((head + alias.name, node.level) for alias in node.names)


def _local_files(name: str, root: Path) -> list[Path]:
    """The files below ``root`` that an import of the name runs, including those of its packages."""
    parts, found = name.split("."), []
    for depth in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:depth])
        found += [path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()]
    return found


def _is_harmless(name: str) -> bool:
    top = name.partition(".")[0]
    return top in HARMLESS or top in sys.stdlib_module_names
