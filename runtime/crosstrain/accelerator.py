"""The Accelerator: one object between a training script and the processes and devices it runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from crosstrain import options
from crosstrain.checkpoint.background import release_copies
from crosstrain.checkpoint.members import CheckpointMembers
from crosstrain.comm.types import DistributedType
from crosstrain.compat import not_supported
from crosstrain.compat.further_members import FurtherMembers
from crosstrain.data.evaluation import EvaluationMembers
from crosstrain.data.options import DataPlan
from crosstrain.data.prepare import prepare_loader
from crosstrain.parts import Parts, join_run
from crosstrain.run import RUN
from crosstrain.state import AcceleratorState, GradientState, ProcessMembers
from crosstrain.step import model as models
from crosstrain.step.accumulation import AccumulationMembers
from crosstrain.step.batch_rows import BatchRowMembers
from crosstrain.step.clipping import ClippingMembers
from crosstrain.step.compilation import compile_prepared
from crosstrain.step.held_objects import reads_on
from crosstrain.step.optimizer import Gate, gate_of
from crosstrain.step.own_draws import DrawMembers, choose_draws
from crosstrain.step.precision import Precision
from crosstrain.step.prepared import PreparedMembers
from crosstrain.step.profiling import profile
from crosstrain.step.scheduler import prepare_scheduler
from crosstrain.step.second_order import second_derivatives
from crosstrain.step.sharding import ShardingMembers
from crosstrain.step.unprepared import plain_backward_weight, watch_steps
from crosstrain.tracking.members import TrackingMembers
from crosstrain.tracking.registry import choose
from crosstrain.utils import checks
from crosstrain.utils.dataclasses import (
    AutocastKwargs,
    DataLoaderConfiguration,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    KwargsHandler,
    ParallelismConfig,
    ProfileKwargs,
    ProjectConfiguration,
)
from crosstrain.utils.memory import release_memory


class Accelerator(
    Parts,
    PreparedMembers,
    AccumulationMembers,
    ClippingMembers,
    BatchRowMembers,
    EvaluationMembers,
    ShardingMembers,
    CheckpointMembers,
    TrackingMembers,
    DrawMembers,
    FurtherMembers,
    ProcessMembers,
):
    """Runs a training script on whatever it was launched on: one process or many, with or without devices.

    Args:
        device_placement: whether `prepare` moves models, and loaders their batches, to `device`.
        split_batches: whether a loader's batch size is the global one; otherwise it is that of each process.
        even_batches: True completes the last global batch from the start of the pass; False leaves it uneven;
            "weighted" splits any batch as evenly as possible and weights every rank's loss by its rows.
        dispatch_batches: whether process 0 reads the data and sends each process its part. None: only for
            iterable data sets that cannot be sharded.
        use_seedable_sampler: whether the random order of a loader is a function of seed and epoch.
        mixed_precision: "no", "fp16" or "bf16". None takes the launcher's choice, else "no".
        downcast_bf16: on backends without autocast, compute float32 as bfloat16 and float64 as float32.
        loss_reduction: "mean": a loss is a mean over rows, and gradients are averaged over the ranks. "sum": a
            loss is a sum over rows, and the gradient is that of the sum over the global batch.
        gradient_accumulation_steps: micro-batches of one optimizer step (see `accumulate`).
        cpu: whether to stay on the CPU where an accelerator exists.
        device: what a process that no launcher started uses, as the script's own option says it: a torch.device, its
            name ("cpu", "cuda:1") or its number (1, "1"). A launched process has its own device, unless this is the
            CPU. A negative number, and a name that torch does not know ("auto"), choose nothing.
        dataloader_config: the loader options in one object.
        project_dir, project_config: where checkpoints and logs go.
        log_with: trackers, by name or as `GeneralTracker` objects.
        rng_types: random streams that loaders copy from process 0 at the start of every pass: "generator",
            "torch", "python", "numpy", or the device's type.
        kwargs_handlers: at most one each of AutocastKwargs, GradScalerKwargs, DistributedDataParallelKwargs,
            InitProcessGroupKwargs and ProfileKwargs.
        step_scheduler_with_optimizer: whether prepared schedulers step only where the optimizer does (alias
            ``step_with_optimizer``).
        gradient_accumulation_plugin: accumulation with all its options.
        dynamo_backend, dynamo_plugin: how prepared models are compiled; by default they are not.
        fsdp_plugin: how prepared models are sharded; by default they are not.
        parallelism_config: the numbers of copies and of shards of each model.
        own_draws: whether each process draws its own random numbers while a prepared loader is being iterated; by
            default it does, unless it was launched with ``--common-draws``.

    Every further Accelerator of a process is the first one's equal: it shares the process group, device and precision, what
    is prepared, the accumulation window, trackers and registered objects, and every option that is not given to it.
    Accumulation options that are given to it are the whole run's; other options are its own.

    Raises:
        NotImplementedError: an option of Accelerate's that does not exist here; the message names the alternative.
        TypeError: an unknown option or kwargs handler.
        ValueError: options that contradict each other or this process's earlier Accelerators, or an unknown value.
    """

    def __init__(
        self,
        device_placement: bool | None = None,
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
        downcast_bf16: bool | str | None = None,
        loss_reduction: Literal["mean", "sum"] | None = None,
        step_with_optimizer: bool | None = None,
        parallelism_config: ParallelismConfig | None = None,
        own_draws: bool | None = None,
        device: torch.device | str | int | None = None,
        **others: Any,
    ) -> None:
        options.refuse(others)
        first: Accelerator | None = RUN.first
        self.handlers = options.sort_handlers(kwargs_handlers, None if first is None else first.handlers)
        comm = join_run(cpu, device, self.handlers.group)
        self.state = AcceleratorState(mixed_precision)
        launch = RUN.launch

        def chosen(value: Any, name: str, default: Any) -> Any:
            return value if value is not None else default if first is None else getattr(first, name)

        accumulation = gradient_accumulation_plugin, gradient_accumulation_steps
        self.gradient_state = GradientState(
            options.accumulation(*accumulation, launch if first is None else None)
        )
        self.loss_reduction = chosen(loss_reduction, "loss_reduction", "mean")
        said = {
            "split_batches": split_batches,
            "even_batches": even_batches,
            "dispatch_batches": dispatch_batches,
            "use_seedable_sampler": use_seedable_sampler,
        }
        firsts = None if first is None else first.dataloader_config
        self.dataloader_config = options.loader_options(
            dataloader_config, said, launch, self.loss_reduction, firsts
        )
        project = options.project(project_config, project_dir)
        self.device_placement = chosen(device_placement, "device_placement", True)
        self.rng_types = list(chosen(rng_types, "rng_types", ("generator",)))
        choose_draws(RUN, own_draws, self.rng_types)
        self.step_scheduler_with_optimizer = chosen(
            options.with_optimizer(step_scheduler_with_optimizer, step_with_optimizer),
            "step_scheduler_with_optimizer",
            True,
        )
        self.downcast_bf16 = options.as_flag(chosen(downcast_bf16, "downcast_bf16", False))
        self.dynamo_plugin = options.dynamo(dynamo_backend, dynamo_plugin, launch)
        if first is not None and dynamo_backend is None and dynamo_plugin is None:
            self.dynamo_plugin = first.dynamo_plugin
        plugin = options.sharding(fsdp_plugin, launch, comm, parallelism_config)
        RUN.fsdp_plugin = plugin or RUN.fsdp_plugin
        RUN.sharded = RUN.sharded or (plugin is not None and comm.world > 1)
        if RUN.sharded and plugin is not None and plugin.cpu_ram_efficient_loading:
            # transformers then loads weights on the main process only, and sharding sends them to the others
            RUN.export(ACCELERATE_USE_FSDP="true", FSDP_CPU_RAM_EFFICIENT_LOADING="true")
        self.log_with = chosen(None if log_with is None else choose(log_with), "log_with", [])
        comm.settle_precision(self.state.mixed_precision, self.downcast_bf16)
        if first is not None:
            self._share(
                first,
                accumulates=accumulation != (None, None),
                project=project if (project_config, project_dir) != (None, None) else None,
                plugin=plugin if (fsdp_plugin, parallelism_config) != (None, None) else None,
                parallelism=parallelism_config,
                logs=log_with is not None,
            )
            return
        self._precision = Precision(
            self.state.mixed_precision, self.device, self.handlers.autocast, self.handlers.scaler
        )
        self._compose(comm, project, plugin, parallelism_config)
        if self._gradients.steps > 1 or self._precision.loss_scale is not None:
            watch_steps()
        if comm.averages:
            self._gradients.active.watch(self._consistency)
            self._gradients.active.watch(self._training_mode)
        RUN.first = self

    @property
    def distributed_type(self) -> DistributedType:
        """How the run is distributed, a `DistributedType`."""
        return self.state.distributed_type

    @property
    def mixed_precision(self) -> str:
        """The precision in which prepared models compute, "no", "fp16" or "bf16"."""
        return self.state.mixed_precision

    @property
    def native_amp(self) -> bool:
        """Whether models compute in mixed precision."""
        return self.mixed_precision != "no"

    # -- preparation ------------------------------------------------------------------------------

    def prepare(self, *args: Any, device_placement: list[bool] | None = None) -> Any:
        """Prepare models, optimizers, loaders and schedulers for this run.

        Returns the objects in the order given, or the object itself where there is only one. Models, optimizers and
        schedulers are changed in place; a loader is replaced by a prepared copy. Batches that come from no DataLoader (a
        generator, a list, a range, a class with `__iter__`) are dealt whole: of P processes each takes every P-th. In an
        object that iterates a DataLoader of its own, that is prepared; of an object that steps optimizers, these are. An
        object of any other type is returned as it is. The order of the arguments does not matter, and preparing an
        object twice changes nothing.

        Args:
            device_placement: for each object, whether it moves to `device`; None for the Accelerator's own option.

        Raises:
            ValueError: ``device_placement`` has another length than ``args``; or a loader cannot be split, or is not
                the same on all processes.
            RuntimeError: the ranks' models differ.
        """
        places = list(device_placement) if device_placement is not None else [None] * len(args)
        if len(places) != len(args):
            raise ValueError(f"device_placement has {len(places)} entries for {len(args)} objects")
        self.state.ensure_alive()
        ready = list(args)
        begun = [index for index, obj in enumerate(args) if reads_on(obj)]
        known: tuple[type, ...] = ()
        for kind, work in self._preparations():
            known += (kind,)
            for index, obj in enumerate(args):
                if isinstance(obj, kind) and index not in begun:
                    ready[index] = work(obj, places[index])
        for index, obj in enumerate(args):
            if not isinstance(obj, known) or index in begun:
                ready[index] = self._others.prepare(obj, self._data_plan(places[index]), index, len(args))
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
        """Prepare a model in place and return it: on the device, equal on every rank, in the run's precision.

        Its gradients are averaged over the ranks, unless ``evaluation_mode``. Where a first forward pass sets weights
        (of lazy layers, or from a first batch), all ranks have rank 0's from the first step on. The model gets those
        members of DistributedDataParallel's that it does not have: `module`, which is the model itself, `no_sync`,
        `require_backward_grad_sync`, `join`, `register_comm_hook` and `static_graph`. A wrapper of torch's keeps its
        names with ``module.``; a DataParallel computes on the process's own device. Raises RuntimeError where the
        ranks' models differ in the name, shape or dtype of a parameter or buffer.
        """
        if model not in self._prepared.models:
            self._prepared.models.append(model)
        if models.is_prepared(model):
            sync = models.sync_of(model)
        else:
            place = self.device_placement if device_placement is None else device_placement
            if self._comm.averages or (place and not hasattr(model, "hf_device_map")):
                place = not models.check_device(model, self.device) and place
            sync = models.prepare(
                model,
                self._comm,
                self._precision,
                device=self.device if place else None,
                ddp=self.handlers.ddp,
                fsdp=self.fsdp_plugin,
                evaluation_mode=evaluation_mode,
                plain_backward=self._plain_backward,
            )
            if self.dynamo_plugin is not None:
                compile_prepared(model, self.dynamo_plugin)
            if RUN.sharded:  # optimizers that were prepared before
                self._adopt_sharded(*self._prepared.optimizers)
        if sync is not None:
            self._prepared.keep_sync(sync)
        return model

    def prepare_optimizer(self, optimizer: Optimizer, device_placement: bool | None = None) -> Optimizer:
        """Prepare an optimizer in place and return it.

        Its `step` and `zero_grad` do nothing before the last micro-batch of an accumulation window. Parameters that
        belong to no prepared model become equal on every rank, and their gradients are averaged too.

        Raises RuntimeError where the ranks' parameters differ in number, shape or dtype.
        """
        if RUN.sharded:
            self._adopt_sharded(optimizer)
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
                self._after_step if self._comm.world > 1 else self._comm.step_done,
                self._loose.adopt,
            )
        if optimizer not in self._prepared.optimizers:
            self._prepared.keep_optimizer(optimizer, gate)
            if self._precision.loss_scale is not None:
                self._precision.loss_scale.wait = len(self._prepared.gates) > 1
        self._loose.adopt(optimizer)
        checks.held("module")
        return optimizer

    def _adopt_sharded(self, *optimizers: Optimizer) -> None:
        from crosstrain.step.fsdp import adopt_optimizer

        for optimizer in optimizers:
            adopt_optimizer(optimizer)

    def prepare_data_loader(
        self,
        data_loader: DataLoader[Any],
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Any = None,
    ) -> DataLoader[Any]:
        """Return a copy of the loader that gives this process's batches, on the device.

        The same loader given again, with the same options, gives the same copy, until `free_memory`.

        Raises NotImplementedError for ``slice_fn_for_dispatch``, and the errors of
        `crosstrain.data.prepare.prepare_loader`.
        """
        if slice_fn_for_dispatch is not None:
            not_supported.refuse(
                "slice_fn_for_dispatch", "batches are cut by rows; dispatch a collate_fn's output"
            )
        plan = self._data_plan(device_placement)
        comm, active = self._comm, self._gradients.active
        loader, before = self._prepared.remembered.get(
            data_loader, plan, lambda: prepare_loader(data_loader, comm, plan, active)
        )
        self._prepared.keep_loader(loader, before)
        return cast("DataLoader[Any]", loader)

    def _data_plan(self, device_placement: bool | None = None) -> DataPlan:
        place = self.device_placement if device_placement is None else device_placement
        rng_types = tuple(map(str, self.rng_types or ("generator",)))
        return DataPlan(**vars(self.dataloader_config), put_on_device=place, rng_types=rng_types)

    def prepare_scheduler(self, scheduler: LRScheduler) -> LRScheduler:
        """Prepare a scheduler in place and return it.

        With ``step_scheduler_with_optimizer``, an optimizer step moves it by as many steps as batches of the script's
        own size were used: one for each process, or a single one with ``split_batches``. Otherwise every call counts, as
        does one behind the pass over a loader in which the optimizer's last step was made.
        """
        if scheduler not in self._prepared.schedulers:
            prepare_scheduler(
                scheduler,
                self._gradients,
                times=1 if self.split_batches else self._comm.replicas,
                with_optimizer=self.step_scheduler_with_optimizer,
            )
            self._prepared.schedulers.append(scheduler)
        return scheduler

    # -- the step ---------------------------------------------------------------------------------

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """Scale the loss for accumulation, the ranks and fp16, and call ``loss.backward(**kwargs)``.

        The loss, a scalar tensor, is divided by the accumulation steps. With ``even_batches="weighted"`` it is
        multiplied by this rank's share of the rows, and with ``loss_reduction="sum"`` by the number of ranks.

        Raises RuntimeError, with several processes, where no model or optimizer was prepared, and where the loss is a sum over
        rows although ``loss_reduction`` says "mean".
        """
        gradients = self._gradients
        given = loss
        if self._comm.world > 1:
            self._outside.backward()
        if self._accumulation.window != 1:
            loss = loss / self._accumulation.window
        if self._comm.averages:
            if not self._prepared.models and not self._prepared.optimizers:
                raise RuntimeError(
                    "backward was called, but no model or optimizer was prepared: every process would train a model of "
                    "its own. Pass them to `prepare` (and the loader with them), or call loss.backward() where "
                    "processes are meant to differ."
                )
            loss = self._batch_rows.apply(loss, given, self.loss_reduction)
            if self._same_data.looks:
                self._same_data.loss(given)
            if checks.first_use("mean"):
                self._check_loss(given)
        loss_scale = self._precision.loss_scale
        if loss_scale is not None:
            loss_scale.adjust()
            loss = loss_scale.scaler.scale(loss)
        models.backward(loss, self._prepared.syncs, kwargs)
        if not gradients.sync_gradients:
            for gate in self._prepared.gates:
                gate.pending = True

    def _plain_backward(self, loose: bool, at_once: bool) -> float:
        self._outside.backward()
        return plain_backward_weight(self.loss_reduction, loose, at_once, self._comm.rank)

    def _check_loss(self, loss: Tensor) -> None:
        """Check the first loss of each calling line against `loss_reduction`."""
        from crosstrain.step.loss_reduction import check  # one process never needs it

        step = (self._gradients.active.current, self._comm.replicas, checks.here())
        models.share_fault(self._prepared.syncs, check(loss, self.loss_reduction, *step))

    def _before_step(self, optimizer: Optimizer) -> AbstractContextManager[None]:
        self._loose.adopt_new(optimizer)
        models.average_local(self._prepared.syncs)
        self._same_data.before(optimizer)
        self._first_steps.before(optimizer)
        return second_derivatives(optimizer, self._comm, self._outside.draws)

    def _after_step(self) -> None:
        for sync in self._prepared.syncs:
            sync.send_buffers()
        self._comm.step_done()
        self._outside.stepped()
        self._same_data.after()

    def profile(
        self, profile_handler: ProfileKwargs | None = None
    ) -> AbstractContextManager[torch.profiler.profile]:
        """Return a context that profiles its body with `torch.profiler`, and gives the profiler.

        ``profile_handler`` defaults to the ProfileKwargs among ``kwargs_handlers``. With its ``output_trace_dir`` set
        the call is collective: process r writes the Chrome trace ``profile_<r>.json`` there and waits for the others.
        """
        return profile(self._comm, profile_handler or self.handlers.profile or ProfileKwargs())

    def autocast(self, autocast_handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """Return a context of the run's mixed precision, for code outside a prepared model's forward."""
        return self._precision.autocast(autocast_handler)

    def free_memory(self, *objects: Any) -> list[None]:
        """Forget everything that was prepared, and an open accumulation window, and free the memory.

        Returns a list of as many None as objects were given: ``model, optimizer = accelerator.free_memory(model,
        optimizer)``.
        """
        for part in (self._prepared, self._evaluations, self._same_data):
            part.forget()
        self.step = 0
        self._gradients.sync_gradients = True
        release_copies()
        return release_memory(*objects)

    def clear(self, *objects: Any) -> list[None]:
        """The same as `free_memory`."""
        return self.free_memory(*objects)
