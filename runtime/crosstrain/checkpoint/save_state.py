"""Saving a training: everything that was prepared, in a directory that appears when it is complete."""

from __future__ import annotations

import warnings
from pathlib import Path

from crosstrain.checkpoint import manifests, state_files
from crosstrain.checkpoint.manifests import Manifest
from crosstrain.checkpoint.training import Training, in_parts, mains_choice, numbered, single_states, together
from crosstrain.checkpoint.weights import save_object, save_safetensors
from crosstrain.step import model as models
from crosstrain.utils import run_summary
from crosstrain.utils.files import behind_link
from crosstrain.version import __version__


def save_state(
    training: Training, output_dir: str | Path | None = None, safe_serialization: bool = True
) -> str:
    """See `Accelerator.save_state`."""
    config = training.project_configuration
    target = mains_choice(training, lambda: _save_target(training, output_dir))
    if training._comm.averages:
        training._drift.compare(f"save_state to {target}")
    writer = training._comm.local_rank == 0 if config.save_on_each_node else training._comm.rank == 0
    try:
        together(training, lambda: manifests.begin(target) if writer else None)
        together(training, lambda: _write(training, manifests.beside(target), writer, safe_serialization))
        together(training, lambda: manifests.publish(target, _manifest(training)) if writer else None)
    except Exception:
        if writer:
            manifests.abandon(target)
        raise
    if config.automatic_checkpoint_naming:
        config.iteration += 1
        if writer and config.total_limit is not None:
            manifests.prune(target.parent.parent, config.total_limit)
    training._comm.barrier()
    if training._comm.rank == 0:
        run_summary.saved(target)
    return str(target)


def _save_target(training: Training, output_dir: str | Path | None) -> Path:
    config = training.project_configuration
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


def _manifest(training: Training) -> Manifest:
    return Manifest(
        world=training._comm.world,
        step=training._accumulation.step,
        window=training._accumulation.window,
        sync_gradients=training._gradients.sync_gradients,
        iteration=training.project_configuration.iteration,
        version=__version__,
    )


def _write(training: Training, folder: Path, writer: bool, safe: bool) -> None:
    if training._precision.loss_scale is not None:
        training._precision.loss_scale.adjust()
    modules = list(training._models)
    parts = [module for module in modules if in_parts(training, module)]
    # A hook may want the weights; without one, a sharded model is never put together.
    weights = [
        {} if module in parts and not training._save_hooks else training.get_state_dict(module)
        for module in modules
    ]
    for hook in training._save_hooks.values():
        hook(modules, weights, str(folder))
    state_files.save(
        state_files.random_states(training._comm), folder / f"random_states_{training._comm.rank}.pkl"
    )
    _write_waiting_gradients(training, folder)
    for index, module in enumerate(modules):
        if module in parts:
            from crosstrain.checkpoint.sharded import save_parts

            save_parts(module, training._gates, folder / f"sharded_{index}", writer)
    states = [
        (folder / numbered(name, index, suffix), training._comm.to_host(obj.state_dict()))
        for name, suffix, objects in single_states(training)
        for index, obj in enumerate(objects)
    ]
    if not writer:
        return
    for index, state in enumerate(weights):
        if modules[index] in parts:
            continue
        if safe:
            save_safetensors(state, folder / numbered("model", index, ".safetensors"))
        else:
            save_object(state, folder / numbered("pytorch_model", index, ".bin"))
    for path, state in states:
        state_files.save(state, path)
    for index, obj in enumerate(training._custom_objects):
        state = training._comm.to_host(obj.state_dict())
        state_files.save(state, folder / f"custom_checkpoint_{index}.pkl")


def _write_waiting_gradients(training: Training, folder: Path) -> None:
    """Inside an accumulation window the micro-batches so far are part of the training's state."""
    if training._gradients.sync_gradients:
        return
    if any(models.is_sharded(module) for module in training._models):
        warnings.warn(
            "save_state inside an accumulation window: the gradients that a sharded model has gathered in it "
            "are not saved; a training that goes on from here starts the window anew. Save where "
            "accelerator.sync_gradients is true to continue exactly.",
            stacklevel=4,
        )
        return
    waiting = [
        {name: param.grad for name, param in module.named_parameters() if param.grad is not None}
        for module in training._models
    ]
    state_files.save(training._comm.to_host(waiting), folder / f"gradients_{training._comm.rank}.pt")
