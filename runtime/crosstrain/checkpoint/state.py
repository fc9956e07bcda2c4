"""The part of an Accelerator that saves a training and continues it exactly."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from crosstrain.checkpoint import manifests, state_files
from crosstrain.checkpoint.manifests import CorruptCheckpointError, Manifest
from crosstrain.checkpoint.weights import load_into, load_weights, save_object, save_safetensors
from crosstrain.comm.protocol import Comm
from crosstrain.state import AcceleratorState
from crosstrain.step import model as models
from crosstrain.step.optimizer import Gate
from crosstrain.step.precision import Precision
from crosstrain.step.replica_consistency import Drift
from crosstrain.step.window import Gradients
from crosstrain.utils import run_summary
from crosstrain.utils.files import behind_link
from crosstrain.utils.messages import say
from crosstrain.utils.random import set_seed
from crosstrain.version import __version__

if TYPE_CHECKING:
    from crosstrain.utils.dataclasses import FullyShardedDataParallelPlugin, ProjectConfiguration

SaveHook = Callable[[list[nn.Module], list[dict[str, Any]], str], None]
LoadHook = Callable[[list[nn.Module], str], None]

SHARED_ERRORS: tuple[type[Exception], ...] = (FileNotFoundError, CorruptCheckpointError, ValueError, OSError)


class HookHandle:
    """Takes a hook off again."""

    def __init__(self, hooks: dict[str, Any], key: str) -> None:
        self._hooks = hooks
        self._key = key

    def remove(self) -> None:
        self._hooks.pop(self._key, None)


class Position:
    """A prepared loader's position, with the seed of its order where that is a function of seed and epoch."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._seedable = loader._crosstrain.seedable

    def __str__(self) -> str:
        return f"the order of the loader over {type(self._loader.dataset).__name__}"

    def state_dict(self) -> dict[str, Any]:
        seed = {} if self._seedable is None else {"seed": self._seedable.initial_seed}
        return {**self._loader.state_dict(), **seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._seedable is not None and "seed" in state:
            self._seedable.initial_seed = state["seed"]
        self._loader.load_state_dict(state)


class Checkpoints:
    """Saving and loading of everything that was prepared."""

    step: int
    state: AcceleratorState
    project_configuration: ProjectConfiguration
    fsdp_plugin: FullyShardedDataParallelPlugin | None
    get_state_dict: Callable[..., dict[str, Any]]
    _comm: Comm
    _drift: Drift
    _precision: Precision
    _gradients: Gradients
    _window: int
    _gates: list[Gate]
    _models: list[nn.Module]
    _optimizers: list[Optimizer]
    _schedulers: list[LRScheduler]
    _dataloaders: list[DataLoader[Any]]
    _custom_objects: list[Any]
    _save_hooks: dict[str, SaveHook]
    _load_hooks: dict[str, LoadHook]

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Save and load these objects too, in this order; ValueError lists those without a state."""
        lacking = [
            f"{type(obj).__name__} ({index})"
            for index, obj in enumerate(objects)
            if not hasattr(obj, "state_dict") or not hasattr(obj, "load_state_dict")
        ]
        if lacking:
            raise ValueError(
                f"objects need state_dict and load_state_dict to be checkpointed; missing in: {', '.join(lacking)}"
            )
        self._custom_objects.extend(objects)

    def register_save_state_pre_hook(self, hook: SaveHook) -> HookHandle:
        """Call ``hook(models, weights, directory)`` before weights are written; what it pops it takes over."""
        key = uuid.uuid4().hex
        self._save_hooks[key] = hook
        return HookHandle(self._save_hooks, key)

    def register_load_state_pre_hook(self, hook: LoadHook) -> HookHandle:
        """Call ``hook(models, directory)`` before weights are read; what it pops it takes over."""
        key = uuid.uuid4().hex
        self._load_hooks[key] = hook
        return HookHandle(self._load_hooks, key)

    # -- saving -----------------------------------------------------------------------------------

    def save_state(self, output_dir: str | Path | None = None, safe_serialization: bool = True) -> str:
        """Save models, optimizers, schedulers, loaders, scaler, random streams and registered objects.

        Every process calls it; the main process's directory counts. It appears when it is complete, an older one of the name is replaced
        then. Without ``output_dir``: the next ``checkpoints/checkpoint_<n>`` of the project, with
        automatic_checkpoint_naming. Returns the directory.
        """
        config = self.project_configuration
        target = self._mains_choice(lambda: self._save_target(output_dir))
        if self._comm.averages:
            self._drift.compare(f"save_state to {target}")
        writer = self._comm.local_rank == 0 if config.save_on_each_node else self._comm.rank == 0
        try:
            self._together(lambda: manifests.begin(target) if writer else None)
            self._together(lambda: self._write(manifests.beside(target), writer, safe_serialization))
            self._together(lambda: manifests.publish(target, self._manifest()) if writer else None)
        except Exception:
            if writer:
                manifests.abandon(target)
            raise
        if config.automatic_checkpoint_naming:
            config.iteration += 1
            if writer and config.total_limit is not None:
                manifests.prune(target.parent.parent, config.total_limit)
        self._comm.barrier()
        if self._comm.rank == 0:
            run_summary.saved(target)
        return str(target)

    def _save_target(self, output_dir: str | Path | None) -> Path:
        config = self.project_configuration
        if not config.automatic_checkpoint_naming:
            if output_dir is None:
                raise ValueError(
                    "save_state needs a directory, or ProjectConfiguration(automatic_checkpoint_naming=True)"
                )
            return behind_link(Path(output_dir).absolute())
        project = config.project_dir or output_dir
        if project is None:
            raise ValueError("automatic_checkpoint_naming needs a project_dir")
        target = Path(project).absolute() / "checkpoints" / f"checkpoint_{config.iteration}"
        if target.exists():
            raise ValueError(
                f"{target} exists already: load it with load_state() to go on counting after it, choose another "
                f"project_dir, or set ProjectConfiguration.iteration"
            )
        return target

    def _manifest(self) -> Manifest:
        return Manifest(
            world=self._comm.world,
            step=self.step,
            window=self._window,
            sync_gradients=self._gradients.sync_gradients,
            iteration=self.project_configuration.iteration,
            version=__version__,
        )

    def _mains_choice(self, choose: Callable[[], Path]) -> Path:
        """What the main process chooses, on all: paths may differ (`tempfile`), and so may what they see there."""
        chosen: list[Path] = []
        main = self._comm.rank == 0
        self._together(lambda: chosen.append(choose()) if main else None)
        return self._comm.broadcast_object(chosen[0] if main else Path())

    def _together(self, work: Callable[[], object]) -> None:
        """Do one's part, and wait for the others'; an error on one rank is an error on all, not a hang.

        Errors that a script may catch have the same type everywhere, so that all ranks catch them or none does.
        """
        problem: Exception | None = None
        try:
            work()
        except Exception as error:
            problem = error
        said = self._comm.all_gather_object(
            None if problem is None else (type(problem).__name__, str(problem))
        )
        if problem is not None:
            raise problem
        for rank, error_of in enumerate(said):
            if error_of is not None:
                name, text = error_of
                kind = {kind.__name__: kind for kind in SHARED_ERRORS}.get(name, RuntimeError)
                raise kind(f"the checkpoint failed on rank {rank}: {name}: {text}")

    def _write(self, folder: Path, writer: bool, safe: bool) -> None:
        if self._precision.loss_scale is not None:
            self._precision.loss_scale.adjust()
        modules = list(self._models)
        parts = [module for module in modules if self._in_parts(module)]
        # A hook may want the weights; without one, a sharded model is never put together.
        weights = [
            {} if module in parts and not self._save_hooks else self.get_state_dict(module)
            for module in modules
        ]
        for hook in self._save_hooks.values():
            hook(modules, weights, str(folder))
        state_files.save(
            state_files.random_states(self._comm), folder / f"random_states_{self._comm.rank}.pkl"
        )
        self._write_waiting_gradients(folder)
        for index, module in enumerate(modules):
            if module in parts:
                from crosstrain.checkpoint.sharded import save_parts

                save_parts(module, self._gates, folder / f"sharded_{index}", writer)
        states = [
            (folder / _numbered(name, index, suffix), self._comm.to_host(obj.state_dict()))
            for name, suffix, objects in self._parts()
            for index, obj in enumerate(objects)
        ]
        if not writer:
            return
        for index, state in enumerate(weights):
            if modules[index] in parts:
                continue
            if safe:
                save_safetensors(state, folder / _numbered("model", index, ".safetensors"))
            else:
                save_object(state, folder / _numbered("pytorch_model", index, ".bin"))
        for path, state in states:
            state_files.save(state, path)
        for index, obj in enumerate(self._custom_objects):
            state = self._comm.to_host(obj.state_dict())
            state_files.save(state, folder / f"custom_checkpoint_{index}.pkl")

    def _in_parts(self, module: nn.Module) -> bool:
        """Whether every process writes its own part of this model."""
        plugin = self.fsdp_plugin
        return (
            plugin is not None and plugin.state_dict_type != "FULL_STATE_DICT" and models.is_sharded(module)
        )

    def _optimizer_states(self) -> list[Any]:
        if not any(models.is_sharded(module) for module in self._models):
            return list(self._optimizers)
        from crosstrain.checkpoint.sharded import WholeOptimizer, model_of

        return [
            WholeOptimizer(gate, self._models)
            for gate in self._gates
            if not self._in_parts(model_of(gate.optimizer, self._models))
        ]

    def _parts(self) -> list[tuple[str, str, list[Any]]]:
        loss_scale = self._precision.loss_scale
        return [
            ("optimizer", ".bin", self._optimizer_states()),
            ("scheduler", ".bin", self._schedulers),
            ("loader", ".bin", [Position(loader) for loader in self._dataloaders]),
            ("scaler", ".pt", [] if loss_scale is None else [loss_scale.scaler]),
        ]

    def _write_waiting_gradients(self, folder: Path) -> None:
        """Inside an accumulation window the micro-batches so far are part of the training's state."""
        if self._gradients.sync_gradients:
            return
        if any(models.is_sharded(module) for module in self._models):
            warnings.warn(
                "save_state inside an accumulation window: the gradients that a sharded model has gathered in it "
                "are not saved; a training that goes on from here starts the window anew. Save where "
                "accelerator.sync_gradients is true to continue exactly.",
                stacklevel=4,
            )
            return
        waiting = [
            {name: param.grad for name, param in module.named_parameters() if param.grad is not None}
            for module in self._models
        ]
        state_files.save(self._comm.to_host(waiting), folder / f"gradients_{self._comm.rank}.pt")

    # -- loading ----------------------------------------------------------------------------------

    def load_state(
        self, input_dir: str | Path | None = None, strict: bool = True, allow_pickle: bool = False
    ) -> None:
        """Continue what `save_state` (or accelerate) saved: next batches, random numbers, rates and weights are
        those of the training that was not interrupted, with the same number of processes.

        Every process calls it, with the same objects prepared and registered. Without ``input_dir``: the project's
        newest checkpoint that is complete and unchanged. Raises FileNotFoundError where there is none, and
        CorruptCheckpointError with the names of files that are missing or not what was saved.

        Two things go on otherwise than without the interruption: numbers that the workers of a loader draw in the
        rest of an epoch that was interrupted in its middle (and in later ones, where workers persist), and a
        sharded model's accumulation window (which warns).

        Nothing in the files is run, unless ``allow_pickle`` says that whoever wrote them is trusted: then states
        of registered objects may hold any object.
        """
        source = self._load_source(input_dir)
        manifest = Manifest.read(source)
        modules = list(self._models)
        for hook in self._load_hooks.values():
            hook(modules, str(source))
        for index, module in enumerate(modules):
            self._load_weights(module, source, index, strict)
        for name, suffix, objects in self._parts():
            for index, obj in enumerate(objects):
                path = source / _numbered(name, index, suffix)
                self._load_part(obj, path, required=name == "optimizer", allow_pickle=allow_pickle)
        self._load_custom(source, allow_pickle)
        self._continue(source, manifest)
        if self._comm.rank == 0:
            announce_resume(self._dataloaders)

    def _load_weights(self, module: nn.Module, source: Path, index: int, strict: bool) -> None:
        if (source / f"sharded_{index}").is_dir():
            from crosstrain.checkpoint.sharded import load_parts

            load_parts(module, self._gates, source / f"sharded_{index}")
        elif models.is_sharded(module):
            from crosstrain.step.fsdp import load_full_state_dict

            state, _ = load_weights(_weights_file(source, index))
            load_full_state_dict(module, state, strict)
        else:
            load_into(models.unwrap(module, keep_torch_compile=False), _weights_file(source, index), strict)

    def _load_source(self, input_dir: str | Path | None) -> Path:
        """The checkpoint to load. What is wrong with its files is raised on every process."""
        source = self._mains_choice(lambda: self._choose_source(input_dir))
        own = self.project_configuration.save_on_each_node and self._comm.local_rank == 0 < self._comm.rank
        self._together(lambda: self._check_source(source) if own else None)
        return source

    def _choose_source(self, input_dir: str | Path | None) -> Path:
        config = self.project_configuration
        if input_dir is not None:
            source = Path(input_dir).absolute()
            self._check_source(source)
            return source
        if not config.automatic_checkpoint_naming or config.project_dir is None:
            raise ValueError("load_state needs a directory, or a project with automatic_checkpoint_naming")
        return manifests.newest(Path(config.project_dir).absolute())

    @staticmethod
    def _check_source(source: Path) -> None:
        manifests.recover(source)
        manifests.verify(source)

    def _load_part(self, obj: Any, path: Path, required: bool, allow_pickle: bool) -> None:
        if path.is_file():
            obj.load_state_dict(state_files.load(path, allow_pickle))
        elif required:
            raise FileNotFoundError(
                f"{path} is missing: the checkpoint was saved with fewer objects prepared"
            )
        else:
            warnings.warn(f"{path.name} is not in the checkpoint: {_describe(obj)} starts anew", stacklevel=3)

    def _load_custom(self, source: Path, allow_pickle: bool) -> None:
        there = len(list(source.glob("custom_checkpoint_*.pkl")))
        if there != len(self._custom_objects):
            raise RuntimeError(
                f"{source} holds {there} registered objects, and {len(self._custom_objects)} are registered now: "
                f"register the same objects, in the same order, before load_state"
            )
        for index, obj in enumerate(self._custom_objects):
            obj.load_state_dict(state_files.load(source / f"custom_checkpoint_{index}.pkl", allow_pickle))

    def _continue(self, source: Path, manifest: Manifest | None) -> None:
        """Random streams, the accumulation window and the count of checkpoints."""
        states = source / f"random_states_{self._comm.rank}.pkl"
        same_world = manifest is None or manifest.world == self._comm.world
        if same_world and all(self._comm.all_gather_object(states.is_file())):
            loaded = state_files.load_random_states(states)
            if loaded is not None:
                state_files.restore_random_states(loaded, self._comm)
        else:
            saved = "another number of" if manifest is None else manifest.world
            reason = f"was saved by {saved} processes and is loaded by {self._comm.world}"
            if same_world:
                reason = "lacks the random states of some processes"
            warnings.warn(f"the checkpoint {reason}: random streams start from new seeds", stacklevel=3)
            self._reseed()
        config = self.project_configuration
        if manifest is not None:
            self.step, self._window = manifest.step, manifest.window
            self._gradients.sync_gradients = manifest.sync_gradients
            config.iteration = self._next_iteration(source, manifest)
            self._load_waiting_gradients(source, manifest)
        elif match := source.name.removeprefix("checkpoint_"):
            config.iteration = int(match) + 1 if match.isdigit() else config.iteration

    def _next_iteration(self, source: Path, manifest: Manifest) -> int:
        """After the loaded checkpoint, and after newer ones that were passed over because they are damaged."""
        there = manifests.highest(source.parent.parent) if source.parent.name == "checkpoints" else -1
        return max(manifest.iteration, there) + 1

    def _reseed(self) -> None:
        set_seed(self._comm.broadcast_object(torch.initial_seed() % 2**31), device_specific=True)

    def _load_waiting_gradients(self, source: Path, manifest: Manifest) -> None:
        path = source / f"gradients_{self._comm.rank}.pt"
        if manifest.sync_gradients:
            return
        if manifest.world != self._comm.world or not path.is_file():
            self.step = 0
            self._gradients.sync_gradients = True
            warnings.warn(
                "the accumulation window in the checkpoint cannot be continued and starts anew", stacklevel=4
            )
            return
        for module, waiting in zip(self._models, state_files.load(path), strict=True):
            for name, param in module.named_parameters():
                if name in waiting:
                    param.grad = waiting[name].to(param.device)
            sync = models.sync_of(module)
            if sync is not None:
                sync.mark_local()
        for gate in self._gates:
            gate.pending = True


def announce_resume(loaders: list[Any]) -> None:
    """Where each loader goes on after a load, on the main process: a loop that skips by hand would skip twice."""
    for loader in loaders:
        resume = loader._crosstrain.progress.resume
        if resume is not None:
            say(
                f"the loader over {type(loader.dataset).__name__} goes on by itself behind batch {resume[0]} of "
                f"epoch {loader.epoch}; nothing is to be skipped but by skip_first_batches"
            )


def _describe(obj: Any) -> str:
    return str(obj) if isinstance(obj, Position) else f"the {type(obj).__name__}"


def _numbered(name: str, index: int, suffix: str) -> str:
    return f"{name}{suffix}" if index == 0 else f"{name}_{index}{suffix}"


def _weights_file(source: Path, index: int) -> Path:
    for name, suffix in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        path = source / _numbered(name, index, suffix)
        if path.is_file():
            return path
    why = ": it was saved with fewer models prepared" if index else ""
    raise FileNotFoundError(f"{source} holds no {_numbered('model', index, '.safetensors')}{why}")
