"""How the machines of a launch find each other, as torch's agent is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain.launch import agent
from crosstrain.launch.options import Devices, LaunchOptions, resolve


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 600), (45, 45)])
def test_machine_0_may_come_up_last(timeout: float | None, seconds: int, tmp_path: Path) -> None:
    """Left to itself torch waits for 60 seconds, which an image that is still being pulled takes longer than."""
    options = LaunchOptions(
        num_machines=2,
        machine_rank=1,
        main_process_ip="127.0.0.1",
        rdzv_backend="c10d",
        timeout=timeout,
    )
    config = agent.launch_config(resolve(options, Devices(), {}), tmp_path)
    assert config.rdzv_configs["read_timeout"] == seconds
    assert config.rdzv_configs.get("join_timeout", agent.JOIN_SECONDS) == seconds
    assert config.rdzv_configs["is_host"] is False
