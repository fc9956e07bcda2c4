"""Runs the engine on the files of a run: in this process, or in several where there is enough to do."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosstrain_migrate.outcome import Migrated
from crosstrain_migrate.results import FileResult, InputError
from crosstrain_migrate.syntax.problems import syntax_problem

from .progress import Progress
from .sources import Broken, Source, Unusable

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.process import BaseProcess

    from crosstrain_migrate.results import Options

Migrate = Callable[[Path, str, "Options"], FileResult]

# Trees are many objects that live as long as their file: collecting garbage after every 700 new objects, Python's
# default, takes a tenth of the time. Collecting after each file is cheap, because next to nothing is alive then.
_ALLOCATIONS, _GENERATIONS = 50_000, 5
# Starting a process costs as much as migrating about this much code.
_CHARACTERS_PER_PROCESS = 30_000


def collect_rarely() -> None:
    """Makes Python collect garbage as this program needs it: seldom."""
    gc.freeze()  # loaded modules stay: searching them once takes as long as understanding a script
    gc.set_threshold(_ALLOCATIONS, _GENERATIONS, _GENERATIONS)


def migrate_all(
    sources: Sequence[Source], options: Options, migrate: Migrate, progress: Progress
) -> Iterator[Migrated | InputError]:
    """Each file's result, in order."""
    collect_rarely()
    total = sum(len(source.text) for source in sources)
    processes = min(len(sources), _processors(), total // _CHARACTERS_PER_PROCESS)
    if processes > 1:
        yield from _in_processes(sources, options, migrate, processes, progress)
    else:
        one = _one_of_many if len(sources) > 1 else migrate_one
        for source in progress.over(sources, f"{{}} of {len(sources)} scripts migrated"):
            yield one(source, options, migrate)


def _processors() -> int:
    """Those this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def migrate_one(source: Source, options: Options, migrate: Migrate) -> Migrated | InputError:
    """One file's result, or why there is none; never an exception, so that the other files get theirs."""
    if isinstance(source, Broken):
        return source.problem
    try:
        result = migrate(source.path, source.text, options)
        if result.error is not None:
            return result.error
        return checked(Migrated(source, result))
    except (SyntaxError, RecursionError, MemoryError) as error:
        return syntax_problem(source.path, source.text, error)
    except Exception as error:
        # The one place that catches everything: a defect that one file brings out must not cost the others.
        traceback.print_exc(file=sys.stderr)
        reason = f"migrate failed on this file ({type(error).__name__}: {error}); it was not changed"
        return InputError(source.path, reason, "Please report it with the traceback above.")


def _one_of_many(source: Source, options: Options, migrate: Migrate) -> Migrated | InputError:
    found = migrate_one(source, options, migrate)
    gc.collect(1)
    return found


def checked(file: Migrated) -> Migrated | InputError:
    """The file, or why its new text cannot be written in the file's own encoding."""
    try:
        _ = file.after
    except Unusable as problem:
        return problem.error
    return file


def _in_processes(
    sources: Sequence[Source], options: Options, migrate: Migrate, processes: int, progress: Progress
) -> Iterator[Migrated | InputError]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    import crosstrain_migrate.syntax.rewrite  # noqa: F401  # loaded once, and shared by the processes

    collect_rarely()
    # Forking shares what is loaded already; this process has no threads that could be caught half way.
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    pool = ProcessPoolExecutor(processes, context, _end_with_the_parent, (os.getpid(),))
    with _broken_pipes_are_errors(), pool:
        try:
            # The largest file first: begun last, it would keep one process at work when the others have ended.
            largest_first = sorted(range(len(sources)), key=lambda number: -len(sources[number].text))
            futures = {n: pool.submit(_one_of_many, sources[n], options, migrate) for n in largest_first}
            workers = multiprocessing.active_children()
            for number, source in enumerate(sources):
                future = futures[number]
                if progress.is_shown:
                    _watch(future, futures.values(), progress)
                if not isinstance(future.exception(), BrokenProcessPool):
                    yield future.result()
                elif any(_interrupted(worker) for worker in workers):
                    raise KeyboardInterrupt  # which may take longer to come to this process
                else:
                    yield _killed(source)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _watch(future: Future[Any], every: Collection[Future[Any]], progress: Progress) -> None:
    """Waits for one result and shows how many are done."""
    from concurrent.futures import wait

    while wait([future], timeout=0.1).not_done:
        progress.say(f"{sum(one.done() for one in every)} of {len(every)} scripts migrated")


def _interrupted(worker: BaseProcess) -> bool:
    """Whether Ctrl-C has ended a worker of a pool that is broken."""
    worker.join(1)
    return worker.exitcode == -signal.SIGINT


@contextlib.contextmanager
def _broken_pipes_are_errors() -> Iterator[None]:
    """A worker that dies breaks its pipe. The pool must see that as an error; `main` lets the signal end this process."""
    if not hasattr(signal, "SIGPIPE"):
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


def _killed(source: Source) -> InputError:
    reason = "the process that migrated it, or one beside it, was killed"
    return InputError(source.path, reason, "Run migrate on this file alone; it may need more memory.")


def _end_with_the_parent(parent: int) -> None:
    """Ctrl-C ends a worker at once and silently; so does the end of its parent, whatever the reason."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
