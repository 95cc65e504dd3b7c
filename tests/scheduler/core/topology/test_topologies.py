"""Which Topology a name means, and until when sorted nodes are kept."""

from __future__ import annotations

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
    assert (found.get("t"), found.is_current) == (None, True)
    found.of_kai.expect()
    assert not found.is_current
    assert len(changes) == 1
