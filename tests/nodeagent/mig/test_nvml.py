"""Asked in a process of its own: the stub is another library than the one that this process may have loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.nvml_stub.build import build

pytestmark = pytest.mark.thorough

# Each line of its input is a call, or a new state of the machine; what it returns is printed.
_PROGRAM = """
import dataclasses, json, sys
from pathlib import Path
from nodeagent.core.mig_partitioning import Spot
from nodeagent.mig.nvml import MigCards, NotDone

state, cards = Path(sys.argv[1]), MigCards()
for line in sys.stdin:
    what, *rest = json.loads(line)
    try:
        if what == "state":
            state.write_text(rest[0])
            continue
        answer = cards.read() if what == "read" else getattr(cards, what)("GPU-a", Spot(rest[1], rest[0]))
        shown = answer and {uuid: dataclasses.asdict(one) for uuid, one in answer.items()}
    except NotDone as error:
        shown = str(error)
    print(json.dumps(shown), flush=True)
"""
#: Of an H100: memory in MiB, memory slices, how many at once, places.
CARD = (
    "gpu GPU-a NVIDIA_H100_80GB_HBM3 81559 5\n"
    "profile GPU-a 0 1g.10gb 9856 1 7 0,1,2,3,4,5,6\n"
    "profile GPU-a 1 2g.20gb 19968 2 3 0,2,4\n"
    "profile GPU-a 2 3g.40gb 40320 4 2 0,4\n"
)
SLICES = f"{CARD}gi GPU-a 3 0 0\nci GPU-a 3 0 MIG-x\ngi GPU-a 4 1 2\nci GPU-a 4 0 MIG-y\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def answers(library: Path, tmp_path: Path):  # type: ignore[no-untyped-def]  # a function of a fixture
    def run(first: str, *calls: tuple[Any, ...]) -> list[Any]:
        state = tmp_path / "state"
        lines = [("state", first), *calls]
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(state)],
            input="".join(json.dumps(one) + "\n" for one in lines),
            env={
                **os.environ,
                "LD_LIBRARY_PATH": str(library),
                "FAKE_NVML_STATE": str(state),
                "PYTHONPATH": str(Path.cwd()),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def spots(read: Any) -> list[tuple[str, int, list[str]]]:
    return [(one["spot"]["profile"], one["spot"]["start"], one["uuids"]) for one in read["GPU-a"]["present"]]


def test_slices_and_profiles_of_a_gpu_in_mig_mode_are_read(answers: Any) -> None:
    (read,) = answers(f"{SLICES}gpu GPU-b NVIDIA_L40S 46068 2\n", ("read",))
    assert list(read) == ["GPU-a"]
    assert spots(read) == [("1g.10gb", 0, ["MIG-x"]), ("2g.20gb", 2, ["MIG-y"])]
    assert [(one["size"], one["is_whole"], one["has_process"]) for one in read["GPU-a"]["present"]] == [
        (1, True, False),
        (2, True, False),
    ]
    profiles = read["GPU-a"]["profiles"]
    assert profiles["2g.20gb"] == {"places": [{"start": at, "size": 2} for at in (0, 2, 4)], "most": 3}
    assert sorted(profiles) == ["1g.10gb", "2g.20gb", "3g.40gb"]


def test_the_others_are_read_where_a_gpu_is_lost(answers: Any) -> None:
    lost = "gpu GPU-b NVIDIA_H100_80GB_HBM3 81559 6\nprofile GPU-b 0 1g.10gb 9856 1 7 0,1,2,3,4,5,6\nlost GPU-b\n"
    (read,) = answers(f"{SLICES}{lost}", ("read",))
    assert list(read) == ["GPU-a"]
    (none,) = answers(f"{SLICES}lost GPU-a\n", ("read",))
    assert none == "unable to get device handle: GPU is lost"


def test_a_process_on_a_slice_is_seen(answers: Any) -> None:
    (read,) = answers(f"{SLICES}proc 12 MIG-y 100 0\n", ("read",))
    assert [one["has_process"] for one in read["GPU-a"]["present"]] == [False, True]


def test_a_slice_whose_processes_the_driver_does_not_tell_counts_as_used(answers: Any) -> None:
    (read,) = answers(f"{SLICES}fail nvmlDeviceGetComputeRunningProcesses_v3 3\n", ("read",))
    assert [one["has_process"] for one in read["GPU-a"]["present"]] == [True, True]


def test_a_slice_is_destroyed_and_another_made_in_its_place(answers: Any) -> None:
    *done, read = answers(SLICES, ("destroy", "1g.10gb", 0), ("make", "2g.20gb", 0), ("read",))
    assert done == [None, None]
    assert spots(read) == [("2g.20gb", 0, ["MIG-GPU-a-1-0"]), ("2g.20gb", 2, ["MIG-y"])]


def test_a_gpu_instance_without_compute_instance_is_completed_or_destroyed(answers: Any) -> None:
    half = f"{CARD}gi GPU-a 3 0 0\n"
    read, made, after = answers(half, ("read",), ("make", "1g.10gb", 0), ("read",))
    assert (spots(read), made) == ([("1g.10gb", 0, [])], None)
    assert spots(after) == [("1g.10gb", 0, ["MIG-GPU-a-3-0"])]
    gone, empty = answers(half, ("destroy", "1g.10gb", 0), ("read",))
    assert (gone, spots(empty)) == (None, [])


@pytest.mark.parametrize(
    ("state", "call", "words"),
    [
        pytest.param(
            SLICES, ("make", "3g.40gb", 0), "unable to create the GPU instance: Insufficient Resources", id="room"
        ),
        pytest.param(SLICES, ("make", "2g.20gb", 1), "2g.20gb at 1 can't be made", id="place"),
        pytest.param(SLICES, ("make", "9g.90gb", 0), "the GPU has no profile 9g.90gb", id="profile"),
        pytest.param(SLICES, ("destroy", "1g.10gb", 4), "no GPU instance 1g.10gb at 4 is there", id="nothing there"),
        pytest.param(
            f"{SLICES}proc 12 MIG-y 100 0\n",
            ("destroy", "2g.20gb", 2),
            "unable to destroy a compute instance: In use by another client",
            id="in use",
        ),
        pytest.param(
            f"{CARD}fail nvmlGpuInstanceCreateComputeInstance 999\n",
            ("make", "1g.10gb", 0),
            "unable to create the compute instance: Unknown Error",
            id="half of it fails",
        ),
        pytest.param(
            "fail nvmlInitWithFlags 9\n", ("read",), "unable to initialize NVML: Driver Not Loaded", id="driver"
        ),
    ],
)
def test_a_refusal_of_the_driver_is_told_in_its_words(
    answers: Any, state: str, call: tuple[Any, ...], words: str
) -> None:
    assert answers(state, call) == [words]
