"""A stand-in for `transformers`: word numbers, two small models, two schedules."""

from __future__ import annotations

import random
import zlib
from collections import OrderedDict, UserDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

VOCABULARY = 64


class BatchEncoding(UserDict[str, Any]):
    """What a tokenizer gives."""

    def to(self, device: Any) -> BatchEncoding:
        self.data = {name: value.to(device) for name, value in self.data.items()}
        return self


class Tokenizer:
    eos_token = "</s>"
    pad_token = "</s>"
    pad_token_id = 0

    def __call__(
        self, first: list[str], second: list[str] | None = None, return_attention_mask: bool = True, **_: Any
    ) -> BatchEncoding:
        pairs = first if second is None else [f"{a} | {b}" for a, b in zip(first, second, strict=True)]
        ids = [[1 + zlib.crc32(word.encode()) % (VOCABULARY - 1) for word in text.split()] for text in pairs]
        made = BatchEncoding({"input_ids": ids})
        if return_attention_mask:
            made["attention_mask"] = [[1] * len(row) for row in ids]
        return made

    def pad(
        self, rows: list[dict[str, Any]], max_length: int | None = None, pad_to_multiple_of: int | None = None, **_: Any
    ) -> BatchEncoding:  # fmt: skip
        length = max(max_length or 0, *(len(row["input_ids"]) for row in rows))
        length += -length % (pad_to_multiple_of or 1)
        out: dict[str, Any] = {}
        for name in rows[0]:
            values = [row[name] for row in rows]
            if isinstance(values[0], list):
                values = [value + [0] * (length - len(value)) for value in values]
            out[name] = torch.tensor(values)
        return BatchEncoding(out)


class AutoTokenizer:
    @staticmethod
    def from_pretrained(name: str, **_: Any) -> Tokenizer:
        return Tokenizer()


class ModelOutput(OrderedDict[str, Any]):
    """Fields as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 16, padding_idx=0)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(16, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> ModelOutput:
        weight = attention_mask.unsqueeze(-1).float()
        pooled = (self.words(input_ids) * weight).sum(1) / weight.sum(1)
        logits = self.head(self.dropout(pooled))
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return ModelOutput(loss=loss, logits=logits)


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 16)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(
        self, input_ids: Tensor, labels: Tensor, attention_mask: Tensor | None = None, use_cache: bool = False,
        num_items_in_batch: int | None = None,
    ) -> ModelOutput:  # fmt: skip
        logits = self.head(self.words(input_ids))
        total = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        count = num_items_in_batch or labels.ne(-100).sum().clamp(min=1)
        return ModelOutput(loss=total / count, logits=logits)


class AutoModelForSequenceClassification:
    @staticmethod
    def from_pretrained(name: str, **_: Any) -> Classifier:
        return Classifier()


class AutoModelForCausalLM:
    @staticmethod
    def from_pretrained(name: str, **_: Any) -> LanguageModel:
        return LanguageModel()


def get_constant_schedule(optimizer: Optimizer) -> LambdaLR:
    return LambdaLR(optimizer, lambda step: 1.0)


def get_linear_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int
) -> LambdaLR:
    def rate(step: int) -> float:
        if step < num_warmup_steps:
            return step / num_warmup_steps
        return max(0.0, (num_training_steps - step) / max(1, num_training_steps - num_warmup_steps))

    return LambdaLR(optimizer, rate)


def set_seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
