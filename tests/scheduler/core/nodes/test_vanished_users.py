"""Devices of claims whose pods vanished before their end was seen are kept from others for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain
from scheduler.core.model.verdict import KeptDevices, Verdict
from sharing.entries import LEARNS_S, LONGEST_SILENCE_S, VANISHED_MARGIN_S
from tests.scheduler.core.device_objects import ask
from tests.scheduler.core.nodes.claiming import GPU, chosen, claimed, claiming, offered
from tests.scheduler.core.objects import bound, changed, cluster, ended, feed, node
from tests.steps import counted
from wire.core import Pod

_S: Final = 1_000_000_000
_GRACE_S: Final = 7
_WAIT_S: Final = LEARNS_S + _GRACE_S + VANISHED_MARGIN_S


def _old(name: str = "old") -> Pod:
    return bound(claiming(name, "c", spec={"terminationGracePeriodSeconds": _GRACE_S}), "a")


def _made(*names: str) -> Cluster:
    """A node whose only device pods have (``old``, by default), and another pod that wants it."""
    olds = [_old(name) for name in names or ("old",)]
    users = tuple(each.metadata.uid for each in olds)
    allocated = claimed("c", on=("a", "d0"), by=users)
    return cluster(node("a", gpus=0), GPU, offered("a"), *olds, allocated, claimed("d"), claiming("next", "d"))


def _starts(made: Cluster, at_s: float) -> bool:
    return chosen(made.decide(round(at_s * _S))) == {"next": ("a", {"d": "d0"})}


def _gone(made: Cluster) -> None:
    made.remove_pod("uid-old")


def _freed(made: Cluster) -> None:
    feed(made, claimed("c"))


def _deleted(made: Cluster) -> None:
    record = made.claims.claims.get(("ns", "c"))
    assert record is not None
    made.claims.claims.drop(record)


def _given_anew(made: Cluster) -> None:
    feed(made, claimed("c", on=("b", "d0"), by=("uid-other",)))


def _verdict(made: Cluster) -> Verdict:
    (entry,) = (each for each in made.decide(1).entries if isinstance(each, Explain))
    return entry.verdict


@pytest.mark.parametrize("events", [(_gone, _freed), (_freed,)], ids=["gone", "not gone yet"])
def test_a_pod_that_waits_for_a_kept_device_names_the_pod_and_the_node(
    events: Sequence[Callable[[Cluster], None]],
) -> None:
    made = _made()
    for event in events:
        event(made)
    verdict = _verdict(made)
    assert [(each.kind, each.nodes) for each in verdict.node_reasons] == [("claim-kept", 1)]
    assert verdict.kept == (KeptDevices("a", "ns/old"),)


def test_a_kept_device_that_would_not_help_is_no_reason() -> None:
    made = _made()
    feed(made, claimed("d", ask(count=2)))
    _gone(made)
    _freed(made)
    verdict = _verdict(made)
    assert ([(each.kind, each.nodes) for each in verdict.node_reasons], verdict.kept) == ([("claim-devices", 1)], ())


_BASE: Mapping[str, Sequence[Callable[[Cluster], None]]] = {
    "gone, then freed": (_gone, _freed),
    "freed, then gone": (_freed, _gone),
    "gone, then its claim is deleted": (_gone, _deleted),
    "gone, then other devices are seen": (_gone, _given_anew),
}


@pytest.mark.parametrize("events", _BASE.values(), ids=_BASE.keys())
def test_a_device_whose_pod_vanished_is_kept_until_its_program_must_have_ended(
    events: Sequence[Callable[[Cluster], None]],
) -> None:
    made = _made()
    assert not _starts(made, 0)
    for event in events:
        event(made)
    plan = made.decide(10 * _S)
    assert (chosen(plan), plan.wake_at_ns) == ({}, (10 + _WAIT_S) * _S)
    assert not _starts(made, 10 + _WAIT_S - 0.001)
    assert _starts(made, 10 + _WAIT_S)
    assert made.decide((10 + _WAIT_S) * _S).wake_at_ns is None


@pytest.mark.parametrize("is_freed_first", [False, True])
def test_a_pod_that_was_seen_to_end_keeps_nothing(*, is_freed_first: bool) -> None:
    made = _made()
    over = ended(changed(_old()))
    for event in (_freed, None) if is_freed_first else (None, _freed):
        if event is None:
            feed(made, over)
        else:
            event(made)
            assert _starts(made, 1) is not is_freed_first
    made.remove_pod("uid-old")
    assert _starts(made, 2)


def test_a_pod_that_waited_keeps_nothing() -> None:
    waiting = claiming("old", "c")
    allocated = claimed("c", on=("a", "d0"), by=("uid-old",))
    made = cluster(node("a", gpus=0), GPU, offered("a"), waiting, allocated, claimed("d"), claiming("next", "d"))
    _gone(made)
    _freed(made)
    assert _starts(made, 0)


def test_a_pod_that_runs_without_its_claim_keeps_its_device_until_it_ends() -> None:
    made = _made()
    _freed(made)
    for at_s in (0, _WAIT_S, 10_000):
        assert not _starts(made, at_s)
    feed(made, ended(changed(_old())))
    assert _starts(made, 10_000)


def test_a_device_of_several_pods_is_free_when_the_last_has_ended() -> None:
    made = _made("old", "two", "three")
    _gone(made)
    feed(made, claimed("c", on=("a", "d0"), by=("uid-two", "uid-three")))
    assert not _starts(made, 0)
    made.remove_pod("uid-two")
    assert not _starts(made, 5)
    feed(made, claimed("c", on=("a", "d0"), by=("uid-three",)))
    feed(made, ended(changed(_old("three"))))
    _freed(made)
    assert not _starts(made, _WAIT_S)
    assert _starts(made, 5 + _WAIT_S)


def test_a_claim_that_is_freed_after_the_wait_is_free_at_once() -> None:
    made = _made()
    _gone(made)
    assert not _starts(made, 0)
    feed(made, node("other", gpus=0))
    assert not _starts(made, _WAIT_S)
    _freed(made)
    assert _starts(made, _WAIT_S + 1)


@pytest.mark.parametrize("is_away", [False, True], ids=["not ready", "gone"])
def test_while_its_node_is_silent_a_device_is_kept_for_an_hour_beyond_the_wait(*, is_away: bool) -> None:
    anywhere = offered("a", allNodes=True)
    old, allocated = _old(), claimed("c", on=("a", "d0"), by=("uid-old",))
    nodes = node("a", gpus=0), node("b", gpus=0)
    made = cluster(*nodes, GPU, anywhere, old, allocated, claimed("d"), claiming("next", "d"))
    _gone(made)
    feed(made, claimed("c"))
    assert chosen(made.decide(0)) == {}
    if is_away:
        made.remove_node("a")
    else:
        feed(made, node("a", gpus=0, ready=False))
    assert chosen(made.decide(1 * _S)) == {}
    assert chosen(made.decide((LONGEST_SILENCE_S + _WAIT_S - 1) * _S)) == {}
    assert chosen(made.decide((LONGEST_SILENCE_S + _WAIT_S) * _S)) == {"next": ("b", {"d": "d0"})}


def test_the_wait_begins_again_when_its_node_is_ready_again() -> None:
    made = _made()
    _gone(made)
    _freed(made)
    assert not _starts(made, 0)
    feed(made, node("a", gpus=0, ready=False))
    assert not _starts(made, 100)
    feed(made, node("a", gpus=0))
    assert not _starts(made, 110)
    assert not _starts(made, 100 + _WAIT_S)
    assert _starts(made, 110 + _WAIT_S)


def test_what_another_scheduler_allocates_meanwhile_clashes_with_no_claim() -> None:
    made = _made()
    _gone(made)
    _freed(made)
    feed(made, claimed("e", on=("a", "d0"), by=("uid-foreign",)))
    assert made.claims.clashing == {}


def test_nothing_is_kept_in_memory_when_all_is_over() -> None:
    made = _made("old", "two")
    _gone(made)
    _freed(made)
    made.remove_pod("uid-two")
    assert not _starts(made, 0)
    assert len(made.claims.vanished.kept) == 1
    assert _starts(made, _WAIT_S)
    assert (dict(made.claims.vanished.kept), made.claims.vanished.size) == ({}, 0)


def test_a_pod_that_ends_costs_no_more_for_the_devices_that_are_kept_for_others() -> None:
    def cost(others: int) -> int:
        names = [f"p{number}" for number in range(others + 1)]
        pods = [_old(name) for name in names]
        held = [claimed(f"c-{each}", on=("a", f"d-{each}"), by=(f"uid-{each}",)) for each in names]
        made = cluster(node("a", gpus=0), GPU, *pods, *held)
        feed(made, *(claimed(f"c-{each}") for each in names))
        assert len(made.claims.vanished.kept) == others + 1
        with counted() as steps:
            made.claims.vanished.ended("uid-p0")
        assert len(made.claims.vanished.kept) == others
        return steps.taken

    assert cost(300) <= 1.2 * cost(1)
