"""The working copy of a decision: what is charged on it, and what is taken back."""

from __future__ import annotations

from scheduler.core.decide.placer import Placer
from tests.scheduler.core.objects import cluster, node, pod, reservation


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
