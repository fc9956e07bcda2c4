"""Libraries that run the training themselves, or call `backward` inside: by the names under which they are imported."""

from __future__ import annotations

import re

FRAMEWORKS = {
    "lightning": "Lightning",
    "pytorch_lightning": "Lightning",
    "lightning_fabric": "Fabric",
    "fastai": "fastai",
    "ignite": "Ignite",
    "horovod": "Horovod",
    "deepspeed": "DeepSpeed",
    "torch_xla": "torch_xla",
    "composer": "Composer",
    "catalyst": "Catalyst",
    "colossalai": "ColossalAI",
    "megatron": "Megatron",
    "ray": "Ray",
    "sagemaker": "SageMaker",
}
# What trains whatever model it is given, by that model's own methods.
RUNNERS = dict.fromkeys(
    (
        "mmcv.runner.build_runner",
        "mmcv.runner.EpochBasedRunner",
        "mmcv.runner.IterBasedRunner",
        "mmengine.runner.Runner",
    ),
    "OpenMMLab's Runner",
)
TRAINERS = {
    **RUNNERS,
    "transformers.Trainer": "the Transformers Trainer",
    "transformers.Seq2SeqTrainer": "the Transformers Trainer",
    "trl": "TRL",
}
HIDDEN = {"timm.utils.NativeScaler": "timm's NativeScaler", "timm.utils.ApexScaler": "timm's ApexScaler"}
# Libraries with a loop of their own, which distribute nothing.
LOOPS = {
    "torchnet.engine": "torchnet's Engine",
    "skorch": "skorch",
    "poutyne": "Poutyne",
    "torchbearer": "torchbearer",
}

_PACKAGES = dict.fromkeys(name.split(".")[0] for name in (*FRAMEWORKS, *TRAINERS, *HIDDEN, *LOOPS))
# To search for a line's end is faster than to search for its start.
_IMPORTS = re.compile(rb"\n[ \t]*(?:import|from)[ \t]+(?:%s)\b" % "|".join(_PACKAGES).encode())


def may_be_imported(data: bytes) -> bool:
    """Whether a text imports a package that has one of them."""
    return _IMPORTS.search(b"\n" + data) is not None
