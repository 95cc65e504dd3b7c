"""What is about to go counts no more, whatever the Node says, until the cap is taken away."""

from __future__ import annotations

from scheduler.core.nodes.slice_caps import SliceCaps
from tests.scheduler.core.objects import cluster, node, pod

ONE, TWO = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"


def test_a_cap_holds_for_every_record_that_is_read_until_it_is_taken_away() -> None:
    made, caps = cluster(), SliceCaps()
    read = made.read_node(node("n1", extended={ONE: "3", TWO: "1"}))
    assert caps.capped(read) == read
    assert caps.put(read, {ONE: 1}).capacity.extended == ((ONE, 1), (TWO, 1))
    later = made.read_node(node("n1", extended={ONE: "2"}))
    assert caps.capped(later).capacity.extended == ((ONE, 1),)
    assert caps.put(later, {ONE: 0}).capacity.extended == ()
    assert caps.put(caps.capped(later), {}) == later
    assert caps.capped(later) == later


def test_nobody_is_placed_on_what_is_capped_and_the_ledger_stays_true() -> None:
    made = cluster(node("n1", extended={ONE: "1"}), pod("p", extended={ONE: "1"}))
    made.cap_slices("n1", {ONE: 0})
    assert made.validate() == []
    assert made.free_slices("n1") == {}
    assert [entry.__class__.__name__ for entry in made.decide(0).entries] == ["Explain"]
    made.upsert_node(node("n1", extended={ONE: "1"}, cpu="32"))
    assert made.validate() == []
    assert [entry.__class__.__name__ for entry in made.decide(0).entries] == ["Explain"]
    made.cap_slices("n1", {})
    assert made.validate() == []
    assert made.free_slices("n1") == {ONE: 1}
    assert [entry.__class__.__name__ for entry in made.decide(0).entries] == ["Bind"]


def test_a_node_that_is_gone_is_forgotten_with_its_cap() -> None:
    made = cluster(node("n1", extended={ONE: "1"}))
    made.cap_slices("n1", {ONE: 0})
    made.remove_node("n1")
    made.cap_slices("n1", {ONE: 0})
    made.upsert_node(node("n1", extended={ONE: "1"}))
    assert made.free_slices("n1") == {ONE: 1}
