"""Saving a training: everything that was prepared, in a directory that exists only when it is complete."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from crosstrain.checkpoint import background, manifests
from crosstrain.checkpoint.checksums import THREADS
from crosstrain.checkpoint.contents import Part, collect, freeze, write
from crosstrain.checkpoint.manifests import Manifest
from crosstrain.checkpoint.training import Training, chosen_by_main, run_collectively
from crosstrain.utils import run_summary
from crosstrain.utils.files import behind_link
from crosstrain.version import __version__


def save_state(
    training: Training,
    output_dir: str | Path | None = None,
    safe_serialization: bool = True,
    blocking: bool = True,
) -> str:
    """See `Accelerator.save_state`."""
    comm, config = training.comm, training.project
    writer = training.writes_files
    background.finish(comm)
    target = chosen_by_main(training.comm, lambda: _save_target(training, output_dir))
    if comm.averages:
        training.consistency.compare(f"save_state to {target}")
    parts: list[Part] = []

    def prepare() -> None:
        parts.extend(collect(training, manifests.beside(target), writer, safe_serialization))
        if blocking:
            write(parts)
        else:
            freeze(parts)

    publish = partial(_publish, training, target, _manifest(training))
    try:
        run_collectively(comm, lambda: manifests.begin(target) if writer else None)
        run_collectively(comm, prepare)
        if blocking:
            run_collectively(comm, lambda: publish() if writer else None)
    except Exception:
        if writer:
            manifests.abandon(target)
        raise
    if not blocking:
        background.start(
            background.Work(
                target,
                partial(write, parts, beside_training=True),
                partial(publish, threads=0) if writer else None,
                partial(manifests.abandon, target) if writer else None,
            ),
            comm,
        )
    if config.automatic_checkpoint_naming:
        config.iteration += 1
    if blocking:
        comm.barrier()
    return str(target)


def _publish(training: Training, target: Path, manifest: Manifest, threads: int = THREADS) -> None:
    """On a process that writes: give the checkpoint its name and remove the oldest ones beyond the limit."""
    config = training.project
    manifests.publish(target, manifest, threads)
    if config.automatic_checkpoint_naming and config.total_limit is not None:
        manifests.prune(target.parent.parent, config.total_limit)
    if training.comm.rank == 0:
        run_summary.saved(target)


def _save_target(training: Training, output_dir: str | Path | None) -> Path:
    config = training.project
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
            f"{target} exists already: load it with load_state() to continue the numbering after it, choose another "
            f"project_dir, or set ProjectConfiguration.iteration"
        )
    return target


def _manifest(training: Training) -> Manifest:
    return Manifest(
        world=training.comm.world,
        step=training.accumulation.step,
        window=training.accumulation.window,
        sync_gradients=training.gradients.sync_gradients,
        iteration=training.project.iteration,
        version=__version__,
    )
