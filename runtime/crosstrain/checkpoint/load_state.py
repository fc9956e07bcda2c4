"""Continuing a training from a checkpoint, exactly."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from crosstrain.checkpoint import background, manifests, state_files
from crosstrain.checkpoint.manifests import Manifest
from crosstrain.checkpoint.state_files import SAFE, Reading
from crosstrain.checkpoint.training import (
    Position,
    Training,
    chosen_by_main,
    file_name,
    run_collectively,
    single_states,
)
from crosstrain.checkpoint.weights import load_into, load_weights
from crosstrain.step import model as models
from crosstrain.step.loose_parameters import LooseValues, loose_parameters
from crosstrain.utils.messages import say
from crosstrain.utils.random import set_seed


def load_state(
    training: Training, input_dir: str | Path | None = None, strict: bool = True, reading: Reading = SAFE
) -> None:
    """See `Accelerator.load_state`."""
    background.finish(training.comm)
    source = _load_source(training, input_dir)
    manifest = Manifest.read(source)
    modules = list(training.prepared.models)
    for hook in training.load_hooks.values():
        hook(modules, str(source))
    for index, module in enumerate(modules):
        _load_weights(training, module, source, index, strict)
    for name, suffix, objects in single_states(training):
        for index, obj in enumerate(objects):
            path = source / file_name(name, index, suffix)
            _load_part(training, obj, path, required=name == "optimizer", reading=reading)
    training.prepared.positions = _further_positions(training, source, reading)
    _load_custom(training, source, reading)
    _continue(training, source, manifest)
    if training.comm.rank == 0:
        announce_resume(training.prepared.loaders)


def _load_weights(training: Training, module: nn.Module, source: Path, index: int, strict: bool) -> None:
    if (source / f"sharded_{index}").is_dir():
        from crosstrain.checkpoint.sharded import load_parts

        load_parts(module, training.prepared.gates, source / f"sharded_{index}")
    elif models.is_sharded(module):
        from crosstrain.step.fsdp import load_full_state_dict

        state, _ = load_weights(_weights_file(source, index))
        load_full_state_dict(module, state, strict)
    else:
        load_into(models.unwrap(module, keep_torch_compile=False), _weights_file(source, index), strict)


def _load_source(training: Training, input_dir: str | Path | None) -> Path:
    """The checkpoint to load (collective); an error about its files is raised on every process."""
    source = chosen_by_main(training.comm, lambda: _choose_source(training, input_dir))
    own = training.project.save_on_each_node and training.comm.local_rank == 0 < training.comm.rank
    run_collectively(training.comm, lambda: _check_source(source) if own else None)
    return source


def _choose_source(training: Training, input_dir: str | Path | None) -> Path:
    config = training.project
    if input_dir is not None:
        source = Path(input_dir).absolute()
        _check_source(source)
        return source
    if not config.automatic_checkpoint_naming or config.project_dir is None:
        raise ValueError("load_state needs a directory, or a project with automatic_checkpoint_naming")
    return manifests.newest(Path(config.project_dir).absolute())


def _further_positions(training: Training, source: Path, reading: Reading) -> dict[int, Any]:
    """By their index, positions of loaders that this run has not prepared yet, as batches that a loop makes at its head."""
    found: dict[int, Any] = {}
    index = len(training.prepared.loaders)
    while (path := source / file_name("loader", index, ".bin")).is_file():
        found[index] = state_files.load(path, reading)
        index += 1
    return found


def _check_source(source: Path) -> None:
    manifests.recover(source)
    manifests.verify(source)


def _load_part(training: Training, obj: Any, path: Path, required: bool, reading: Reading) -> None:
    if path.is_file():
        obj.load_state_dict(state_files.load(path, reading))
    elif required:
        raise FileNotFoundError(f"{path} is missing: the checkpoint was saved with fewer objects prepared")
    else:
        warnings.warn(f"{path.name} is not in the checkpoint: {_describe(obj)} starts anew", stacklevel=4)


def _load_custom(training: Training, source: Path, reading: Reading) -> None:
    there = len(list(source.glob("custom_checkpoint_*.pkl")))
    if there != len(training.registered):
        raise RuntimeError(
            f"{source} holds {there} registered objects, and {len(training.registered)} are registered now: "
            f"register the same objects, in the same order, before load_state"
        )
    for index, obj in enumerate(training.registered):
        obj.load_state_dict(state_files.load(source / f"custom_checkpoint_{index}.pkl", reading))


def _continue(training: Training, source: Path, manifest: Manifest | None) -> None:
    """Restore random streams, the accumulation window and the number of the next checkpoint."""
    states = source / f"random_states_{training.comm.rank}.pkl"
    same_world = manifest is None or manifest.world == training.comm.world
    if same_world and all(training.comm.all_gather_object(states.is_file())):
        loaded = state_files.load_random_states(states)
        if loaded is not None:
            state_files.restore_random_states(loaded, training.comm, training.gradients.active.draws)
    else:
        saved = "another number of" if manifest is None else manifest.world
        reason = f"was saved by {saved} processes and is loaded by {training.comm.world}"
        if same_world:
            reason = "lacks the random states of some processes"
        warnings.warn(f"the checkpoint {reason}: random streams start from new seeds", stacklevel=4)
        _reseed(training)
    config = training.project
    if manifest is not None:
        accumulation = training.accumulation
        accumulation.step, accumulation.window = manifest.step, manifest.window
        training.gradients.sync_gradients = manifest.sync_gradients
        config.iteration = _next_iteration(training, source, manifest)
        _load_waiting_gradients(training, source, manifest)
    elif match := source.name.removeprefix("checkpoint_"):
        config.iteration = int(match) + 1 if match.isdigit() else config.iteration


def _next_iteration(training: Training, source: Path, manifest: Manifest) -> int:
    """The number after the loaded checkpoint, and after newer ones that were skipped because they are damaged."""
    there = manifests.highest(source.parent.parent) if source.parent.name == "checkpoints" else -1
    return max(manifest.iteration, there) + 1


def _reseed(training: Training) -> None:
    draws = training.gradients.active.draws
    seed = training.comm.broadcast_object(torch.initial_seed() % 2**31)
    with draws.common():  # alike on all ranks, where each has its own streams besides
        set_seed(seed, device_specific=not draws.enabled)


def _load_waiting_gradients(training: Training, source: Path, manifest: Manifest) -> None:
    path = source / f"gradients_{training.comm.rank}.pt"
    if manifest.sync_gradients:
        return
    if manifest.world != training.comm.world or not path.is_file():
        training.accumulation.step = 0
        training.gradients.sync_gradients = True
        warnings.warn(
            "the accumulation window in the checkpoint cannot be continued; a new window begins", stacklevel=5
        )
        return
    owners = [dict(module.named_parameters()) for module in training.prepared.models]
    if loose := loose_parameters(training.prepared):
        owners.append(loose)
    for named, waiting in zip(owners, state_files.load(path), strict=True):
        for name, param in named.items():
            if name in waiting:
                param.grad = waiting[name].to(param.device)
    for sync in training.prepared.syncs:
        sync.mark_local()
    for gate in training.prepared.gates:
        gate.pending = True


def announce_resume(loaders: list[Any]) -> None:
    """Log where each loader continues, because a loop that skips batches by hand would skip them twice."""
    for loader in loaders:
        resume = loader._crosstrain.progress.resume
        if resume is not None:
            say(
                f"the loader over {type(loader.dataset).__name__} continues by itself after batch {resume[0]} of "
                f"epoch {loader.epoch}; do not skip batches in the loop, except with skip_first_batches"
            )


def _describe(obj: Any) -> str:
    return str(obj) if isinstance(obj, (Position, LooseValues)) else f"the {type(obj).__name__}"


def _weights_file(source: Path, index: int) -> Path:
    for name, suffix in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        path = source / file_name(name, index, suffix)
        if path.is_file():
            return path
    why = ": it was saved with fewer models prepared" if index else ""
    raise FileNotFoundError(f"{source} holds no {file_name('model', index, '.safetensors')}{why}")
