"""Recognises a plain training script, which on several processes would become several unrelated trainings.

Before anything starts, the launcher reads the script and what it imports from its own folder. It warns only if the script is
certainly plain: an unknown library, or a word by which scripts know of other processes, prevents the warning.
"""

from __future__ import annotations

import re
import sys
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from crosstrain.launch.target import Target

# Libraries that start no processes and no group for the script.
_LIBRARIES = """
    PIL absl albumentations attr click cv2 datasets einops evaluate fire gym gymnasium h5py huggingface_hub imageio
    kornia librosa lpips matplotlib mlflow networkx nltk numba numpy omegaconf packaging pandas prettytable psutil
    pydantic regex requests rich sacrebleu safetensors scipy seaborn sentencepiece six skimage sklearn soundfile spacy
    tabulate tensorboard tensorboardX timm tokenizers torch torchaudio torchinfo torchmetrics torchsummary torchtext
    torchvision tqdm transformers typer wandb yaml
"""
HARMLESS = sys.stdlib_module_names | set(_LIBRARIES.split())
# By these a script uses other processes, is one of several on purpose, or runs code from elsewhere.
PROCESSES = re.compile(
    r"distributed|process_group|Accelerator|Trainer|TrainingArguments|\.agent\(|sweep|spawn|Popen|subprocess|"
    r"import_module|__import__|run_path|run_module|\bexec\(|(?i:rank\b|world[-_]?size)|"
    r"SLURM_|OMPI_|PMI_|TORCHELASTIC_|MASTER_"
)


def is_unconverted_training(target: Target) -> bool:
    """Whether the target certainly trains, and certainly does not know of other processes."""
    finder = ModuleFinder([str(Path.cwd() if target.is_module else Path(target.name).resolve().parent)])
    try:
        if target.is_module:
            finder.import_hook(target.name)
            asked: Any = finder.modules[target.name]
            if asked.__path__:
                finder.import_hook(f"{target.name}.__main__")
        else:
            finder.run_script(target.name)
        modules: list[Any] = [*finder.modules.values()]
        texts = [Path(module.__file__).read_text("utf-8") for module in modules if module.__file__]
    except (ImportError, OSError, SyntaxError, ValueError, AttributeError):
        return False  # the finder raises AttributeError at a package without `__init__.py`
    if any(name.partition(".")[0] not in HARMLESS for name in finder.badmodules):
        return False
    return any(".backward(" in text for text in texts) and not any(map(PROCESSES.search, texts))
