"""Parameters that only an optimizer knows are trained like those of a prepared model (contract decisions 31 and 36)."""

from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, FullyShardedDataParallelPlugin, GradScalerKwargs
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS, SGD
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.loose import FEATURES, ROWS, STEPS, Run, Values, Wrapper, batch
from tests.runtime.nets import WEIGHTED, averagings
from tests.support.numbers import steady_adamw
from tests.support.ranks import on_ranks, run_ranks

# Float32 sums of a few terms of order 1 in another order, over a few steps.
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}


def wrapped(run: Run) -> Values:
    run.train(run.sgd(run.model.parameters()), run.model.loss)
    return list(run.model.parameters())


def plain(run: Run) -> Values:
    run.train(run.sgd(run.model.parameters()), run.model.loss, plain=True)
    return list(run.model.parameters())


def mixed(run: Run) -> Values:
    """A prepared model and loose parameters in one optimizer, clipped together."""
    prepared = run.accelerator.prepare(nn.Linear(FEATURES, 1))
    params = [*prepared.parameters(), run.model.scale, run.model.table]
    optimizer = run.sgd(params)
    for _ in range(STEPS):
        out = prepared(batch()[run.rows] * F.embedding(run.rows, run.model.table)) * run.model.scale
        run.accelerator.backward(out.square().mean() * 10)
        params.append(run.accelerator.clip_grad_norm_(params, 0.3))
        optimizer.step()
        optimizer.zero_grad()
    return params


def sparse(run: Run) -> Values:
    """Sparse gradients, of which no module tells; each rank has its own rows of the table."""

    def loss(rows: Tensor) -> Tensor:
        return run.model.net(F.embedding(rows // 2, run.model.table, sparse=True)).square().mean()

    optimizer = run.accelerator.prepare(SGD(run.model.parameters(), 0.2))
    for _ in range(STEPS):
        run.accelerator.backward(loss(run.rows))
        assert run.model.table.grad is not None and run.model.table.grad.is_sparse
        assert run.model.scale.grad is None  # no rank's loss has it
        optimizer.step()
        optimizer.zero_grad()
    return list(run.model.parameters())


def complex_weights(run: Run) -> Values:
    """Of a Fourier transform, before and behind real ones, and some that nobody uses."""
    parts = [nn.Parameter(torch.randn(3, dtype=torch.cfloat)) for _ in range(3)]
    linear = nn.Linear(FEATURES, 1)

    def loss(rows: Tensor) -> Tensor:
        return linear(torch.fft.irfft(torch.fft.rfft(batch()[rows]) * parts[0] * parts[1])).square().mean()

    run.train(run.sgd([parts[0], *linear.parameters(), *parts[1:]]), loss)
    return [*parts[:2], *linear.parameters()]


def one_rank_only(run: Run) -> Values:
    """A parameter that only the rank with the first row uses."""

    def loss(rows: Tensor) -> Tensor:
        plain = (batch()[rows] * run.model.table[0]).square().mean()
        mine = run.model.scale * batch()[0].sum() / len(rows) if 0 in rows else torch.zeros(())
        return plain + mine

    run.train(run.sgd([run.model.scale, run.model.table]), loss)
    return [run.model.scale, run.model.table]


def shared(run: Run) -> Values:
    """Two optimizers, each with parameters that the other one has too."""
    first = run.sgd([*run.model.net.parameters(), run.model.scale])
    second = run.sgd([run.model.scale, run.model.table])
    for _ in range(STEPS):
        run.train(first, run.model.loss)
        run.train(second, run.model.loss)
    return list(run.model.parameters())


def added(run: Run) -> Values:
    """Parameters that come later, by `add_param_group`, and into the list of a group."""
    torch.manual_seed(0)
    run.model = model = Wrapper()
    optimizer = run.sgd(model.net[0].parameters())
    run.train(optimizer, model.loss)
    for param in model.parameters():
        param.grad = None  # what gathered there while nothing trained it
    with torch.no_grad():
        model.scale += run.rank  # rank 0's value is taken
    optimizer.add_param_group({"params": [model.scale, *model.net[2].parameters()], "lr": 0.1})
    run.accelerator.backward(model.loss(run.rows))
    assert run.accelerator.clip_grad_norm_(model.scale, 1.0) > 0
    optimizer.step()
    optimizer.zero_grad()
    model.table.grad = None
    optimizer.param_groups[1]["params"].append(model.table)
    run.train(optimizer, model.loss)
    return list(model.parameters())


def lbfgs(run: Run) -> Values:
    optimizer = run.accelerator.prepare(LBFGS(run.model.net.parameters(), 0.1, max_iter=4))

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = run.model.net(batch()[run.rows]).square().mean()
        run.accelerator.backward(loss)
        return run.accelerator.reduce(loss.detach(), "mean")

    for _ in range(STEPS):
        optimizer.step(closure)
    return list(run.model.net.parameters())


def local(run: Run) -> Values:
    """Under `no_sync` nothing is sent; the backward pass after it averages all."""
    optimizer, begun = run.sgd(run.model.parameters()), averagings()
    for _ in range(STEPS):
        with run.accelerator.no_sync(run.model.net):
            sent = len(begun)
            run.accelerator.backward(run.model.loss(run.rows))
            assert len(begun) == sent
        run.accelerator.backward(run.model.loss(run.rows) * 0.5)
        optimizer.step()
        optimizer.zero_grad()
    return list(run.model.parameters())


CASES = [wrapped, plain, mixed, sparse, complex_weights, one_rank_only, shared, added, lbfgs, local]


def _all_cases() -> dict[str, Values]:
    accelerator = Accelerator(cpu=True)
    results = {}
    for case in CASES:
        results[case.__name__] = [value.detach().clone() for value in case(Run(accelerator))]
        accelerator.free_memory()
    return results


def test_any_number_of_processes_trains_what_one_does() -> None:
    (alone,) = run_ranks(_all_cases, 1)
    for world in (2, 3):
        ranks = run_ranks(_all_cases, world)
        for name, expected in alone.items():
            for values in ranks:
                context = f"{name} on {world} processes: {{}}".format
                torch.testing.assert_close(values[name], ranks[0][name], rtol=0, atol=0, msg=context)
                torch.testing.assert_close(values[name], expected, **CLOSE, msg=context)


OPTIONS: dict[str, dict[str, Any]] = {
    "accumulate": {"gradient_accumulation_steps": 2, "split_batches": True},
    "plain": {"gradient_accumulation_steps": 2, "split_batches": True},
    "sum": {"loss_reduction": "sum", "split_batches": True},
    "weighted": WEIGHTED,
    "plain and weighted": WEIGHTED,
    "bf16": {"mixed_precision": "bf16", "split_batches": True},
    "fp16": {
        "mixed_precision": "fp16",
        "split_batches": True,
        "kwargs_handlers": [GradScalerKwargs(init_scale=64)],  # no step is skipped
    },
}


def _with_loader(case: str) -> tuple[Values, int]:
    """A training with a prepared loader and loose parameters; returns them and the number of averagings."""
    begun = averagings()
    accelerator = Accelerator(cpu=True, **OPTIONS[case])
    torch.manual_seed(accelerator.process_index)
    model = Wrapper()
    loader = DataLoader(TensorDataset(torch.arange(ROWS - 1 if "weighted" in case else ROWS)), batch_size=6)
    optimizer, loader = accelerator.prepare(SGD(model.parameters(), 0.1, momentum=0.5), loader)
    if case == "plain and weighted":
        accelerator.prepare(model.net)
    for _ in range(2):
        for (some,) in loader:
            with accelerator.accumulate():
                with accelerator.autocast():
                    loss = model.loss(some)
                if case == "sum":
                    loss = loss * len(some)
                if "plain" in case:
                    (loss / 2).backward(retain_graph=True)
                if case == "plain and weighted":  # on top of what is averaged already
                    (loss / 2).backward()
                elif case != "plain":
                    accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
    return [param.detach() for param in model.parameters()], len(begun)


@pytest.mark.parametrize("case", OPTIONS)
def test_with_windows_sums_weights_and_precisions(case: str) -> None:
    """Half precision rounds each rank's rows as it does those of one process, so that float32 sums differ as ever."""
    close = CLOSE if "16" not in case else {"rtol": 1e-2, "atol": 1e-3}
    ((alone, _),) = run_ranks(_with_loader, 1, case)
    for world in (2, 3):
        ranks = run_ranks(_with_loader, world, case)
        for values, sent in ranks:
            torch.testing.assert_close(values, ranks[0][0], rtol=0, atol=0)
            torch.testing.assert_close(values, alone, **close)
            assert sent == {"accumulate": 2, "plain": 2, "plain and weighted": 16}.get(case, 4)


@on_ranks(2)
def test_drift_is_an_error_after_100_steps_without_a_pass() -> None:
    accelerator = Accelerator(cpu=True)
    run = Run(accelerator)
    optimizer = run.sgd(run.model.parameters())
    said = r"weights have drifted apart before step 101 of the SGD(.|\n)*SGD.param_groups\[0\].params\[4\]"
    with pytest.raises(RuntimeError, match=said):
        for step in range(120):
            if step == 50 and run.rank:
                with torch.no_grad():
                    run.model.scale *= 1.5
            accelerator.backward(run.model.loss(run.rows))
            optimizer.step()
            optimizer.zero_grad()
    assert step == 100


def _wrapped_by_the_script() -> Values:
    """The script has made a DistributedDataParallel, and gives only the optimizer to `prepare`."""
    run = Run(Accelerator(cpu=True))
    net: Any = run.model.net
    if run.world > 1:
        net = nn.parallel.DistributedDataParallel(net)
    run.train(run.sgd(net.parameters()), lambda rows: net(batch()[rows]).square().mean())
    return [param.detach() for param in net.parameters()]


def test_a_model_that_averages_by_itself() -> None:
    (alone,) = run_ranks(_wrapped_by_the_script, 1)
    for values in run_ranks(_wrapped_by_the_script, 2):
        torch.testing.assert_close(values, alone, **CLOSE)


class ActNorm(nn.Module):
    """Starts from the statistics of its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(FEATURES))
        self.register_buffer("codes", torch.zeros(FEATURES))
        self.norm = nn.BatchNorm1d(FEATURES)
        self.begun = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.begun:
            self.begun = True
            self.scale.data = 1 / x.detach().std(0)
            self.codes = x.detach().mean(0)
        return self.norm(x) * self.scale + self.codes


def _parted(plain: bool) -> tuple[Values, str]:
    import contextlib
    import io
    import os

    os.environ["CROSSTRAIN_QUIET"] = "0"
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        accelerator = Accelerator(cpu=True)
        run = Run(accelerator)
        model = nn.Sequential(ActNorm(), nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.Linear(3, 1))
        loose = nn.LazyLinear(FEATURES)
        optimizer: Any = SGD([*model.parameters(), *loose.parameters()], 0.1)
        model, optimizer = accelerator.prepare(model, optimizer)
        values = []
        for _ in range(3):
            loss = model(loose(batch()[run.rows])).square().mean()
            if plain:
                loss.backward()
            else:
                accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            values += [p.detach().clone() for p in (*model.parameters(), *loose.parameters())]
        values += [buffer.clone() for buffer in model.buffers()]
    return values, said.getvalue()


@pytest.mark.parametrize("plain", [False, True])
def test_replicas_that_part_before_the_first_step_are_put_together(plain: bool) -> None:
    for world in (1, 2, 3):
        ranks = run_ranks(_parted, world, plain)
        for values, _ in ranks:
            torch.testing.assert_close(values, ranks[0][0], rtol=0, atol=0)
        assert not any(said for _, said in ranks[1:])
        said = ranks[0][1]
        if world == 1:
            assert said == ""
            continue
        assert "0.scale, Sequential.0.codes differed from process to process before the first step" in said
        assert "1.weight" in said and "got their first values in a forward pass" in said
        assert "running_mean" not in said


# -- Parameters that only an optimizer knows, in checkpoints and beside a sharded model --------------------


def _saved(folder: str, resumes: bool, window: bool) -> tuple[Values, list[str]]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2 if window else 1)
    run = Run(accelerator)
    prepared = accelerator.prepare(nn.Linear(FEATURES, FEATURES))
    params = [*prepared.parameters(), *run.model.parameters()]
    optimizer = run.sgd(params)

    def step() -> None:
        with accelerator.accumulate():
            out = run.model.net(prepared(batch()[run.rows])) * run.model.scale
            accelerator.backward(out.square().mean())
            optimizer.step()
            optimizer.zero_grad()

    names = []
    if resumes:
        accelerator.load_state(folder)
    else:
        for _ in range(3):
            step()
        accelerator.save_state(folder)
        names = sorted(path.name for path in Path(folder).iterdir())
    for _ in range(3):
        step()
    return [param.detach() for param in params], names


@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("world", [1, 2])
def test_saved_and_resumed_with_the_optimizer(tmp_path: Path, world: int, window: bool) -> None:
    folder = str(tmp_path / "state")
    first = run_ranks(_saved, world, folder, False, window)
    assert "loose_parameters.bin" in first[0][1]
    for (went_on, _), (resumed, _) in zip(first, run_ranks(_saved, world, folder, True, window), strict=True):
        torch.testing.assert_close(went_on, resumed, rtol=0, atol=0)


def _sharded(optimizer_first: bool, one_optimizer: bool, kind: str, folder: str) -> tuple[Values, Values]:
    """The values after a training, and what the last step made of a checkpoint before it."""
    accelerator = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(state_dict_type=kind))
    run = Run(accelerator)
    if run.rank == 0:
        torch.manual_seed(0)
    model: Any = nn.Linear(FEATURES, 1)
    sharded, loose = list(model.parameters()), [run.model.scale, run.model.table]
    groups = [[*sharded, *loose]] if one_optimizer else [sharded, loose]
    optimizers = [steady_adamw(group, lr=0.1) for group in groups]
    if optimizer_first:
        optimizers = [accelerator.prepare(optimizer) for optimizer in optimizers]
    model = accelerator.prepare(model)
    optimizers = [accelerator.prepare(optimizer) for optimizer in optimizers]
    norms = []

    def step() -> None:
        out = model(batch()[run.rows] * F.embedding(run.rows, run.model.table)) * run.model.scale
        accelerator.backward(out.square().mean() * 10)
        norms.append(accelerator.clip_grad_norm_([*model.parameters(), *loose], 0.3))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(STEPS):
        step()
    accelerator.save_state(folder)
    step()
    after = [*norms, *(param.detach().clone() for param in loose)]
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        after += [value.clone() for value in state.values()]
    accelerator.load_state(folder)
    step()
    assert norms[-1] == norms[-2]
    return after, [param.detach() for param in loose]


@pytest.mark.parametrize("optimizer_first", [False, True])
@pytest.mark.parametrize("one_optimizer", [False, True])
def test_they_stay_whole_beside_shards(tmp_path: Path, optimizer_first: bool, one_optimizer: bool) -> None:
    case = optimizer_first, one_optimizer
    ((alone, _),) = run_ranks(_sharded, 1, *case, "FULL_STATE_DICT", str(tmp_path / "alone"))
    for kind in ("FULL_STATE_DICT", "SHARDED_STATE_DICT"):
        ranks = run_ranks(_sharded, 2, *case, kind, str(tmp_path / kind))
        # Float32 sums of a few terms in another order, over four steps.
        torch.testing.assert_close(ranks[0][0], alone, rtol=1e-4, atol=1e-5)
        for _, resumed in ranks:
            torch.testing.assert_close(resumed, ranks[0][0][STEPS + 1 : STEPS + 3], rtol=0, atol=0)


def _prepared_behind_its_forward(whole: bool) -> float:
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1, bias=False))
    for param in model.parameters():
        nn.init.ones_(param)
    loss = model(torch.full((1, 2), float(accelerator.process_index))).sum()
    optimizer = SGD(model.parameters(), 0.1)
    if whole:
        loss.backward()
        model, optimizer = accelerator.prepare(model, optimizer)
    else:
        optimizer = accelerator.prepare(optimizer)
        accelerator.backward(loss)
    optimizer.step()
    return float(model[1].weight[0, 0].item())


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_prepared_behind_the_first_forward_or_backward(whole: bool) -> None:
    """A helper that is given the loss and the optimizer, `update(loss, optimizer)`, or steps behind the backward."""
    weight = 1 - 0.1 * (1 + 3) / 2  # the layer below gives 1 and 3
    assert run_ranks(_prepared_behind_its_forward, 2, whole) == pytest.approx([weight, weight])
