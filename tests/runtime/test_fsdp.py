"""Sharded training computes what one process computes."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, DistributedType
from crosstrain.utils import FullyShardedDataParallelPlugin, ParallelismConfig
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

from tests.support.numbers import furthest, steady_adamw, steady_tolerance
from tests.support.ranks import on_ranks, run_ranks

WEIGHTED = {"split_batches": True, "even_batches": "weighted"}
RATE = 0.02
# At most three steps of a used optimizer and four over 22 rows in sixes; clipping leaves no gradient above 0.1.
TOLERANCE = steady_tolerance(RATE, steps=7, size=0.1)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 10), nn.Linear(10, 6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(self.one(x).relu()) + self.frozen(x)


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.head = nn.Linear(6, 3)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x)) * self.scale


def _data() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(22, 6, generator=generator), torch.randn(22, 3, generator=generator))
    return DataLoader(data, batch_size=6, shuffle=True, generator=torch.Generator().manual_seed(2))


def _plugin(options: dict[str, Any]) -> FullyShardedDataParallelPlugin:
    return FullyShardedDataParallelPlugin(**({"transformer_cls_names_to_wrap": ["Block"]} | options))


def _train(
    options: dict[str, Any], steps_before: int = 0, where: str = "", load: str = "", more: Any = None
) -> dict[str, Any]:
    accelerator = Accelerator(cpu=True, fsdp_plugin=_plugin(options), **WEIGHTED, **(more or {}))
    model = Stack()
    body = [p for n, p in model.named_parameters() if "head" not in n]
    optimizer = steady_adamw(
        [{"params": body, "lr": RATE}, {"params": model.head.parameters(), "lr": 0.01, "weight_decay": 0.0}]
    )
    for _ in range(steps_before):  # the optimizer has a state when it is prepared
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    given = model, optimizer
    model, optimizer, loader = accelerator.prepare(model, optimizer, _data())
    assert (model, optimizer) == given
    assert isinstance(model, Stack)
    if load:
        accelerator.load_state(load)
    norms = []
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward((model(x) - y).square().mean())
            if accelerator.sync_gradients:
                norms.append(accelerator.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
            optimizer.zero_grad()
    if where:
        accelerator.save_state(where)
    state = accelerator.get_state_dict(model)
    parts = sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel() for p in model.parameters())
    return {
        "state": copy.deepcopy(state) if accelerator.is_main_process else {},
        "norms": norms,
        "parts": parts,
        "type": accelerator.distributed_type,
    }


def _same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    distance, name = furthest(a, b)
    assert distance < TOLERANCE, name


BY_SIZE = {"reshard_after_forward": False, "auto_wrap_policy": "size_based_wrap", "min_num_params": 100}
SHARDED: list[Any] = [({}, 0, {}), ({"activation_checkpointing": True}, 3, {}), (BY_SIZE, 0, {})]
SHARDED += [({"cpu_offload": True}, 0, {"gradient_accumulation_steps": 3})]


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize(
    ("options", "steps_before", "more"), SHARDED, ids=["blocks", "used optimizer", "by size", "accumulation"]
)
def test_sharded_equals_one_process(world: int, options: Any, steps_before: int, more: Any) -> None:
    (alone,) = run_ranks(_train, 1, options, steps_before, "", "", more)
    ranks = run_ranks(_train, world, options, steps_before, "", "", more)
    assert alone["type"] == DistributedType.NO
    assert all(rank["type"] == DistributedType.FSDP for rank in ranks)
    assert all(rank["parts"] < alone["parts"] for rank in ranks)
    _same(alone["state"], ranks[0]["state"])
    for rank in ranks:
        assert rank["norms"] == pytest.approx(alone["norms"], rel=1e-4)


@pytest.mark.parametrize("kind", ["SHARDED_STATE_DICT", "FULL_STATE_DICT"])
def test_a_sharded_training_continues_with_any_number_of_processes(kind: str, tmp_path: Path) -> None:
    options = {"state_dict_type": kind}
    where = str(tmp_path / "state")
    run_ranks(_train, 2, options, 0, where)
    expected = run_ranks(_train, 2, options, 0, "", where)[0]["state"]
    names = {path.name for path in Path(where).iterdir()}
    assert ("sharded_0" in names) == (kind == "SHARDED_STATE_DICT")
    assert ("model.safetensors" in names) == (kind == "FULL_STATE_DICT")
    _same(expected, run_ranks(_train, 4, options, 0, "", where)[0]["state"])


HYBRID: dict[str, Any] = {"sharding_strategy": "HYBRID_SHARD", "hybrid_shard_size": 2}


@pytest.mark.parametrize("kind", ["SHARDED_STATE_DICT", "FULL_STATE_DICT"])
def test_hybrid_sharding_equals_one_process_and_continues_elsewhere(kind: str, tmp_path: Path) -> None:
    where = str(tmp_path / "state")
    (alone,) = run_ranks(_train, 1, {})
    for rank in run_ranks(_train, 4, HYBRID | {"state_dict_type": kind}, 0, where):
        _same(alone["state"], rank["state"] or alone["state"])
        assert rank["norms"] == pytest.approx(alone["norms"], rel=1e-4)
    expected = run_ranks(_train, 2, {"state_dict_type": kind}, 0, "", where)[0]["state"]
    _same(expected, run_ranks(_train, 4, HYBRID | {"state_dict_type": kind}, 0, "", where)[0]["state"])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"dp_shard_size": 2}, "is for 2 processes, and this run has 1"),
        ({"tp_size": 2}, "tp_size=2 is not part of"),
    ],
)
def test_sizes_that_this_run_does_not_have_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=message):
        Accelerator(cpu=True, parallelism_config=ParallelismConfig(**sizes))


@pytest.mark.parametrize("name", ["bf16", "fp16"])
@on_ranks(2)
def test_mixed_precision(name: str) -> None:
    accelerator = Accelerator(cpu=True, mixed_precision=name, fsdp_plugin=_plugin({}))
    model = Stack()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    skipped = []
    for step in range(3):
        out = model(torch.ones(2, 6))
        factor = float("inf") if (step, accelerator.process_index) == (1, 1) else 1.0
        accelerator.backward(out.square().mean() * factor / 1024)
        optimizer.step()
        optimizer.zero_grad()
        skipped.append(accelerator.optimizer_step_was_skipped)
        assert out.dtype == torch.float32
    assert skipped == [False, name == "fp16", False]


@on_ranks(2)
def test_a_collective_save_under_a_guard_is_reported() -> None:
    """accelerate deadlocks here."""
    accelerator = Accelerator(cpu=True, fsdp_plugin=_plugin({}))
    model = accelerator.prepare(Stack())
    said = r"rank 0: get_state_dict of a sharded model at (.|\n)*rank 1: wait_for_everyone at "
    with pytest.raises(RuntimeError, match=said):
        if accelerator.is_main_process:
            accelerator.save_model(model, "nowhere.pt")
        accelerator.wait_for_everyone()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sharding_strategy": "NO_SHARD"}, "choose one of FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD"),
        ({"hybrid_shard_size": 2}, "needs sharding_strategy='HYBRID_SHARD'"),
        ({"state_dict_type": "LOCAL_STATE_DICT"}, "choose SHARDED_STATE_DICT or FULL_STATE_DICT"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FullyShardedDataParallelPlugin(**options)


@on_ranks(2)
def test_an_unknown_class_to_wrap_is_named() -> None:
    accelerator = Accelerator(cpu=True, fsdp_plugin=_plugin({"transformer_cls_names_to_wrap": "Bloc"}))
    with pytest.raises(ValueError, match=r"names \['Bloc'\], but Stack has no such modules"):
        accelerator.prepare(Stack())


# -- Sharding a model needs no room for the whole: at most a process's part and one unit -------------------

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
        return self.layers(x) * self.scale


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
    assert all(0.0 < float(weight.abs().max()) < 1.0 for weight in ranks[0][1])


def _init(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        module.reset_parameters()
    else:
        module.scale.fill_(3.0)  # type: ignore[operator]


@on_ranks(2)
def test_a_module_on_meta_that_cannot_be_initialised_is_named() -> None:
    with pytest.raises(RuntimeError, match="Tower was made on the meta device, and nothing initialises"):
        _prepare("meta", {})
