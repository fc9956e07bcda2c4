"""Scripts that distribute themselves: the options that make them do so, and small data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.corpora.public.runs.files import picture, replaced
from tests.corpora.public.runs.run import Run

STAND_INS = Path(__file__).parents[1] / "stand_ins"
# Options of scripts that start a process for each GPU of their machine.
SPAWNING = (
    *("--dist-url", "tcp://localhost:10001", "--multiprocessing-distributed"),
    *("--world-size", "1", "--rank", "0"),
)


def _folders(folder: Path, counts: Mapping[str, int], size: int = 48, kinds: int = 2) -> None:
    """Pictures of a few kinds, in a folder for each part and kind."""
    for part, count in counts.items():
        for number in range(count):
            picture(
                folder / "data" / part / str(number % kinds) / f"{number}.png",
                len(part) + number,
                (size, size),
            )


def _simsiam(folder: Path) -> None:
    replaced(folder / "main_simsiam.py", {"RandomResizedCrop(224": "RandomResizedCrop(32"})
    _folders(folder, {"train": 17})


MAKE_ENCODER = """
import torch, torchvision
torch.manual_seed(0)
state = torchvision.models.resnet18().state_dict()
torch.save({"state_dict": {f"module.encoder.{name}": value for name, value in state.items()}}, "encoder.pth")
"""


def _simsiam_lincls(folder: Path) -> None:
    """What it is trained upon: an encoder of random weights."""
    sizes = {"RandomResizedCrop(224": "RandomResizedCrop(32", "Resize(256)": "Resize(36)"}
    replaced(folder / "main_lincls.py", {**sizes, "CenterCrop(224)": "CenterCrop(32)"})
    _folders(folder, {"train": 16, "val": 7})
    variables = {**os.environ, "PYTHONPATH": str(STAND_INS)}
    subprocess.run([sys.executable, "-c", MAKE_ENCODER], cwd=folder, env=variables, check=True)


def _barlow(folder: Path) -> None:
    replaced(
        folder / "main.py",
        {
            "RandomResizedCrop(224": "RandomResizedCrop(32",
            "models.resnet50(": "models.resnet18(",
            "[2048]": "[512]",
        },
    )
    _folders(folder, {"train": 20})


def _deit(folder: Path) -> None:
    """Its sampler takes multiples of 256 pictures."""
    _folders(folder, {"train": 260, "val": 21}, 32)


def _nanogpt(folder: Path) -> None:
    """A model of two layers, eight files of tokens, and six questions with four answers each."""
    import numpy as np

    script = folder / "train_gpt2.py"
    text = script.read_text()
    numbers = {
        "block_size: int = ": 32, "n_layer: int = ": 2, "n_head: int = ": 2, "n_embd: int = ": 16,
        "total_batch_size = ": 128, "\nB = ": 2, "\nT = ": 16, "val_loss_steps = ": 3,
        "max_steps = ": 6, "warmup_steps = ": 2, "vocab_size=": 304,
    }  # fmt: skip
    for name, number in numbers.items():
        text, found = re.subn(re.escape(name) + r"\d+", f"{name}{number}", text)
        assert found, f"no number for {name}"
    script.write_text(text)
    (folder / "transformers.py").write_text("GPT2LMHeadModel = None\n")  # imported to compare with
    (folder / "edu_fineweb10B").mkdir()
    generator = np.random.default_rng(0)
    for name in ("train_0", "train_1", "val_0"):
        tokens = generator.integers(0, 256, 600, dtype=np.uint16)
        np.save(folder / "edu_fineweb10B" / f"{name}.npy", tokens)
    (folder / "hellaswag").mkdir()
    questions = (
        {"ctx": f"word {number}", "label": number % 4, "endings": ["one", "two or", "three", "four"]}
        for number in range(6)
    )
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    (folder / "hellaswag" / "hellaswag_val.jsonl").write_text(lines)


def _swin(folder: Path) -> None:
    _folders(folder, {"train": 18, "val": 7}, 32)


def _hifigan(folder: Path) -> None:
    """Small networks, and tones of half a second. Two calls take arguments that librosa and torch have asked for since."""
    import numpy as np
    from scipy.io.wavfile import write

    config = json.loads((folder / "config_v1.json").read_text())
    config |= {"batch_size": 4, "segment_size": 1024, "num_workers": 0, "upsample_initial_channel": 16}
    (folder / "config_v1.json").write_text(json.dumps(config))
    wide, narrow = "1024", "16"
    text = (folder / "models.py").read_text().replace(wide, narrow).replace("512", narrow)
    (folder / "models.py").write_text(text)
    named = "sr=sampling_rate, n_fft=n_fft, n_mels=num_mels, fmin=fmin, fmax=fmax"
    spectrum = "normalized=False, onesided=True"
    replaced(
        folder / "meldataset.py",
        {
            "sampling_rate, n_fft, num_mels, fmin, fmax)\n        mel_basis": f"{named})\n        mel_basis",
            spectrum: f"{spectrum}, return_complex=True",
            "torch.sqrt(spec.pow(2)": "torch.sqrt(torch.view_as_real(spec).pow(2)",
        },
    )
    sounds = folder / "LJSpeech-1.1" / "wavs"
    sounds.mkdir(parents=True, exist_ok=True)
    times = np.arange(11025) / 22050
    for number in range(12):
        tone = 0.5 * np.sin(2 * np.pi * (200 + 50 * number) * times)
        write(sounds / f"{number}.wav", 22050, (tone * 32767).astype(np.int16))
    for part, numbers in {"training": range(9), "validation": range(9, 12)}.items():
        lines = "".join(f"{number}|a tone\n" for number in numbers)
        (folder / "LJSpeech-1.1" / f"{part}.txt").write_text(lines)


def _yolo(folder: Path) -> None:
    """Its options are its first lines: several processes, no weights to begin with, few and small pictures."""
    options = {
        "distributed": "True",
        "model_path": "''",
        "input_shape": "[64, 64]",
        "Freeze_Epoch": "1",
        "Freeze_batch_size": "4",
        "UnFreeze_Epoch": "2",
        "Unfreeze_batch_size": "4",
        "num_workers": "0",
        "eval_flag": "False",
        "save_period": "1",
    }
    script = folder / "train.py"
    text = script.read_text()
    for name, value in options.items():
        text, found = re.subn(rf"(?m)^(    {name} *= ).*$", rf"\g<1>{value}", text)
        assert found == 1, name
    script.write_text(text)
    for part, numbers in {"train": range(14), "val": range(14, 22)}.items():
        lines = []
        for number in numbers:
            path = folder / "pictures" / f"{number}.jpg"
            picture(path, number, (64, 64))
            lines.append(f"pictures/{number}.jpg 4,4,{30 + number},40,{number % 20} 20,20,60,60,3\n")
        (folder / f"2007_{part}.txt").write_text("".join(lines))


def _videos(folder: Path) -> None:
    """Eighteen videos of six frames. What torchvision has renamed since has its new name."""
    replaced(folder / "spatial_transforms.py", {"transforms.Scale": "transforms.Resize"})
    labels, database = ["jump", "run", "swim"], {}
    for number in range(18):
        name, label = f"video{number}", labels[number % 3]
        for frame in range(1, 7):
            place = folder / "data" / "jpg" / label / name / f"image_{frame:05d}.jpg"
            picture(place, 10 * number + frame, (40, 40))
        part = "training" if number < 12 else "validation"
        database[name] = {"subset": part, "annotations": {"label": label, "segment": [1, 7]}}
    (folder / "data" / "results").mkdir()
    annotation = folder / "data" / "videos.json"
    annotation.write_text(json.dumps({"labels": labels, "database": database}))


def _classes(folder: Path) -> None:
    _folders(folder, {"train": 20, "val": 7}, 40, 6)


def _boxes(folder: Path) -> None:
    """Pictures with two boxes each, as COCO describes them."""
    root = folder / "data"
    (root / "annotations").mkdir(parents=True)
    for part, numbers in {"train": range(1, 13), "val": range(13, 18)}.items():
        images, boxes = [], []
        for number in numbers:
            name = f"{number:012d}.jpg"
            picture(root / f"{part}2017" / name, number, (64, 64))
            images.append({"id": number, "file_name": name, "width": 64, "height": 64})
            for box, (left, top, width) in enumerate([(4, 6, 20 + number), (20, 18, 30)]):
                corners = [left, top, left + width, top, left + width, top + 30, left, top + 30]
                boxes.append(
                    {
                        "id": 10 * number + box,
                        "image_id": number,
                        "category_id": 1 + number % 3,
                        "bbox": [left, top, width, 30],
                        "area": width * 30,
                        "iscrowd": 0,
                        "segmentation": [corners],
                    }
                )
        kinds = [{"id": number, "name": f"kind {number}"} for number in range(1, 4)]
        written = {"images": images, "annotations": boxes, "categories": kinds}
        (root / "annotations" / f"instances_{part}2017.json").write_text(json.dumps(written))


RUNS: dict[str, Run] = {
    "llmfs-ddp": Run(),
    "simsiam": Run(
        (
            *("data", "-a", "resnet18", "-j", "0", "--epochs", "2", "-b", "4", "-p", "1"),
            *("--dim", "32", "--pred-dim", "16", "--fix-pred-lr", *SPAWNING),
        ),
        _simsiam,
        6,
    ),
    "barlow": Run(
        (
            *("data", "--workers", "0", "--epochs", "2", "--batch-size", "8", "--projector", "32-32-16"),
            *("--print-freq", "1"),
        ),
        _barlow,
        4,
    ),
    "deit": Run(
        (
            *("--model", "deit_tiny_patch16_224", "--input-size", "32", "--data-path", "data"),
            *("--batch-size", "32", "--epochs", "2", "--num_workers", "0", "--output_dir", "output"),
            "--dist-eval",
        ),
        _deit,
        6,
    ),
    "build-nanogpt": Run((), _nanogpt, 6),
    "simsiam-lincls": Run(
        (
            *("data", "-a", "resnet18", "-j", "0", "--epochs", "2", "-b", "8", "-p", "1"),
            *("--lr", "3", "--pretrained", "encoder.pth", *SPAWNING),
        ),
        _simsiam_lincls,
        3,
    ),
    "swin": Run(
        (
            *("--cfg", "configs/swin/swin_tiny_patch4_window7_224.yaml", "--batch-size", "4"),
            *("--data-path", "data", "--opts", "DATA.IMG_SIZE", "32", "DATA.NUM_WORKERS", "0"),
            *("MODEL.SWIN.EMBED_DIM", "12", "MODEL.SWIN.DEPTHS", "[2,2]", "MODEL.SWIN.NUM_HEADS", "[2,2]"),
            *("MODEL.SWIN.WINDOW_SIZE", "4", "TRAIN.EPOCHS", "3", "TRAIN.WARMUP_EPOCHS", "1"),
            *("PRINT_FREQ", "1"),
        ),
        _swin,
        6,
    ),
    "hifigan": Run(
        (
            *("--config", "config_v1.json", "--training_epochs", "2", "--stdout_interval", "1"),
            *("--checkpoint_interval", "2", "--validation_interval", "2", "--summary_interval", "1"),
        ),
        _hifigan,
        8,
    ),
    "yolo3-bubb": Run((), _yolo, 6),
    "r3d": Run(
        (
            *("--root_path", "data", "--video_path", "jpg", "--annotation_path", "videos.json"),
            *("--result_path", "results", "--dataset", "kinetics", "--model", "resnet"),
            *("--model_depth", "10", "--n_classes", "3", "--batch_size", "8", "--n_val_samples", "2"),
            *("--sample_size", "32", "--sample_duration", "4", "--n_threads", "0", "--n_epochs", "2"),
            *("--checkpoint", "1", "--learning_rate", "0.001", "--distributed", "--world_size", "1"),
            *("--dist_url", "tcp://127.0.0.1:23456"),
        ),
        _videos,
        4,
    ),
    "tv-class": Run(
        (
            *("--data-path", "data", "--model", "mobilenet_v3_small", "-b", "4", "-j", "0"),
            *("--epochs", "2", "--print-freq", "1", "--output-dir", "output", "--val-resize-size", "36"),
            *("--val-crop-size", "32", "--train-crop-size", "32", "--sync-bn"),
        ),
        _classes,
        6,
    ),
    "tv-det": Run(
        (
            *("--data-path", "data", "--model", "ssdlite320_mobilenet_v3_large", "-b", "2", "-j", "0"),
            *("--epochs", "2", "--print-freq", "1", "--output-dir", "output", "--lr", "0.001"),
        ),
        _boxes,
        6,
    ),
}
