"""Which Topology a name means, and until when sorted nodes are kept."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from scheduler.core.convert.pod_groups import topology_record
from scheduler.core.model.records import LevelConstraint
from scheduler.core.topology.topologies import Topologies
from tests.scheduler.core.objects import cluster, feed, node, topology


def test_sorted_nodes_are_kept_until_labels_change_or_nodes_come_and_go() -> None:
    made = cluster(topology("t", "rack"), node("n1", labels={"rack": "a"}), node("n2", labels={"rack": "b"}))
    record = made.topologies.get("t")
    assert record is not None
    tree = made.topologies.tree(record, made.ledger)
    feed(made, node("n1", gpus=4, cordoned=True, labels={"rack": "a"}))
    assert made.topologies.tree(record, made.ledger) is tree
    feed(made, node("n1", gpus=4, cordoned=True, labels={"rack": "b"}))
    changed = made.topologies.tree(record, made.ledger)
    assert [changed.name(each) for each in changed.domains(1)] == ["b"]
    made.remove_node("n1")
    assert len(made.topologies.tree(record, made.ledger).order) == 1


def test_a_copy_of_a_ledger_with_other_labels_has_its_own_order() -> None:
    made = cluster(topology("t", "rack"), node("n1", labels={"rack": "a"}))
    record = made.topologies.get("t")
    assert record is not None
    tree, copy = made.topologies.tree(record, made.ledger), made.ledger.copy()
    assert made.topologies.tree(record, copy) is tree
    other = cluster(node("n1", labels={"rack": "b"})).node("n1")
    assert other is not None
    copy.put(other)
    assert made.topologies.tree(record, copy).name(made.topologies.tree(record, copy).domains(1)[0]) == "b"
    assert made.topologies.tree(record, made.ledger) is tree


def test_a_topology_that_is_not_known_may_exist_while_they_cannot_be_read() -> None:
    changes: list[None] = []
    found = Topologies(lambda: changes.append(None))
    assert (found.get("t"), found.not_read()) == (None, "")
    found.of_kai.expect()
    assert found.not_read() == "topologies.kai.scheduler"
    found.of_kueue.expect()
    assert found.not_read() == "topologies.kai.scheduler, topologies.kueue.x-k8s.io"
    assert len(changes) == 2


def _topologies(of_kai: Mapping[str, str], of_kueue: Mapping[str, str]) -> Topologies:
    """Topologies by name, each with its labels."""
    found = Topologies(lambda: None)
    for facts, named in ((found.of_kai, of_kai), (found.of_kueue, of_kueue)):
        for name, labels in named.items():
            facts.put(topology_record(topology(name, *labels.split())))
    return found


def test_of_two_topologies_with_one_name_kais_counts() -> None:
    found = _topologies({"t": "zone rack"}, {"t": "row", "u": "row"})
    known = {name: found.get(name) for name in ("t", "u", "v")}
    assert {name: each and each.labels for name, each in known.items()} == {
        "t": ("zone", "rack"),
        "u": ("row",),
        "v": None,
    }


@pytest.mark.parametrize(
    ("of_kai", "of_kueue", "required", "preferred", "meant"),
    [
        pytest.param({}, {"a": "zone rack"}, "rack", "", "a", id="the only one"),
        pytest.param({"a": "zone rack"}, {"b": "row"}, "rack", "", "a", id="the only one with the level"),
        pytest.param({}, {"b": "zone rack", "a": "zone rack host"}, "rack", "", "a", id="the same domains"),
        pytest.param({}, {"a": "zone rack", "b": "rack"}, "rack", "", "a b", id="other levels above"),
        pytest.param({}, {"a": "zone rack", "b": "rack"}, "zone", "rack", "a", id="both levels"),
        pytest.param({"a": "row rack"}, {"a": "zone rack"}, "rack", "", "a", id="KAI's of one name"),
        pytest.param({}, {"a": "zone rack", "b": "row"}, "", "row", "b", id="preferred"),
        pytest.param({}, {"a": "zone rack"}, "row", "", "", id="nobody has it"),
    ],
)
def test_a_constraint_on_any_topology_means_those_with_its_levels(
    of_kai: Mapping[str, str], of_kueue: Mapping[str, str], required: str, preferred: str, meant: str
) -> None:
    found = _topologies(of_kai, of_kueue)
    assert " ".join(each.name for each in found.meant(LevelConstraint("*", required, preferred))) == meant


def test_a_level_of_any_topology_is_named_by_its_label_and_not_by_an_alias() -> None:
    found = Topologies(lambda: None)
    found.of_kai.put(topology_record(topology("t", "zone", "rack", aliases=["", "shelf"])))
    assert found.meant(LevelConstraint("*", "shelf")) == ()
    assert len(found.meant(LevelConstraint("t", "shelf"))) == 1


@pytest.mark.parametrize(
    ("required", "preferred", "labels"),
    [("rack", "", ("rack",)), ("", "rack", ("rack",)), ("zone", "rack", ("zone", "rack")), ("rack", "rack", ("rack",))],
)
def test_a_constraint_on_labels_alone_needs_no_topology(required: str, preferred: str, labels: tuple[str, ...]) -> None:
    found = _topologies({"a": "zone rack"}, {"b": "rack"})
    (meant,) = found.meant(LevelConstraint("(label)", required, preferred))
    assert meant.labels == labels


def test_which_topologies_have_a_level_follows_every_change() -> None:
    found = _topologies({}, {"a": "zone rack"})
    asked = LevelConstraint("*", "rack")
    assert [each.name for each in found.meant(asked)] == ["a"]
    b = topology_record(topology("b", "row", "rack"))
    found.of_kai.put(b)
    assert [each.name for each in found.meant(asked)] == ["a", "b"]
    found.of_kai.drop(b)
    assert [each.name for each in found.meant(asked)] == ["a"]
