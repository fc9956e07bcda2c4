"""The Accelerator: one object between a training script and the processes and devices it runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from crosstrain import options
from crosstrain.checkpoint.background import release_copies
from crosstrain.checkpoint.members import CheckpointMembers
from crosstrain.checkpoint.training import Training
from crosstrain.comm.protocol import Comm
from crosstrain.comm.startup_seeds import start_streams_alike
from crosstrain.compat.further_members import FurtherMembers, Trigger
from crosstrain.compat.loader_option_members import LoaderOptionMembers
from crosstrain.compat.process_members import ProcessMembers
from crosstrain.data.metrics import gather_for_metrics, global_rows, own_rows
from crosstrain.data.prepare import prepare_loader
from crosstrain.state import RUN, AcceleratorState, GradientState
from crosstrain.step import model as models
from crosstrain.step import prepare_checks
from crosstrain.step.accumulation import Accumulation, AccumulationMembers
from crosstrain.step.announcement import Announcement
from crosstrain.step.clipping import Clipping, ClippingMembers
from crosstrain.step.compilation import compile_prepared
from crosstrain.step.optimizer import Gate, gate_of
from crosstrain.step.precision import Precision
from crosstrain.step.prepared import Prepared, PreparedMembers
from crosstrain.step.profiling import profile
from crosstrain.step.replica_consistency import Drift
from crosstrain.step.row_weights import RowWeights
from crosstrain.step.scheduler import prepare_scheduler
from crosstrain.step.sharding import Sharding, ShardingMembers
from crosstrain.step.uneven_inputs import join
from crosstrain.step.unprepared import FirstStep, refuse_plain_backward, watch_steps
from crosstrain.tracking.members import Trackers, TrackingMembers
from crosstrain.tracking.registry import choose
from crosstrain.utils import checks, operations
from crosstrain.utils.dataclasses import (
    AutocastKwargs,
    DataLoaderConfiguration,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    InitProcessGroupKwargs,
    KwargsHandler,
    ParallelismConfig,
    ProfileKwargs,
    ProjectConfiguration,
)
from crosstrain.utils.memory import release_memory

# Made anew from the run by an unpickled Accelerator.
_PARTS = {"_comm", "_gradients", "_prepared", "_accumulation", "_clipping", "_drift", "_first_step"}
_PARTS |= {"_row_weights", "_sharding", "_trackers", "_training", "_announcement"}


def _join_run(cpu: bool | None, group: InitProcessGroupKwargs | None) -> Comm:
    """This process's place among the others; the first Accelerator makes random streams alike."""
    first = not RUN.started
    comm = RUN.start(cpu, **({} if group is None else group.to_kwargs()))
    if first:
        start_streams_alike(comm)
    return comm


class Accelerator(
    ProcessMembers,
    LoaderOptionMembers,
    PreparedMembers,
    AccumulationMembers,
    ClippingMembers,
    ShardingMembers,
    CheckpointMembers,
    TrackingMembers,
    FurtherMembers,
):
    """Runs a training script on whatever it was launched on: one process or many, with or without devices.

    Args:
        device_placement: models and batches move to `device`.
        split_batches: a loader's batch size is the global one; otherwise it is each process's.
        even_batches: True completes the last global batch from the start of the pass; False leaves it uneven;
            "weighted" splits any batch as evenly as possible and weights every rank's loss by its rows.
        dispatch_batches: process 0 reads and sends (None: iterable data sets that cannot be sharded).
        use_seedable_sampler: the order is a function of seed and epoch.
        mixed_precision: "no", "fp16" or "bf16".
        downcast_bf16: on backends without autocast, float32 and float64 become bfloat16 and float32.
        loss_reduction: "mean": a loss is a mean over rows, gradients are averaged; "sum": a loss is a sum over
            rows, and the averaged gradient is that of the sum over the global batch.
        gradient_accumulation_steps: micro-batches of one optimizer step (`accumulate`).
        cpu: stay on the CPU.
        dataloader_config: the loader options in one object.
        project_dir, project_config: where checkpoints and logs go.
        log_with: trackers (names or objects).
        rng_types: random streams that loaders copy from process 0 at every pass.
        kwargs_handlers: AutocastKwargs, GradScalerKwargs, DistributedDataParallelKwargs, ...
        step_scheduler_with_optimizer: prepared schedulers follow the optimizer's steps (alias
            ``step_with_optimizer``).
        gradient_accumulation_plugin: accumulation with its finer options.
        dynamo_backend, dynamo_plugin: compile prepared models.
        fsdp_plugin: shard prepared models.

    A second Accelerator in a process shares its place, device and precision.
    """

    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool | None = None,
        mixed_precision: str | None = None,
        gradient_accumulation_steps: int | None = None,
        cpu: bool | None = None,
        dataloader_config: DataLoaderConfiguration | None = None,
        fsdp_plugin: FullyShardedDataParallelPlugin | None = None,
        rng_types: Iterable[str] | None = None,
        log_with: Any | None = None,
        project_dir: str | Path | None = None,
        project_config: ProjectConfiguration | None = None,
        gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
        step_scheduler_with_optimizer: bool | None = None,
        kwargs_handlers: Iterable[KwargsHandler] | None = None,
        dynamo_backend: str | None = None,
        dynamo_plugin: Any | None = None,
        *,
        even_batches: bool | Literal["weighted"] | None = None,
        dispatch_batches: bool | None = None,
        use_seedable_sampler: bool | None = None,
        downcast_bf16: bool | str = False,
        loss_reduction: Literal["mean", "sum"] = "mean",
        step_with_optimizer: bool | None = None,
        parallelism_config: ParallelismConfig | None = None,
        **others: Any,
    ) -> None:
        options.refuse(others)
        self.handlers = options.sort_handlers(kwargs_handlers)
        comm = _join_run(cpu, self.handlers.group)
        self.state = AcceleratorState(mixed_precision)
        launch = RUN.launch
        self.gradient_state = GradientState(
            options.accumulation(gradient_accumulation_plugin, gradient_accumulation_steps, launch)
        )
        self.dataloader_config = options.loader_options(
            dataloader_config,
            launch,
            split_batches=split_batches,
            even_batches=even_batches,
            dispatch_batches=dispatch_batches,
            use_seedable_sampler=use_seedable_sampler,
            loss_reduction=loss_reduction,
        )
        project = options.project(project_config, project_dir)
        self.device_placement = device_placement
        self.rng_types = ["generator"] if rng_types is None else list(rng_types)
        self.step_scheduler_with_optimizer = options.with_optimizer(
            step_scheduler_with_optimizer, step_with_optimizer
        )
        self.loss_reduction = loss_reduction
        self.downcast_bf16 = options.truth(downcast_bf16)
        self.dynamo_plugin = options.dynamo(dynamo_backend, dynamo_plugin, launch)
        plugin = options.sharding(fsdp_plugin, launch, comm, parallelism_config)
        RUN.fsdp_plugin = plugin or RUN.fsdp_plugin
        RUN.sharded = RUN.sharded or (plugin is not None and comm.world > 1)
        if RUN.sharded and plugin is not None and plugin.cpu_ram_efficient_loading:
            # transformers then loads weights on the main process only; sharding sends them on
            RUN.tell(ACCELERATE_USE_FSDP="true", FSDP_CPU_RAM_EFFICIENT_LOADING="true")
        self.log_with = choose(log_with)
        comm.settle_precision(self.state.mixed_precision, self.downcast_bf16)
        self._precision = Precision(
            self.state.mixed_precision, self.device, self.handlers.autocast, self.handlers.scaler
        )
        self._trigger = Trigger()
        self._compose(comm, project, plugin, parallelism_config)
        if self._gradients.steps > 1 or self._precision.loss_scale is not None:
            watch_steps()
        if comm.averages:
            self._gradients.active.watch(self._drift)

    def _compose(
        self,
        comm: Comm,
        project: ProjectConfiguration,
        plugin: FullyShardedDataParallelPlugin | None,
        parallelism: ParallelismConfig | None,
    ) -> None:
        """Make the parts that this object hands its work to. Nothing is prepared, registered or counted yet."""
        self._comm = comm
        self._gradients = gradients = RUN.gradients
        self._prepared = prepared = Prepared()
        self._accumulation = Accumulation(gradients, prepared)
        self._clipping = Clipping(prepared, gradients, self._precision)
        self._drift = Drift(comm, prepared)
        self._first_step = FirstStep(comm)
        self._row_weights = RowWeights(comm, gradients)
        self._sharding = Sharding(comm, prepared, plugin, parallelism)
        self._trackers = Trackers(self.log_with, project)
        self._training = Training(
            comm,
            project,
            prepared,
            gradients,
            self._accumulation,
            self._precision,
            self._drift,
            self._sharding,
        )
        self._announcement = Announcement(self.state, prepared, gradients, self.dataloader_config)

    def __getstate__(self) -> dict[str, Any]:
        """A pickled Accelerator keeps its options and its counts; what was prepared stays behind."""
        state = {name: value for name, value in vars(self).items() if name not in _PARTS}
        state["_composed_of"] = (self.project_configuration, self.fsdp_plugin, self.parallelism_config)
        state["_counted"] = (self._accumulation.step, self._accumulation.window, self._announcement.made)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        composed_of, counted = state.pop("_composed_of"), state.pop("_counted")
        self.__dict__.update(state)
        self._compose(RUN.start(), *composed_of)
        self._accumulation.step, self._accumulation.window, self._announcement.made = counted
        RUN.settle_precision(self._precision.name)

    # -- preparation ------------------------------------------------------------------------------

    def prepare(self, *args: Any, device_placement: list[bool] | None = None) -> Any:
        """Prepare models, optimizers, loaders and schedulers, in place where that is possible.

        Returns them in the order given, a single one bare; what is none of these is passed through. Models
        come before optimizers and schedulers last, in whatever order they are given. Preparing twice
        changes nothing.
        """
        places = list(device_placement) if device_placement is not None else [None] * len(args)
        if len(places) != len(args):
            raise ValueError(f"device_placement has {len(places)} entries for {len(args)} objects")
        self.state.ensure_alive()
        ready = list(args)
        for kind, work in self._preparations():
            for index, obj in enumerate(args):
                if isinstance(obj, kind):
                    ready[index] = work(obj, places[index])
        self._check_passed(args)
        self._announcement.make()
        return ready[0] if len(ready) == 1 else tuple(ready)

    def _preparations(self) -> list[tuple[type, Callable[[Any, Any], Any]]]:
        return [
            (DataLoader, lambda obj, place: self.prepare_data_loader(obj, device_placement=place)),
            (nn.Module, lambda obj, place: self.prepare_model(obj, device_placement=place)),
            (Optimizer, lambda obj, place: self.prepare_optimizer(obj)),
            (LRScheduler, lambda obj, place: self.prepare_scheduler(obj)),
        ]

    def prepare_model(
        self, model: nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> nn.Module:
        """The same model: on the device, alike on every rank, in the run's precision, its gradients averaged.

        ``evaluation_mode``: no averaging. RuntimeError when the ranks' models differ.
        """
        if model not in self._prepared.models:
            self._prepared.models.append(model)
        if models.is_prepared(model):
            sync = models.sync_of(model)
        else:
            place = self.device_placement if device_placement is None else device_placement
            if self._comm.averages or (place and not hasattr(model, "hf_device_map")):
                prepare_checks.check_device(model)
            sync = models.prepare(
                model,
                self._comm,
                self._precision,
                device=self.device if place else None,
                ddp=self.handlers.ddp,
                fsdp=self.fsdp_plugin,
                evaluation_mode=evaluation_mode,
                plain_backward=partial(refuse_plain_backward, self.loss_reduction),
            )
            if self.dynamo_plugin is not None:
                compile_prepared(model, self.dynamo_plugin)
        if sync is not None and sync not in self._prepared.syncs:
            self._prepared.syncs.append(sync)
        return model

    def prepare_optimizer(self, optimizer: Optimizer, device_placement: bool | None = None) -> Optimizer:
        """The same optimizer: `step` and `zero_grad` wait for the end of an accumulation window."""
        if RUN.sharded:
            from crosstrain.step.fsdp import adopt_optimizer

            adopt_optimizer(optimizer)
        gate, several = gate_of(optimizer), self._comm.averages
        if gate is not None and not gate.serves(self._gradients, several=several):
            gate.release()
            gate = None
        if gate is None:
            self._comm.adopt(optimizer)
            gate = Gate(
                optimizer,
                self._gradients,
                self._precision.loss_scale,
                self._before_step if several else None,
                self._send_buffers if several else self._comm.step_done,
            )
        if optimizer not in self._prepared.optimizers:
            self._prepared.optimizers.append(optimizer)
            self._prepared.gates.append(gate)
            if self._precision.loss_scale is not None:
                self._precision.loss_scale.wait = len(self._prepared.gates) > 1
        return optimizer

    def prepare_data_loader(
        self,
        data_loader: DataLoader[Any],
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Any = None,
    ) -> DataLoader[Any]:
        """A loader of this process's batches, on the device."""
        if slice_fn_for_dispatch is not None:
            options.not_ours(
                "slice_fn_for_dispatch", "batches are cut by rows; dispatch a collate_fn's output"
            )
        place = self.device_placement if device_placement is None else device_placement
        plan = options.data_plan(self.dataloader_config, self.rng_types, place)
        loader = prepare_loader(data_loader, self._comm, plan, self._gradients.active)
        if loader not in self._prepared.loaders:
            self._prepared.loaders.append(loader)
        return loader

    def prepare_scheduler(self, scheduler: LRScheduler) -> LRScheduler:
        """The same scheduler: it follows the optimizer steps that happen (see the class's options)."""
        if scheduler not in self._prepared.schedulers:
            prepare_scheduler(
                scheduler,
                self._gradients,
                times=1 if self.split_batches else self._comm.replicas,
                with_optimizer=self.step_scheduler_with_optimizer,
            )
            self._prepared.schedulers.append(scheduler)
        return scheduler

    def _check_passed(self, args: tuple[Any, ...]) -> None:
        """Say what could not be prepared, and would train unsynchronised or on everybody's batches."""
        fed_at = prepare_checks.note_feeders(args, self.is_main_process)
        self._first_step.fed_at = fed_at or self._first_step.fed_at
        for optimizer in self._prepared.optimizers:
            told = self.is_main_process and any(optimizer is obj for obj in args)
            prepare_checks.check_optimizer(optimizer, self._prepared.models, told)

    # -- the step ---------------------------------------------------------------------------------

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """``loss.backward(**kwargs)``, of a loss that is scaled for accumulation, the ranks and fp16.

        The loss is divided by the accumulation steps; with weighted batches it counts by this rank's rows.
        """
        gradients = self._gradients
        given = loss
        if self._accumulation.window != 1:
            loss = loss / self._accumulation.window
        if self._comm.averages:
            if not self._prepared.models:
                raise RuntimeError(
                    "backward was called, but no model was prepared: every process would train a model of its own. "
                    "Pass the model to `prepare` (and the optimizer and the loader with it), or call "
                    "loss.backward() where processes are meant to differ."
                )
            loss = self._row_weights.apply(loss, given, self.loss_reduction)
            if self._first_step.wants_loss:
                self._first_step.loss(given, gradients.active.current is not None)
            if checks.first_use("mean"):
                self._look_at(given)
        loss_scale = self._precision.loss_scale
        if loss_scale is not None:
            loss_scale.adjust()
            loss = loss_scale.scaler.scale(loss)
        models.backward(loss, self._prepared.syncs, kwargs)
        if not gradients.sync_gradients:
            for gate in self._prepared.gates:
                gate.pending = True

    def _look_at(self, loss: Tensor) -> None:
        """The first loss of a call place: is it what `loss_reduction` says?"""
        from crosstrain.step.loss_reduction import check  # with one process nobody looks

        loader = self._gradients.active.current
        fault = check(loss, self.loss_reduction, loader, self._comm.replicas, checks.here())
        models.look(self._prepared.syncs, fault)

    def _before_step(self, optimizer: Optimizer) -> None:
        models.settle(self._prepared.syncs)
        self._first_step.before(optimizer)

    def _send_buffers(self) -> None:
        for sync in self._prepared.syncs:
            sync.send_buffers()
        self._comm.step_done()

    def join_uneven_inputs(
        self, joinables: Sequence[nn.Module], even_batches: bool | Literal["weighted"] | None = None
    ) -> AbstractContextManager[None]:
        """Train inside although processes have different numbers of batches.

        A process without further batches answers the others' averaging with zeros, and takes over the final
        weights. ``even_batches`` holds for the prepared map-style loaders inside.
        """
        syncs = [models.sync_of(model) for model in joinables if isinstance(model, nn.Module)]
        return join(syncs, self._comm, self._prepared.loaders, even_batches)

    def profile(
        self, profile_handler: ProfileKwargs | None = None
    ) -> AbstractContextManager[torch.profiler.profile]:
        """torch.profiler around the body; with ``output_trace_dir`` every process leaves a Chrome trace there, and all
        of them wait for the last."""
        return profile(self._comm, profile_handler or self.handlers.profile or ProfileKwargs())

    def autocast(self, autocast_handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """The run's mixed precision, for code outside a prepared model's forward."""
        return self._precision.autocast(autocast_handler)

    # -- collectives ------------------------------------------------------------------------------

    def gather(self, tensor: Any) -> Any:
        """Concatenate over the ranks along dim 0: see `crosstrain.utils.operations.gather`."""
        return operations.gather(tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """`gather` for the rows of the loop's batch (or k rows per sample, or one value), without those that only
        even out the last one: see `crosstrain.data.metrics.gather_for_metrics`.
        """
        return gather_for_metrics(input_data, self._gradients.active, self._comm, use_gather_object)

    def global_rows(self, rows: Any) -> int:
        """How many rows of the batch all ranks have, where this one has ``rows``: as many as `gather_for_metrics`
        returns, without communication.
        """
        return global_rows(rows, self._gradients.active, self._comm)

    def own_rows(self, rows: Any) -> Any:
        """This rank's part of what `gather_for_metrics` returns, without communication: what is added up over these
        rows, of all batches, `reduce` makes the sum of all ranks. None may be left of a last batch.
        """
        return own_rows(rows, self._gradients.active, self._comm)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """New tensors (or numbers, where Python's are given) with the sum, mean, max or min over the ranks.

        While a weighted loader is iterated, "mean" weights each rank's tensors as `backward` does: the mean of the
        ranks' row means is then the mean over all rows. After the loop that still holds for the last loss. A rank
        without rows in the last step, which only keeps the others company, adds nothing to "sum". Numbers, which
        have been added up over several steps as a rule, count as they are.
        """
        return operations.reduce(self._row_weights.before_reduction(tensor, reduction), reduction, scale)

    def weighted(self, tensor: Any) -> Any:
        """What this rank's mean over its rows contributes to the mean over the ranks; no communication.

        That is ``tensor`` itself, times the rank's weight in a step whose rows are not spread evenly over the ranks
        (`even_batches="weighted"`). Sums of it are reduced with "mean" when the loop is over.
        """
        return self._row_weights.mean(tensor)

    def pad_across_processes(
        self, tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False
    ) -> Any:
        """Pad ``dim`` to the longest over the ranks: see `crosstrain.utils.operations.pad_across_processes`."""
        return operations.pad_across_processes(tensor, dim, pad_index, pad_first)

    # -- models -----------------------------------------------------------------------------------

    def unwrap_model(
        self, model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True
    ) -> nn.Module:
        """The user's module. ``keep_fp32_wrapper=False`` gives it its own forward back."""
        return models.unwrap(model, keep_fp32_wrapper, keep_torch_compile)

    def free_memory(self, *objects: Any) -> list[None]:
        """Forget everything that was prepared, an open accumulation window too, and free its memory.

        Returns as many None as objects were given.
        """
        self._prepared.forget()
        self.step = 0
        self._first_step = FirstStep(self._comm)
        self._gradients.sync_gradients = True
        release_copies()
        return release_memory(*objects)

    def clear(self, *objects: Any) -> list[None]:
        """`free_memory` under its other name."""
        return self.free_memory(*objects)
