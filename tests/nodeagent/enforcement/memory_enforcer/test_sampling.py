"""The real pynvml over the driver's stub, and /proc as a folder."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from nodeagent.core.enforcement.overuse import MIB, Device, Process, Sample
from nodeagent.enforcement.memory_enforcer.sampling import DriverAway, Sampler, boot_ticks
from nodeagent.processes import Processes
from tests.nodeagent.enforcement.memory_enforcer.conftest import Machine
from tests.nodeagent.test_processes import ID, POD, at, put


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


@pytest.fixture
def sampler(machine: Machine, proc: Path) -> Sampler:
    assert machine.file.exists()
    return Sampler(pynvml, Processes(str(proc)), ticks=lambda: 1_000)


def by_uuid(sample: Sample) -> dict[str, Device]:
    return {device.uuid: device for device in sample.devices}


def test_a_look_has_memory_use_and_pods_of_all_devices(machine: Machine, proc: Path, sampler: Sampler) -> None:
    put(proc, 71, cgroup=at(POD))
    put(proc, 72, name="Xorg")
    machine.hold(71, "GPU-a", 1024, 30)
    machine.hold(72, "GPU-a", 16, 1)
    machine.hold(73, "GPU-b", 5, 0)
    found = sampler.look(42)
    assert found.at_ns == 42
    assert found.unread == ()
    assert by_uuid(found) == {
        "GPU-a": Device(
            "GPU-a",
            80_000 * MIB,
            1040 * MIB,
            (Process(71, 500, 1024 * MIB, 30, POD, ID, "python"), Process(72, 500, 16 * MIB, 1, "", "", "Xorg")),
            31,
        ),
        # Its process can't be looked up.
        "GPU-b": Device("GPU-b", 40_000 * MIB, 5 * MIB, (Process(73, 0, 5 * MIB, 0),), 0),
    }


def test_sums_are_the_drivers_to_the_byte(machine: Machine, proc: Path, sampler: Sampler) -> None:
    for pid in range(100, 164):
        put(proc, pid, cgroup=at(POD))
        machine.processes.append(f"proc {pid} {'GPU-a' if pid % 3 else 'GPU-b'} {pid * 7} {pid % 5}")
    machine.write()
    for device in sampler.look(0).devices:
        assert sum(one.used_bytes or 0 for one in device.processes) == device.used_bytes
    assert sum(device.used_bytes for device in sampler.look(1).devices) == sum(pid * 7 for pid in range(100, 164)) * MIB


def test_memory_that_is_not_told_is_none(machine: Machine, sampler: Sampler) -> None:
    machine.hold(71, "GPU-a", "na", 3)
    assert by_uuid(sampler.look(0))["GPU-a"].processes == (Process(71, 0, None, 3),)


@pytest.mark.parametrize(("started", "is_known"), [(999, True), (1000, False), (1001, False)])
def test_a_process_that_started_after_the_driver_was_asked_is_not_the_one_it_named(
    machine: Machine, proc: Path, sampler: Sampler, started: int, *, is_known: bool
) -> None:
    put(proc, 71, started=started, cgroup=at(POD))
    machine.hold(71, "GPU-a", 1024)
    (one,) = by_uuid(sampler.look(0))["GPU-a"].processes
    assert one.pod_uid == (POD if is_known else "")


def test_clock_ticks_are_those_of_start_times() -> None:
    mine = Processes().seen(1)
    assert mine is not None
    assert mine.started < boot_ticks()


def test_a_device_that_fails_is_left_out_and_the_others_are_not(machine: Machine, sampler: Sampler) -> None:
    sampler.look(0)
    whole = dict(machine.cards)
    del machine.cards["GPU-a"]
    machine.write()
    lost = sampler.look(1)
    assert (list(by_uuid(lost)), lost.unread) == (["GPU-b"], ("GPU-a",))
    # It is not listed any more, and is there again when it is.
    assert (list(by_uuid(sampler.look(2))), sampler.look(2).unread) == (["GPU-b"], ())
    machine.cards = whole
    machine.write()
    for number in range(10):
        sampler.look(3 + number)
    assert sorted(by_uuid(sampler.look(13))) == ["GPU-a", "GPU-b"]


def test_a_gpu_that_is_lost_before_it_was_listed_stops_no_look_at_the_others(
    machine: Machine, sampler: Sampler
) -> None:
    machine.more = ["lost GPU-a"]
    machine.write()
    assert [list(by_uuid(sampler.look(number))) for number in range(12)] == [["GPU-b"]] * 12
    machine.more = ["lost GPU-a", "lost GPU-b"]
    machine.write()
    assert sampler.look(12).unread == ("GPU-b",)
    with pytest.raises(DriverAway, match="GPU is lost"):
        sampler.look(13)
    machine.more = []
    machine.write()
    assert sorted(by_uuid(sampler.look(14))) == ["GPU-a", "GPU-b"]


def test_slices_are_looked_at_in_place_of_their_card(machine: Machine, proc: Path, sampler: Sampler) -> None:
    put(proc, 71, cgroup=at(POD))
    machine.more = ["mig MIG-x GPU-b 9856", "mig MIG-y GPU-b 9856"]
    machine.hold(71, "MIG-y", 1024, 0)
    found = by_uuid(sampler.look(0))
    assert sorted(found) == ["GPU-a", "MIG-x", "MIG-y"]
    assert found["MIG-y"] == Device(
        "MIG-y", 9856 * MIB, 1024 * MIB, (Process(71, 500, 1024 * MIB, None, POD, ID, "python"),), None
    )


@pytest.mark.parametrize("function", ["nvmlDeviceGetMigMode", "nvmlDeviceGetGraphicsRunningProcesses_v3"])
@pytest.mark.parametrize("code", [3, 13])
def test_what_a_driver_or_card_does_not_know_is_not_missed(
    machine: Machine, sampler: Sampler, function: str, code: int
) -> None:
    machine.more = [f"fail {function} {code}"]
    machine.hold(71, "GPU-a", 1024, 30)
    assert len(by_uuid(sampler.look(0))["GPU-a"].processes) == 1


@pytest.mark.parametrize(("code", "sm_percent"), [(6, 0), (3, None), (999, None)])
def test_use_without_samples_is_none_at_all_and_use_that_is_not_told_is_not_known(
    machine: Machine, sampler: Sampler, code: int, sm_percent: int | None
) -> None:
    machine.more = [f"fail nvmlDeviceGetProcessUtilization {code}"]
    machine.hold(71, "GPU-a", 1024, 30)
    assert [one.sm_percent for one in by_uuid(sampler.look(0))["GPU-a"].processes] == [sm_percent]


@pytest.mark.parametrize("failure", ["fail nvmlInitWithFlags 18", "fail nvmlDeviceGetCount_v2 15", "nonsense"])
def test_without_a_driver_there_is_no_look_and_with_it_there_is_again(
    machine: Machine, sampler: Sampler, failure: str
) -> None:
    machine.more = [failure]
    machine.write()
    with pytest.raises(DriverAway):
        sampler.look(0)
    machine.more = []
    machine.write()
    assert len(sampler.look(1).devices) == 2


def test_a_driver_without_a_list_of_processes_has_none_of_its_devices_judged(
    machine: Machine, sampler: Sampler
) -> None:
    """The stub has no second version of it either, as drivers before 450 had not."""
    machine.more = ["fail nvmlDeviceGetComputeRunningProcesses_v3 13"]
    machine.hold(71, "GPU-a", 1024, 30)
    found = sampler.look(0)
    assert (found.devices, found.unread) == ((), ("GPU-a", "GPU-b"))


class Drawing:
    """A driver that lists a process as computing and as drawing, and leaves empty places among its samples."""

    def __getattr__(self, name: str) -> object:
        return getattr(pynvml, name)

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: object) -> object:  # noqa: N802 - pynvml's
        return pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)

    def nvmlDeviceGetProcessUtilization(self, _handle: object, _since: int) -> object:  # noqa: N802
        told = ((71, 5, 10), (71, 6, 21), (0, 0, 0), (72, 7, 4_000))
        return [pynvml.c_nvmlProcessUtilizationSample_t(pid, at_us, sm) for pid, at_us, sm in told]


def test_a_process_that_computes_and_draws_has_its_memory_once_and_the_mean_of_its_use(
    machine: Machine, proc: Path
) -> None:
    machine.hold(71, "GPU-a", 1024, 30)
    found = by_uuid(Sampler(Drawing(), Processes(str(proc)), ticks=lambda: 1_000).look(0))
    assert found["GPU-a"].processes == (Process(71, 0, 1024 * MIB, 15),)
