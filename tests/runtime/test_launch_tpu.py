"""`crosstrain launch` on a machine with a TPU, or with XLA's CPU client in its place: one process for each host."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from crosstrain.comm import visible_devices
from crosstrain.comm.xla import chips
from crosstrain.launch.options import Devices, LaunchOptions, UsageError, resolve

TPU_HOST = Devices("xla", 1)


def pci(folder: Path, *devices: tuple[str, str]) -> Path:
    for index, (vendor, number) in enumerate(devices):
        entry = folder / f"0000:00:{index:02x}.0"
        entry.mkdir()
        (entry / "vendor").write_text(vendor + "\n")
        (entry / "device").write_text(number + "\n")
    return folder


@pytest.fixture(autouse=True)
def fresh() -> None:
    chips.tpu_chips.cache_clear()


def test_chips_are_counted_and_network_cards_are_not(tmp_path: Path) -> None:
    assert (
        chips.tpu_chips(pci(tmp_path, ("0x1ae0", "0x0063"), ("0x1ae0", "0x0042"), ("0x8086", "0x0063"))) == 1
    )


def test_a_machine_without_pci_has_no_chips(tmp_path: Path) -> None:
    assert chips.tpu_chips(tmp_path / "absent") == 0


def test_pjrt_device_asks_for_xla() -> None:
    assert chips.xla_wanted({"PJRT_DEVICE": "CPU"})
    assert not chips.xla_wanted({"PJRT_DEVICE": ""})


@pytest.mark.parametrize(
    ("installed", "wanted"), [({"torch_xla"}, True), ({"torch_xla", "torch_tpu"}, False), (set(), False)]
)
def test_a_tpu_is_used_by_what_can_drive_it(
    installed: set[str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chips, "tpu_chips", lambda: 4)
    monkeypatch.setattr(chips, "find_spec", lambda name: name if name in installed else None)
    assert chips.xla_wanted({}) is wanted


def test_one_process_drives_all_chips_of_a_host() -> None:
    resolved = resolve(LaunchOptions(tpu=True), Devices(), {})
    assert resolved.num_processes == 1
    assert resolved.environment["PJRT_DEVICE"] == "TPU"


def test_a_tpu_that_is_found_needs_no_option() -> None:
    assert resolve(LaunchOptions(), TPU_HOST, {}).environment["PJRT_DEVICE"] == "TPU"


def test_the_environment_chooses_what_xla_computes_on() -> None:
    resolved = resolve(LaunchOptions(tpu=True), Devices(), {"PJRT_DEVICE": "CPU"})
    assert "PJRT_DEVICE" not in resolved.environment
    assert resolved.origin["PJRT_DEVICE"] == "environment"


def test_the_cpu_can_be_had_on_a_tpu_host() -> None:
    resolved = resolve(LaunchOptions(cpu=True, num_processes=2), TPU_HOST, {})
    assert (resolved.num_processes, resolved.config) == (2, {"cpu": True})
    assert "PJRT_DEVICE" not in resolved.environment


def test_several_hosts_have_one_process_each() -> None:
    options = LaunchOptions(
        tpu=True, num_machines=2, machine_rank=1, main_process_ip="10.0.0.1", num_processes=2
    )
    resolved = resolve(options, TPU_HOST, {})
    assert (resolved.num_processes, resolved.world_size) == (1, 2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (LaunchOptions(tpu=True, cpu=True), "--tpu and --cpu exclude each other"),
        (LaunchOptions(tpu=True, gpu_ids="0"), "--tpu and --gpu-ids exclude each other"),
        (LaunchOptions(tpu=True, num_processes=8), "one process of each host drives all its chips"),
    ],
)
def test_what_makes_no_sense_on_a_tpu_is_refused(options: LaunchOptions, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        resolve(options, Devices(), {})


def test_torch_tpu_gets_its_environment_before_the_ranks_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[dict[str, int]] = []
    module = ModuleType("torch.tpu")
    module.distributed = SimpleNamespace(set_tpu_launch_env=lambda **said: told.append(said))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.tpu", module)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: SimpleNamespace(type="tpu"))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    resolved = resolve(LaunchOptions(), Devices("tpu", 4), {})
    visible_devices.prepare_torch_tpu(resolved.options.num_machines, resolved.num_processes)
    assert told == [{"nnodes": 1, "nproc_per_node": 4}]
    assert "experimental" in capsys.readouterr().err
