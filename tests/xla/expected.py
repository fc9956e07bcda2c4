"""What is known not to run on XLA's CPU client, and what such a run says: docs/run_where.md explains each.

A dry run of `make gpu-check` fails where a case of these ends otherwise, and where another one fails.
"""

import re

ONE_CHIP = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "1", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
# Compiling takes most of the time of runs as short as these.
ONE_CHIP["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
# By golden case: how it ends, and what its run prints.
NO_JAX = ("cannot", r"No module named 'jax'")
NOT_PREPARED = ("cannot", r"they would never be trained")
EXPECTED = {
    "char_lm": NO_JAX,
    "token_crops": NO_JAX,
    "ddp_spawn": NOT_PREPARED,
    "ddp_tutorial": NOT_PREPARED,
    "graph_net": ("cannot", r"SparseXLA"),
    "metric_objects": ("cannot", r"No module named 'torchmetrics'"),
    "seq2seq": ("cannot", r"allocate memory"),
    "star_imports": ("cannot", r"XLA device type not an accelerator"),
    "wgan_gp": ("mixes devices", r"Expected XLA tensor"),
}
# What makes a case train on a device where CUDA is not what the machine has, or where it is asked for.
DEVICE = {"char_lm": ("--cuda",), "ddp_mapped": ("--device", "cuda"), "main_argparse": ("--device", "cuda")}


def as_expected(case: str, failure: str, text: str) -> tuple[str, str]:
    """How a run of a case ended, where that was expected, and what is wrong with it. failure: why it failed, or nothing."""
    kind, said = EXPECTED.get(case, ("", ""))
    if not kind:
        return "", failure
    if not failure:
        return "", "it runs, and tests/xla/expected.py says that it does not"
    return (kind, "") if re.search(said, text) else ("", failure)
