"""Who may not list all pods learns how many pods of others are concerned, and not which."""

from __future__ import annotations

import msgspec

from scheduler.conditions.suggestion_messages import suggestion_text
from scheduler.core.what_if.group_changes import Members
from scheduler.core.what_if.known_ends import KnownEnd, Wait
from scheduler.core.what_if.node_changes import Ended
from scheduler.core.what_if.suggestions import Suggestion
from ui.explain.views import GroupView, NominationView, RoomView, VictimView, suggested_to, without_others

OURS = VictimView(namespace="ns", name="ours", node="n1")
THEIRS = VictimView(namespace="secret", name="theirs", node="n1")
VIEW = GroupView(
    kind="Pod",
    namespace="ns",
    name="p",
    queue="q",
    verdict="NoNodeFits",
    message="it waits",
    starts=False,
    room=RoomView(is_possible=True, message="Pods that may be evicted for it: 2", victims=(OURS, THEIRS)),
    evictions=(
        NominationView(
            rule="reclaim",
            message="Evicted for secret/theirs (reclaim), 0 of 2 are gone",
            is_for_this=False,
            for_group="secret/theirs",
            victims=(OURS, THEIRS),
        ),
    ),
)


def test_pods_of_others_are_counted_and_not_named() -> None:
    seen = without_others(VIEW)
    assert b"theirs" not in msgspec.json.encode(seen)
    assert seen.room is not None
    assert seen.room.victims == (OURS,)
    assert seen.room.message == "Pods that may be evicted for it: 2"
    assert seen.evictions[0].message == "Evicted for another group (reclaim), 0 of 2 are gone"
    assert seen.evictions[0].victims == (OURS,)


def test_changes_that_end_pods_of_others_are_left_out_and_ends_are_not_named() -> None:
    end = KnownEnd(namespace="secret", name="theirs", at_s=1_800_000_000, by="deadline")
    helps = [
        Suggestion((Wait(until_s=1_800_000_000, uids=("u",), ends=(end,)),)),
        Suggestion((Members(1),)),
        Suggestion((Ended("theirs", "secret"),)),
        Suggestion((Ended("ours"),)),
    ]
    said = [suggestion_text(each) for each in suggested_to("ns", helps)]
    assert said == [
        "wait until 2027-01-15 08:00:00Z, if nothing else changes",
        "start with 1 pod (minMember: 1)",
        "end ours",
    ]
