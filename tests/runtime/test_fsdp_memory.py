"""Sharding a model needs no room for the whole: at most a process's part and one unit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.utils import FullyShardedDataParallelPlugin
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.support.ranks import errors_of, run_ranks

WIDTH, LAYERS = 256, 8
LAYER = WIDTH * WIDTH * 4  # bytes
SMALL = 2**14  # biases, buffers, numbers


class Peak(TorchDispatchMode):
    """The most bytes that tensors made inside hold at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._live: dict[Any, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {self._key(leaf) for leaf in tree_leaves(args) if self._counts(leaf)}
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if self._counts(leaf) and self._key(leaf) not in before:
                storage = leaf.untyped_storage()
                self._live[self._key(leaf)] = (StorageWeakRef(storage), storage.nbytes())
        self._live = {key: entry for key, entry in self._live.items() if not entry[0].expired()}
        self.most = max(self.most, sum(size for _, size in self._live.values()))
        return out

    @staticmethod
    def _counts(leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and not isinstance(leaf, DTensor) and leaf.device.type == "cpu"

    @staticmethod
    def _key(leaf: Tensor) -> int:
        return leaf.untyped_storage()._cdata


class Layer(nn.Linear):
    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.register_buffer("scale", torch.full((1,), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x) * self.scale
        return out


def _prepare(where: str, options: dict[str, Any]) -> tuple[int, list[Tensor], float]:
    """The peak of `prepare`; the weights before and after, on the main process; a loss."""
    plugin = FullyShardedDataParallelPlugin(transformer_cls_names_to_wrap=["Layer"], **options)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    torch.manual_seed(accelerator.process_index)
    meta = where == "meta" or (where == "main" and not accelerator.is_main_process)
    with torch.device("meta" if meta else "cpu"):
        model = Tower()
    given = [param.detach().clone() for param in model.parameters()]
    with Peak() as peak:
        model = accelerator.prepare(model)
    loss = model(torch.ones(1, WIDTH)).mean().item()
    state = accelerator.get_state_dict(model)
    same = [state[name] for name, _ in model.named_parameters()] if accelerator.is_main_process else []
    if accelerator.is_main_process and not meta:
        assert all(torch.equal(a, b) for a, b in zip(given, same, strict=True))
    return peak.most, same, loss


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("where", ["meta", "main", "all"])
def test_no_process_holds_more_than_its_part_and_a_layer(where: str, world: int) -> None:
    options: dict[str, Any] = {"cpu_ram_efficient_loading": True}
    if where == "meta":
        options["param_init_fn"] = _init
    ranks = run_ranks(_prepare, world, where, options)
    for peak, _, loss in ranks:
        assert peak <= LAYERS * LAYER / world + LAYER + SMALL, peak / LAYER
        assert loss == pytest.approx(ranks[0][2], rel=1e-5)
    weights = ranks[0][1]
    assert all(0.0 < float(weight.abs().max()) < 1.0 for weight in weights)


def _init(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        module.reset_parameters()
    else:
        module.scale.fill_(3.0)  # type: ignore[operator]


def _refused(options: dict[str, Any]) -> None:
    _prepare("meta" if "param_init_fn" not in options else "main", options)


def test_a_module_on_meta_that_cannot_be_initialised_is_named() -> None:
    for said in errors_of(_refused, 2, {}):
        assert "Tower was made on the meta device, and nothing initialises scale:" in said
