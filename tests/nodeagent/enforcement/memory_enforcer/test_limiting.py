"""The real pynvml over the driver's stub, and folders in place of control groups."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from nodeagent.core.enforcement.driver_limits import RECHECK_LOOKS
from nodeagent.core.enforcement.messages import Limited
from nodeagent.core.enforcement.overuse import MIB, Key
from nodeagent.enforcement.memory_enforcer.limits import Groups, Limiting
from nodeagent.enforcement.memory_enforcer.sampling import Sampler
from nodeagent.processes import Processes
from tests.nodeagent.enforcement.memory_enforcer.conftest import Machine
from tests.nodeagent.test_processes import at, put

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"
ID, ID_2 = "ab" * 32, "cd" * 32
CAPS: Mapping[Key, int] = {(POD, "GPU-a"): 1000}
HELD = (POD, "GPU-a")


@dataclass
class Node:
    """A node with pods' groups, and what sets their limits. ``has_dmem``: their kernel has that controller."""

    machine: Machine
    root: Path
    proc: Path
    has_dmem: bool = True
    caps: dict[Key, int] = field(default_factory=lambda: dict(CAPS))

    def __post_init__(self) -> None:
        self.root.mkdir()
        self.proc.mkdir()
        (self.root / "cgroup.controllers").write_text("memory\n")
        self.sampler = Sampler(pynvml, Processes(str(self.proc)), ticks=lambda: 1_000)
        self.limiting = Limiting(pynvml, Groups(str(self.root)))

    def group(self, name: str = "", pod: str = POD) -> str:
        path = self.root / "kubepods" / "burstable" / f"pod{pod}" / name
        path.mkdir(parents=True)
        if self.has_dmem:
            for each in (path, path.parent):
                (each / "dmem.max").touch()
        return str(path)

    def turn(self, turns: int = 1) -> Limited:
        *_, last = [self._look() for _ in range(turns)]
        return last

    def _look(self) -> Limited:
        sample = self.sampler.look(0)
        return self.limiting.turn(self.caps, self.sampler.cards, sample)

    def limits(self) -> dict[tuple[str, str], int]:
        """Hard limits in MiB, by card and by the last part of the group's path, as the driver has them."""
        lines = [
            line.split()
            for line in self.machine.file.read_bytes().decode(errors="replace").split("\n")
            if line.startswith("limit ")
        ]
        assert all(words[3] == "0" for words in lines)
        return {(words[1], words[2].rpartition("/")[2]): int(words[4]) // MIB for words in lines}


@pytest.fixture
def node(machine: Machine, tmp_path: Path) -> Node:
    return Node(machine, tmp_path / "cgroup", tmp_path / "proc")


def test_a_container_gets_its_pods_cap_in_bytes_and_it_is_read_back(node: Node) -> None:
    node.group(ID)
    node.group(ID, OTHER)
    assert node.turn() == Limited((HELD,))
    assert node.limits() == {("GPU-a", f"pod{POD}"): 1000, ("GPU-a", ID): 1000}


def test_each_card_has_its_own_cap(node: Node) -> None:
    node.group(ID)
    node.caps[POD, "GPU-b"] = 3000
    assert node.turn() == Limited((HELD, (POD, "GPU-b")))
    assert {key: mib for key, mib in node.limits().items() if key[1] == ID} == {
        ("GPU-a", ID): 1000,
        ("GPU-b", ID): 3000,
    }


def test_a_container_that_starts_later_is_limited_when_it_is_seen(node: Node) -> None:
    node.group(ID)
    node.turn()
    node.group(ID_2)
    # At once where a process there has memory, also on file systems that count no folders.
    put(node.proc, 71, cgroup=at(POD).replace(ID, ID_2))
    node.machine.processes.append("proc 71 GPU-a 100 0")
    node.machine.more = [line for line in node.machine.file.read_text().splitlines() if line.startswith("limit ")]
    node.machine.write()
    assert node.turn() == Limited((HELD,))
    assert node.limits()["GPU-a", ID_2] == 1000


def test_a_process_that_moves_to_another_group_of_its_pod_is_limited_there(node: Node) -> None:
    node.group(ID)
    node.turn()
    node.group("evil child")
    put(node.proc, 71, cgroup=f"0::/kubepods/burstable/pod{POD}/evil child\n")
    node.machine.more = [line for line in node.machine.file.read_text().splitlines() if line.startswith("limit ")]
    node.machine.hold(71, "GPU-a", 5000)
    assert node.turn() == Limited((HELD,))
    assert node.limits()["GPU-a", "evil\\040child"] == 1000


@pytest.mark.parametrize("name", [b"a b", b"\xff\xfe", b"\t", b"...", b"%s%n", b"'\"$(x)", b"\\040", "\u202e".encode()])
def test_a_group_of_any_name_is_limited_and_no_other(node: Node, name: bytes) -> None:
    for each in (name, b"x"):
        node.group(os.fsdecode(each))
    node.turn()
    assert len(node.limits()) == 3
    assert node.turn(RECHECK_LOOKS) == Limited((HELD,))
    assert len(node.limits()) == 3


def test_a_limit_below_what_is_used_is_set_all_the_same(node: Node) -> None:
    path = node.group(ID)
    node.machine.more = [f"held GPU-a {path} 5000"]
    node.machine.write()
    assert node.turn() == Limited((HELD,))
    assert node.limits()["GPU-a", ID] == 1000
    assert node.limiting.uses([HELD]) == {HELD: 5000 * MIB}


def test_a_limit_that_was_lost_is_set_again(node: Node) -> None:
    """A driver that was loaded anew has none, where it counts by itself."""
    node.group(ID)
    node.turn()
    node.machine.write()
    assert node.limits() == {}
    node.turn(RECHECK_LOOKS)
    assert node.limits()["GPU-a", ID] == 1000


class Vanishing:
    """A driver beside which a container ends between reading and setting."""

    def __init__(self, group: Path) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlDeviceSetMemoryLimits_v1(self, handle: object, limits: Any) -> None:  # noqa: N802 - pynvml's
        if self._group.exists() and limits.nameSpace == str(self._group):
            shutil.rmtree(self._group)
        pynvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)


def test_a_card_that_comes_back_is_asked_again_at_once_as_it_may_have_lost_its_limits(node: Node) -> None:
    node.group(ID)
    assert node.turn() == Limited((HELD,))
    assert node.limiting.turn(node.caps, {}, node.sampler.look(0)) == Limited()
    node.machine.write()
    assert node.limits() == {}
    assert node.turn() == Limited((HELD,))
    assert node.limits() == {("GPU-a", f"pod{POD}"): 1000, ("GPU-a", ID): 1000}


def test_a_group_that_vanishes_between_read_and_set_costs_nobody_else(node: Node) -> None:
    node.group(ID)
    going = Path(node.group(ID_2))
    node.limiting = Limiting(Vanishing(going), Groups(str(node.root)))
    assert node.turn() == Limited((HELD,))
    assert not going.exists()
    assert set(node.limits()) == {("GPU-a", f"pod{POD}"), ("GPU-a", ID)}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["stuck GPU-a"], "the driver answered that a memory limit was set, and reads back another one"),
        (["fail nvmlDeviceSetMemoryLimits_v1 4"], "the driver refused to set a limit; it takes CAP_SYS_ADMIN"),
        (["fail nvmlDeviceSetMemoryLimits_v1 3"], "the driver does not limit memory of control groups on this GPU"),
        (
            ["fail nvmlDeviceGetMemoryLimits_v1 13"],
            "the driver can't limit memory of control groups; r615 and later can",
        ),
        (
            ["fail nvmlDeviceSetMemoryLimits_v1 999"],
            "the driver did not limit memory of a control group: Unknown Error",
        ),
        # dmem is not enabled down to the container.
        (["fail nvmlDeviceSetMemoryLimits_v1 6"], "the driver did not limit memory of a control group: Not Found"),
    ],
)
def test_a_driver_that_does_not_do_it_is_told_and_no_cap_is_called_held(node: Node, lines: list[str], why: str) -> None:
    node.group(ID)
    node.machine.more = lines
    node.machine.write()
    assert node.turn() == Limited((), why)
    assert node.limiting.uses([HELD]) == {}
    # Until it does.
    node.machine.more = []
    node.machine.write()
    assert node.turn(RECHECK_LOOKS) == Limited((HELD,))


def test_a_limit_that_reads_back_as_a_larger_one_does_not_count(node: Node) -> None:
    path = node.group(ID)
    node.machine.more = ["stuck GPU-a", f"limit GPU-a {path} 0 {1024 * MIB}"]
    node.machine.write()
    assert node.turn().held == ()


def test_a_driver_without_the_call_is_told_before_anybody_has_a_cap(node: Node) -> None:
    node.caps = {}
    assert node.turn() == Limited()
    node.machine.more = ["fail nvmlDeviceGetMemoryLimits_v1 13"]
    node.machine.write()
    assert node.turn(RECHECK_LOOKS).why == "the driver can't limit memory of control groups; r615 and later can"


def test_a_library_without_the_function_is_a_driver_without_the_call(node: Node) -> None:
    class Older:
        """pynvml over a library that has no such symbol raises this."""

        def __getattr__(self, name: str) -> Any:
            return getattr(pynvml, name)

        def nvmlDeviceGetMemoryLimits_v1(self, *_: object) -> None:  # noqa: N802 - pynvml's
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    node.group(ID)
    node.limiting = Limiting(Older(), Groups(str(node.root)))
    assert node.turn() == Limited((), "the driver can't limit memory of control groups; r615 and later can")


def test_an_older_pynvml_limits_nobody_and_says_so(node: Node) -> None:
    node.group(ID)
    older = {name: value for name, value in vars(pynvml).items() if "MemoryLimits" not in name}
    node.limiting = Limiting(SimpleNamespace(**older), Groups(str(node.root)))
    why = "the installed nvidia-ml-py has no memory limits of control groups; 13.615 and later have"
    assert node.turn() == Limited((), why)
    assert node.limiting.uses([HELD]) == {}


def test_containers_that_each_have_the_cap_are_not_held_together(node: Node) -> None:
    node.has_dmem = False
    paths = [node.group(ID), node.group(ID_2)]
    node.machine.more = [f"held GPU-a {path} 700" for path in paths]
    node.machine.write()
    assert node.turn() == Limited()
    assert node.limiting.uses([HELD]) == {}


def test_with_the_kernels_controller_the_pods_own_limit_holds_them_together(node: Node) -> None:
    paths = [node.group(ID), node.group(ID_2)]
    node.machine.more = [f"held GPU-a {path} 400" for path in paths]
    node.machine.write()
    assert node.turn() == Limited((HELD,))
    assert node.limiting.uses([HELD]) == {HELD: 800 * MIB}


def test_without_that_controller_a_later_container_has_the_limit_of_its_pod_from_its_start(node: Node) -> None:
    node.has_dmem = False
    node.group(ID)
    node.turn()
    node.group(ID_2)
    assert node.turn(RECHECK_LOOKS) == Limited((HELD,))
    assert set(node.limits()) == {("GPU-a", ID), ("GPU-a", f"pod{POD}")}


def test_without_control_groups_of_version_2_nothing_is_set(node: Node) -> None:
    node.group(ID)
    (node.root / "cgroup.controllers").unlink()
    assert node.turn() == Limited((), f"control groups of version 2 are not mounted at {node.root}")
    assert node.limits() == {}


def test_a_driver_is_asked_once_in_ten_looks(node: Node) -> None:
    asked: list[str] = []

    class Counting:
        """Counts questions."""

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(pynvml, name)

    node.group(ID)
    node.limiting = Limiting(Counting(), Groups(str(node.root)))
    node.turn()
    asked.clear()
    node.turn(RECHECK_LOOKS - 1)
    assert "nvmlDeviceGetMemoryLimits_v1" not in asked
    node.turn()
    assert asked.count("nvmlDeviceGetMemoryLimits_v1") == 2
    assert "nvmlDeviceSetMemoryLimits_v1" not in asked
