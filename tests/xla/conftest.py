"""Tests on the virtual devices of XLA's CPU client. Without torch_xla (see constraints-xla.txt) there are none."""

from importlib.util import find_spec

from tests.support import ranks

if find_spec("torch_xla") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    # The fork server imports torch_xla once; its clients are made in each test's own process.
    ranks._PRELOAD.append("crosstrain.comm.xla.backend")
