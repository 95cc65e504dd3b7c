"""The working copy of a decision: what is charged on it, and what is taken back."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.decide.placer import Placer
from scheduler.core.snapshot.statement import Trial
from tests.scheduler.core.objects import NANO, claim, cluster, csi_node, node, pod, reservation, volume
from tests.scheduler.core.test_slices import SLICE, asking, cut, single
from wire import names

_HALF = NANO // 2


def test_devices_that_were_given_back_on_paper_are_open_again_when_that_is_taken_back() -> None:
    trial = Placer(cluster(node(), reservation("g1", "n1", book={})).snapshot()).trial
    before = trial.table.devices[0]
    mark = trial.mark()
    trial.retire(0, frozenset({"g1"}))
    assert [(device.is_open, device.is_leaving) for device in trial.table.devices[0]] == [(False, True)]
    trial.undo(mark)
    assert trial.table.devices[0] == before
    assert [device.is_open for device in before] == [True]


def test_a_resource_that_a_node_does_not_have_gives_no_room() -> None:
    made = cluster(node(gpus=8), pod("p", gpus=2))
    record = made.pod("uid-p")
    assert record is not None
    room = Placer(made.snapshot()).trial.room(0, record.cls.demand, ["", "nvidia.com/gpu"])
    assert room.devices == {"nvidia.com/gpu": 6}
    assert not room.has("")


# --- any charges -------------------------------------------------------------------------------------------------
_MOUNTS = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
_PODS = {
    "half": pod("half", fraction="0.5"),
    "tenth": pod("tenth", fraction="0.1"),
    "two-thirds": pod("two-thirds", fraction="0.7", devices=2),
    "memory": pod("memory", mem=9_000),
    "whole": pod("whole", gpus=1),
    "two": pod("two", gpus=2, cpu="1"),
    "cpu": pod("cpu", cpu="2"),
    "disk": pod("disk", cpu="1", spec=_MOUNTS),
    "slice": asking(name="slice"),
}
_NODES: list[Any] = [
    node("cards", 4, mem_mib=40_000),
    node("mixed", 2, annotations={names.NODE_CARDS: "20000,40000"}),
    cut("cut", 3),
    single("single", 2),
    node("plain", 0, cpu="4"),
]


def _reservations(draw: st.DrawFn) -> list[Any]:
    found: list[Any] = []
    for number in range(draw(st.integers(0, 5))):
        of = draw(st.sampled_from(["cards", "cards", "mixed", "cut", "single"]))
        found.append(
            reservation(
                f"g{number}",
                of,
                uid=f"r{number}",
                book=draw(st.sampled_from([{}, {}, {"t": _HALF}, {"t": NANO // 10}, {"t": NANO}])),
                uuid=draw(st.sampled_from(["", f"GPU-{number}", f"GPU-{number}", "GPU-same"])),
                deleting=draw(st.sampled_from([False, False, True])),
                is_ill=draw(st.sampled_from([False, False, True])),
                mem_mib=draw(st.sampled_from([0, 20_000])),
                resource=SLICE if of == "cut" else names.GPU_RESOURCE,
            )
        )
    return found


@st.composite
def _clusters(draw: st.DrawFn) -> Cluster:
    disk: list[Any] = [
        claim("data", "pv"),
        volume("pv", csi=("disk", "h")),
        csi_node("plain", disk=1),
        csi_node("cards", disk=1),
    ]
    return cluster(*_NODES, *disk, *_reservations(draw), *_PODS.values())


def _image(trial: Trial) -> list[Any]:
    table = trial.table
    arrays = (table.free, table.extra, table.share_nano, table.share_mib, table.slice_nano, table.slice_row)
    # Rows of slots that no node has had a device for may be there or not.
    kept = [[row for row in array.tolist() if set(row) != {-1}] for array in arrays]
    return [
        *kept,
        list(table.devices),
        set(trial.claims),
        trial.attaching.fits([("disk", "other")], slice(None)).tolist(),
    ]


def _written_anew(trial: Trial) -> list[Any]:
    """The image of the same trial with every node's devices written as a whole."""
    table = trial.table
    kept = (table, table.taken(slice(None)))
    trial.table = kept[1]
    for position, of in enumerate(trial.nodes):
        trial.table.put_devices(position, of, trial.table.devices[position])
    found = _image(trial)
    trial.table = kept[0]
    return found


_STEPS = st.lists(st.tuples(st.sampled_from(["place", "place", "place", "room", "undo"]), st.sampled_from([*_PODS])))


@settings(max_examples=100)
@given(_clusters(), _STEPS)
def test_after_any_charges_the_copy_is_as_if_written_anew_and_goes_back_to_what_it_was(
    made: Cluster, steps: list[tuple[str, str]]
) -> None:
    waiting = {of.name: of for of in made.waiting()}
    placer = Placer(made.snapshot())
    trial = placer.trial
    images = [(trial.mark(), _image(trial))]
    for step, name in steps:
        match step:
            case "place":
                placer.place(waiting[name], without=frozenset())
            case "room" if name in {"whole", "two"}:
                placer.wait_for_device(waiting[name], without=frozenset())
            case "undo":
                mark, before = images[len(images) // 2]
                trial.undo(mark)
                assert _image(trial) == before
                images = images[: len(images) // 2 + 1]
            case _:
                continue
        assert _image(trial) == _written_anew(trial)
        images.append((trial.mark(), _image(trial)))
    trial.undo(0)
    assert _image(trial) == images[0][1]
    assert trial.charged() == set()
