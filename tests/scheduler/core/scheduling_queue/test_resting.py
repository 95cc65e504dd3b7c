"""Which standing nominations a decision looks at; test_preemption_machine.py holds that the others need no look."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.decide import decide
from scheduler.core.scheduling_queue.effects import Said
from scheduler.core.scheduling_queue.queue import Resting
from tests.scheduler.core.decide.test_nominees import preempting_cluster
from tests.scheduler.core.nodes.test_nominated_usage import nomination, place
from tests.scheduler.core.objects import bound, feed, node, pod, pod_group

_MANY = 20


def test_all_are_awake_until_they_were_looked_at_and_then_those_that_something_wakes() -> None:
    resting = Resting()
    resting.wake(["a"])
    assert _awake(resting) is None
    resting.looked(["a", "b"])
    resting.wake(["c", "a"])
    assert _awake(resting) == ["a", "b", "c"]
    resting.wake_all()
    assert _awake(resting) is None


def _awake(resting: Resting) -> list[str] | None:
    return None if resting.awake is None else list(resting.awake)


def _waiting(count: int = _MANY) -> Cluster:
    """A cluster in which a holder waits on each node for its victim."""
    made = preempting_cluster(*(node(f"n{at}", 2) for at in range(count)))
    for at in range(count):
        feed(
            made, bound(pod(f"v{at}", gpus=1), f"n{at}"), bound(pod(f"o{at}", gpus=1), f"n{at}"), pod(f"h{at}", gpus=1)
        )
        on = f"n{at}"
        made.commits.nominations.put(
            nomination(place(f"h{at}", node_name=on), victims=(f"v{at}",), id_=f"i{at}", node_name=on)
        )
    return made


def _looked_at(made: Cluster) -> set[str]:
    """Holders whose nominations the next decision looks at, and lets wait."""
    effects = decide(made.prepared(0), 0).effects
    return {uid.removeprefix("uid-") for note in effects if isinstance(note, Said) and note.lasts for uid in note.uids}


def _victim_is_deleted(made: Cluster) -> None:
    feed(made, bound(pod("v3", gpus=1, deleting=True), "n3"))


def _holder_changes(made: Cluster) -> None:
    feed(made, pod("h3", gpus=1, priority=7))


def _another_comes(made: Cluster) -> None:
    feed(made, bound(pod("foreign", cpu="1", scheduler="another"), "n3"))


def _node_changes(made: Cluster) -> None:
    feed(made, node("n3", 2, cpu="99"))


@pytest.mark.parametrize("happens", [_victim_is_deleted, _holder_changes, _another_comes, _node_changes])
def test_a_decision_looks_at_the_nomination_about_which_something_has_changed_and_at_no_other(
    happens: Callable[[Cluster], None],
) -> None:
    made = _waiting()
    assert len(_looked_at(made)) == _MANY
    made.decide(0)
    assert _looked_at(made) == set()
    happens(made)
    assert _looked_at(made) == {"h3"}


def test_a_nomination_of_a_gang_wakes_with_any_member_and_with_its_group() -> None:
    made = _waiting(1)
    feed(made, pod_group("g", 1), pod("m", gpus=1, group="g"))
    of_pod = nomination(place("m", node_name="n0"), victims=("o0",), id_="g", node_name="n0")
    made.commits.nominations.put(msgspec.structs.replace(of_pod, pod_group="g"))
    made.decide(0)
    assert _looked_at(made) == set()
    feed(made, pod("n", gpus=1, group="g", gated=True))
    assert _looked_at(made) == {"m"}
    made.decide(0)
    feed(made, pod_group("g", 1, queue="other"))
    assert _looked_at(made) == {"m"}


def test_a_holder_that_backs_off_is_looked_at_as_its_time_passes() -> None:
    made = _waiting(2)
    made.commits.failed("uid-h1", "", "no answer", now_ns=0)
    made.decide(0)
    assert "i1" in (made.scheduling_queue.resting.awake or ())
    assert "i0" not in (made.scheduling_queue.resting.awake or ())
