"""Accelerate's own examples and test scripts, with nothing changed but the import.

    python -m tests.corpora.accelerate_examples CHECKOUT [--only NAME ...] [--processes 1 2] [--library accelerate]

CHECKOUT is a clone of huggingface/accelerate. Every script runs as the library's users run it; data sets,
models and metrics that it would download are stand-ins (`stand_ins`), whose metric also checks that every
sample was counted exactly once. Prints one line per run, and exits with the number of failures.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.ranks import free_port

STAND_INS = Path(__file__).parent / "stand_ins"
EXAMPLES = Path("examples/by_feature")
SCRIPTS = Path("src/accelerate/test_utils/scripts")
HELPERS = Path("src/accelerate/test_utils")
TIMEOUT = 240.0

NOT_OURS = {
    "deepspeed_with_config_support": "DeepSpeed is not part of crosstrain",
    "megatron_lm_gpt_pretraining": "Megatron-LM is not part of crosstrain",
    "fsdp_with_peak_mem_tracking": "the script itself needs a GPU, XPU or NPU (it reads device memory)",
}


@dataclass(frozen=True)
class Run:
    """One script with its arguments; ``worlds``: the numbers of processes that it is written for."""

    script: Path
    args: tuple[str, ...] = ()
    worlds: tuple[int, ...] = (1, 2)

    @property
    def name(self) -> str:
        return " ".join([self.script.stem, *(arg for arg in self.args if arg != "--cpu")])


def _example(name: str, *args: str) -> Run:
    return Run(EXAMPLES / f"{name}.py", ("--cpu", *args))


RUNS = [
    _example("automatic_gradient_accumulation"),
    _example("checkpointing", "--checkpointing_steps", "epoch"),
    _example("checkpointing", "--resume_from_checkpoint", "epoch_0"),
    _example("checkpointing", "--checkpointing_steps", "1"),
    _example("checkpointing", "--resume_from_checkpoint", "step_3"),
    _example("cross_validation"),
    _example("ddp_comm_hook", "--ddp_comm_hook", "fp16"),
    _example("ddp_comm_hook", "--ddp_comm_hook", "power_sgd", "--ddp_comm_wrapper", "bf16"),
    _example("early_stopping"),
    _example("gradient_accumulation", "--gradient_accumulation_steps", "2"),
    _example("gradient_accumulation_for_autoregressive_models", "--gradient_accumulation_steps", "3"),
    _example("local_sgd", "--gradient_accumulation_steps", "2", "--local_sgd_steps", "2"),
    _example("memory"),
    _example("multi_process_metrics"),
    _example("profiler", "--record_shapes", "--output_trace_dir", "traces"),
    _example("schedule_free"),
    _example("tracking", "--with_tracking"),
    *(Run(SCRIPTS / f"test_{name}.py") for name in ("script", "sync", "ops")),
    Run(SCRIPTS / "test_distributed_data_loop.py", worlds=(2,)),  # it checks that there are two
]


def main() -> int:
    """Run what the command line asks for; the number of runs that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument(
        "--only", nargs="+", default=[], dest="names", help="parts of the scripts' names [all]"
    )
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--library", default="crosstrain", help="what `accelerate` becomes [crosstrain]")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the scripts")
    options = parser.parse_args()
    wanted = [run for run in RUNS if not options.names or any(n in run.name for n in options.names)]
    failures = 0
    for world in options.processes:
        chosen = [run for run in wanted if world in run.worlds]
        passed = 0
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            _write_helpers(options.checkout, scratch, options.library)
            for run in chosen:
                error = _run(run, options, world, scratch)
                passed += error is None
                print(f"{'passed' if error is None else 'FAILED'}  {world} processes  {run.name}", flush=True)
                if error is not None:
                    print("    " + error.replace("\n", "\n    "), flush=True)
        print(f"{passed} of {len(chosen)} passed with {world} process{'es' if world > 1 else ''}\n")
        failures += len(chosen) - passed
    for name, reason in NOT_OURS.items():
        print(f"left out: {name}: {reason}")
    return failures


def translate(text: str, library: str) -> str:
    """The script with another library's name in its imports, and its test helpers from our copies."""
    text = re.sub(r"\bfrom accelerate\.test_utils(\.\w+)? import", "from copied_test_utils import", text)
    return re.sub(r"^(\s*)(from|import) accelerate\b", rf"\1\2 {library}", text, flags=re.MULTILINE)


def _write_helpers(checkout: Path, scratch: Path, library: str) -> None:
    """The helpers that the scripts import from accelerate.test_utils, taken out of the checkout."""
    testing = (checkout / HELPERS / "testing.py").read_text()
    wanted = ("assert_exception", "are_the_same_tensors")
    functions = [
        ast.unparse(node)  # with its decorators
        for node in ast.parse(testing).body
        if isinstance(node, ast.FunctionDef) and node.name in wanted
    ]
    head = (
        "from contextlib import contextmanager\nfrom typing import Optional\n"
        f"from {library}.state import AcceleratorState\nfrom {library}.utils import gather\n"
    )
    training = translate((checkout / HELPERS / "training.py").read_text(), library)
    (scratch / "copied_test_utils.py").write_text("\n\n".join([training, head, *functions]))
    shutil.copytree(STAND_INS, scratch, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__*"))


def _run(run: Run, options: argparse.Namespace, world: int, scratch: Path) -> str | None:
    """None, or what went wrong."""
    source = (options.checkout / run.script).read_text()
    script = scratch / f"run_{run.script.name}"
    script.write_text(translate(source, options.library))
    port = str(free_port())
    ranks = []
    for rank in range(world):
        env = dict(os.environ)
        env |= {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(scratch),
            "CROSSTRAIN_QUIET": "1",
            "ACCELERATE_USE_CPU": "1",
        }
        if world > 1:
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_PORT": port}
            env |= {"LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
        ranks.append(
            subprocess.Popen(
                [options.python, str(script), *run.args],
                cwd=scratch,
                env=env,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
    return _outcome(ranks)


def _outcome(ranks: list[subprocess.Popen[str]]) -> str | None:
    problem = None
    for rank, process in enumerate(ranks):
        try:
            output, _ = process.communicate(timeout=5 if problem else TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0] + f"\nstopped after {TIMEOUT:.0f} s"
        if process.returncode and problem is None:
            problem = f"rank {rank}, exit code {process.returncode}:\n" + "\n".join(output.splitlines()[-12:])
    return problem


if __name__ == "__main__":
    sys.exit(main())
