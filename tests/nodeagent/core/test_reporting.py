"""What a GpuNode says of slices is read as it was written."""

from __future__ import annotations

from dataclasses import replace

from gpu.mig import Profile
from nodeagent.core.mig_partitioning import CardReport, Outcome, State, ask_of, outcome_of, report, reported
from tests.nodeagent.core.mig.cards import PROFILES, ask, present, seen
from wire.crds.gpunode import CardStatus, CarvingStatus, MigLayout, SlicePlace


def test_a_look_is_reported_with_users_and_profiles() -> None:
    look = seen("2g@2", present("1g@0", uuids=[]), present("3g@4", is_whole=False), given=["MIG-2g@2"])
    found = report(look, Outcome("a", State.DONE))
    assert [(each.profile, each.start, each.size, each.uuid, each.in_use) for each in found.layout or ()] == [
        ("1g.10gb", 0, 1, "", False),
        ("2g.20gb", 2, 2, "MIG-2g@2", True),
        ("3g.40gb", 4, 4, "", True),
    ]
    assert [(each.name, each.size, each.most) for each in found.profiles] == [
        (name, profile.places[0].size, profile.most) for name, profile in sorted(PROFILES.items())
    ]
    assert found.profiles[1].starts == [0, 2, 4]
    assert found.carving == CarvingStatus(attempt="a", state="done")


def test_a_profile_that_has_no_place_is_of_no_size() -> None:
    look = replace(seen(), profiles={"1g.10gb": Profile((), 0)})
    assert [(each.size, each.starts) for each in report(look, None).profiles] == [(0, [])]


def test_a_layout_that_is_asked_for_is_read() -> None:
    wanted = MigLayout(uuid="GPU-a", layout=[SlicePlace(profile="1g.10gb", start=0)], attempt="a")
    assert ask_of(wanted) == ask("1g@0")


def test_outcomes_are_read_as_they_were_written() -> None:
    for state in State:
        told = CardReport().with_outcome(Outcome("a", state, "why")).carving
        assert told is not None
        assert outcome_of(told) == Outcome("a", state, "why")
    assert outcome_of(CarvingStatus(attempt="a", state="of a later version")).state is State.UNDER_WAY


def test_a_report_is_read_back_from_a_status() -> None:
    found = report(seen("2g@2"), Outcome("a", State.FAILED, "words"))
    layout = None if found.layout is None else list(found.layout)
    status = CardStatus(uuid="GPU-a", profiles=list(found.profiles), layout=layout, carving=found.carving)
    assert reported(status) == found
    assert reported(CardStatus(uuid="GPU-a")) == CardReport()
    assert found.with_outcome(None) == found
