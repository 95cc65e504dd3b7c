"""What is written so that a PodGroup says what the rules say: a table of what is there and what is wanted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from podgrouper.core import patches
from podgrouper.core.patches import Change, Create, Keep
from wire import names
from wire.core import ObjectMeta, OwnerReference
from wire.crds.podgroup import PodGroup, PodGroupSpec, SubGroup, TopologyConstraint

RACK = TopologyConstraint(topology="t", required_topology_level="rack")
ROW = TopologyConstraint(topology="t", required_topology_level="row")
PARTS = [SubGroup(name="a", min_member=2)]


def group(*, owner: str = "u", annotations: Any = None, uid: str = "", **spec: Any) -> PodGroup:
    owners = [OwnerReference(api_version="batch/v1", kind="Job", name="j", uid=owner)]
    meta = ObjectMeta(name="pg", namespace="team", uid=uid, owner_references=owners, annotations=annotations)
    return PodGroup(metadata=meta, spec=PodGroupSpec(**spec))


def stored(wanted: PodGroup) -> PodGroup:
    """A PodGroup as the API server has it once it was created."""
    made = patches.decide(wanted, None)
    assert isinstance(made, Create)
    return msgspec.convert(made.body, PodGroup)


def edited(made: PodGroup, **spec: Any) -> PodGroup:
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, **spec))


def patched(made: PodGroup, wanted: PodGroup) -> PodGroup:
    """What becomes of a PodGroup by the patch that is decided on, as RFC 7396 has it."""
    change = patches.decide(wanted, patches.live(made))
    assert isinstance(change, Change)
    plain = msgspec.to_builtins(made)

    def merge(into: dict[str, Any], patch: Any) -> dict[str, Any]:
        for key, value in patch.items():
            if value is None:
                into.pop(key, None)
            elif isinstance(value, dict):
                into[key] = merge(dict(into.get(key) or {}), value)
            else:
                into[key] = value
        return into

    return msgspec.convert(merge(plain, change.patch), PodGroup)


SHAPES = [
    pytest.param({"min_member": 2}, {"min_member": 3}, id="minimum"),
    pytest.param({"min_member": 2}, {"min_member": 2, "sub_groups": PARTS}, id="parts come"),
    pytest.param({"min_member": 2, "sub_groups": PARTS}, {"min_member": 2}, id="parts go"),
    pytest.param({"min_member": 2}, {"min_sub_group": 1, "sub_groups": PARTS}, id="a tree in place of a number"),
    pytest.param({"min_member": 0}, {"min_member": 1}, id="from none"),
    pytest.param({"topology_constraint": RACK}, {"topology_constraint": ROW}, id="constraint"),
    pytest.param({}, {"topology_constraint": ROW}, id="constraint comes"),
]


@pytest.mark.parametrize(("before", "after"), SHAPES)
def test_a_change_of_the_workload_is_carried_over_once(before: dict[str, Any], after: dict[str, Any]) -> None:
    now = patched(stored(group(**before)), group(**after))
    assert now.spec == group(**after).spec
    assert patches.decide(group(**after), patches.live(now)) == Keep()


KEPT = [
    pytest.param({"min_member": 2}, {"min_member": 1}, {"min_member": 3}, id="minimum"),
    pytest.param({"min_member": 2, "sub_groups": PARTS}, {"sub_groups": None}, {"min_member": 4}, id="parts"),
    pytest.param(
        {"topology_constraint": RACK}, {"topology_constraint": ROW}, {"topology_constraint": None}, id="constraint"
    ),
    pytest.param({}, {"topology_constraint": ROW}, {"topology_constraint": RACK}, id="constraint where none was"),
    pytest.param({"queue": "a"}, {"queue": "b"}, {"queue": "c"}, id="queue"),
    pytest.param({}, {"scheduling_backoff": 1, "mark_unschedulable": False}, {}, id="what is never written"),
    pytest.param({"priority_class_name": "train"}, {}, {"priority_class_name": "build"}, id="priority"),
    pytest.param({}, {}, {"preemptibility": "preemptible"}, id="preemptibility"),
]


@pytest.mark.parametrize(("made", "by_hand", "wanted"), KEPT)
def test_what_somebody_set_is_kept(made: dict[str, Any], by_hand: dict[str, Any], wanted: dict[str, Any]) -> None:
    there = edited(stored(group(**made)), **by_hand)
    assert patches.decide(group(**wanted), patches.live(there)) == Keep()


def test_what_somebody_set_is_kept_when_something_else_follows_the_workload() -> None:
    there = edited(stored(group(min_member=2, topology_constraint=RACK)), min_member=1)
    now = patched(there, group(min_member=3, topology_constraint=ROW))
    assert (now.spec.min_member, now.spec.topology_constraint) == (1, ROW)
    later = patched(now, group(min_member=3, topology_constraint=RACK))
    assert (later.spec.min_member, later.spec.topology_constraint) == (1, RACK)


def test_the_annotation_with_the_least_number_goes_with_the_minimum() -> None:
    least = names.BATCH_MIN_MEMBER
    made = stored(group(min_member=4, annotations={least: "4", "mine": "x"}))
    lower = patched(made, group(min_member=2, annotations={least: "2"}))
    assert ((lower.metadata.annotations or {})[least], lower.spec.min_member) == ("2", 2)
    assert (lower.metadata.annotations or {})["mine"] == "x"
    assert least not in (patched(lower, group(min_member=1)).metadata.annotations or {})


def test_a_pod_group_of_kais_grouper_follows_the_workload() -> None:
    now = patched(group(min_member=2), group(min_member=3))
    assert now.spec.min_member == 3
    assert (now.metadata.annotations or {})[names.GROUPED]


@pytest.mark.parametrize("written", ["", "x", " ", "a b c", "- -"])
def test_a_note_of_what_was_written_that_makes_no_sense_stops_nothing(written: str) -> None:
    there = group(min_member=2, annotations={names.GROUPED: written})
    assert isinstance(patches.decide(group(min_member=3), patches.live(there)), Change | Keep)


def test_the_pod_group_of_somebody_else_is_not_changed() -> None:
    assert patches.decide(group(min_member=3), patches.live(group(min_member=2, owner="other"))) == Keep()


def test_the_same_again_is_no_write() -> None:
    wanted = group(min_member=2, sub_groups=PARTS, topology_constraint=RACK)
    assert patches.decide(wanted, patches.live(stored(wanted))) == Keep()
