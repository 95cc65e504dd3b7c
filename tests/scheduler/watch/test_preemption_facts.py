"""What a search has to know beside nodes, queues and pods: each change of it asks for a decision, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from kube.client.resources import PODS
from scheduler.core.cluster import Cluster
from scheduler.core.model.preemption import BudgetRecord, Evicted, FailedClaim, PreemptionSettings
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.protection import ends_s
from scheduler.watch.cache import Cache
from scheduler.watch.preemption_facts import KnownForPreemption
from simulator.apiserver.faults import Fault
from tests.scheduler.preemption.preemption_stage import BUDGETS, NS, Process, stage
from tests.simulator.apiserver.calls import send


class Seen:
    """What is known, and namespaces that were asked for."""

    def __init__(self) -> None:
        self.namespaces: list[str] = []
        self.known = KnownForPreemption(on_namespace=self.namespaces.append)
        self._version = self.known.version

    def changed(self) -> bool:
        """Whether something has changed since this was asked last."""
        before, self._version = self._version, self.known.version
        return self.known.version != before


def budget(namespace: str, name: str = "b", allowed: int = 1) -> BudgetRecord:
    return BudgetRecord(namespace=namespace, name=name, selector=(), allowed=allowed)


def test_a_namespace_is_asked_for_once_and_again_after_it_had_no_budget() -> None:
    seen = Seen()
    for record in (budget("a"), budget("a", "c"), budget("b"), budget("a", allowed=0)):
        seen.known.budgets.put(record)
        assert seen.changed()
    assert seen.namespaces == ["a", "b"]
    seen.known.put_labels("p", "a", "5", {"app": "x"})
    seen.known.put_labels("q", "b", "5", {"app": "x"})
    seen.known.budgets.drop(budget("a"))
    assert seen.known.facts().labels.keys() == {"p", "q"}
    seen.known.budgets.drop(budget("a", "c"))
    assert seen.known.facts().labels.keys() == {"q"}
    seen.known.budgets.put(budget("a"))
    assert seen.namespaces == ["a", "b", "a"]


def test_labels_are_kept_where_there_is_a_budget_and_the_newest_count() -> None:
    seen = Seen()
    seen.known.put_labels("p", "a", "5", {"app": "x"})
    assert seen.known.facts().labels == {}
    seen.known.budgets.put(budget("a"))
    seen.changed()
    for rv, labels, is_news in (("5", "x", True), ("4", "y", False), ("6", "x", False), ("7", "z", True)):
        seen.known.put_labels("p", "a", rv, {"app": labels})
        assert seen.changed() is is_news
    assert seen.known.facts().labels == {"p": {"app": "z"}}
    seen.known.drop_pod("p")
    assert seen.known.facts().labels == {}


def test_who_is_refused_and_how_often_owners_were_evicted_changes_decisions() -> None:
    seen = Seen()
    steps: list[tuple[Any, bool]] = [
        (lambda: seen.known.note_refused("p", True), True),
        (lambda: seen.known.note_refused("p", True), False),
        (lambda: seen.known.note_refused("p", False), True),
        (lambda: seen.known.note_refused("p", False), False),
        (lambda: seen.known.note_asked("p"), True),
        (lambda: seen.known.note_asked("p"), False),
        (lambda: seen.known.drop_pod("p"), False),
        (lambda: seen.known.note_asked("p"), True),
        (lambda: seen.known.note_evicted({"o": Evicted(1, 5)}), True),
        (lambda: seen.known.note_evicted({"o": Evicted(1, 5)}), False),
        (lambda: seen.known.note_evicted({}), True),
    ]
    for step, is_news in steps:
        step()
        assert seen.changed() is is_news


def test_claims_that_failed_reach_decisions_until_they_are_bound() -> None:
    seen = Seen()
    steps: list[tuple[Any, bool]] = [
        (lambda: seen.known.note_claim_failed("c", at_s=1_000), True),
        (lambda: seen.known.note_claim_failed("c", at_s=1_200), False),
        (lambda: seen.known.note_claim_failed("c", at_s=1_300), True),
        (lambda: seen.known.note_claims_bound(["other"]), False),
        (lambda: seen.known.note_claim_failed("d", at_s=1_300), True),
        (lambda: seen.known.note_claims_bound(["other", "c"]), True),
    ]
    for step, is_news in steps:
        step()
        assert seen.changed() is is_news
    assert seen.known.facts().failed_claims == {"d": FailedClaim(1, 1_300)}


def test_where_another_claim_of_a_gang_fails_each_time_pauses_grow_as_those_of_one() -> None:
    seen, at_s, pauses = Seen(), 10_000, list[int]()
    claims = [f"c{number}" for number in range(8)]
    for first in claims:
        seen.known.note_claim_failed(first, at_s=at_s, beside=claims)
        pauses.append(ends_s(seen.known.failed_claims[first], at_s) - at_s)
        seen.known.note_claim_failed("another gang's", at_s=at_s, beside=["c-other"])
        at_s += pauses[-1]
    assert pauses == [300, 600, 1_200, 2_400, 4_800, 9_600, 14_400, 14_400]


def test_what_an_earlier_leader_knew_of_claims_is_added() -> None:
    seen = Seen()
    seen.known.note_claim_failed("c", at_s=1_000)
    assert seen.changed()
    for claims, is_news in (({"c": FailedClaim(1, 900)}, False), ({"d": FailedClaim(3, 900)}, True)):
        seen.known.note_claims_known(claims, at_s=2_000)
        assert seen.changed() is is_news
    assert seen.known.facts().failed_claims == {"c": FailedClaim(1, 1_000), "d": FailedClaim(3, 900)}


def test_what_is_set_about_preemption_reaches_decisions() -> None:
    settings = PreemptionSettings(preempt_min_runtime_ns=5, longest_victim_grace_s=7)
    assert KnownForPreemption(settings).facts().settings == settings
    made = Cluster(Settings(preemption_settings=settings))
    assert made.snapshot().preemption_facts.settings == Cache(made).preemption.facts().settings == settings


# Labels that budgets may select pods by: known of all bound pods where there is a budget, and of nobody elsewhere.


def labels(process: Process) -> Mapping[str, Mapping[str, str]]:
    known: Mapping[str, Mapping[str, str]] = process.cache.preemption.facts().labels
    return known


async def test_labels_are_read_when_the_first_budget_appears_and_forgotten_with_the_last() -> None:
    async with stage("v0", "v1") as (at, tasks):
        await at.pod("h", is_bound=False)
        process = Process(at, "scheduler")
        await process.start(tasks)
        assert labels(process) == {}
        client = at.server.transport()
        for name in ("b", "c"):
            await send(client, "POST", BUDGETS, {"metadata": {"name": name}, "spec": {"selector": {}}})
        await anyio.sleep(1)
        assert {uid: of["app"] for uid, of in labels(process).items()} == {at.uids["v0"]: "a", at.uids["v1"]: "a"}
        lists = [e for e in at.server.audit if (e.user, e.verb, e.resource) == ("scheduler", "list", "pods")]
        assert len(lists) == 2  # the cache's own, and one of this namespace
        await send(client, "DELETE", f"{BUDGETS}/b")
        await anyio.sleep(1)
        assert len(labels(process)) == 2
        await send(client, "DELETE", f"{BUDGETS}/c")
        await anyio.sleep(1)
        assert labels(process) == {}


async def test_labels_follow_pods_that_change_come_and_go() -> None:
    async with stage("v0") as (at, tasks):
        await send(at.server.transport(), "POST", BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": {}}})
        process = Process(at, "scheduler")
        await process.start(tasks)
        await at.pod("v1")
        await at.api.patch(PODS, "v0", {"metadata": {"labels": {"app": "other"}}}, namespace=NS)
        await anyio.sleep(1)
        assert {uid: of["app"] for uid, of in labels(process).items()} == {at.uids["v0"]: "other", at.uids["v1"]: "a"}
        await at.api.delete(PODS, "v1", namespace=NS, grace_s=0)
        await at.api.patch(PODS, "v0", {"status": {"phase": "Succeeded"}}, namespace=NS, subresource="status")
        await anyio.sleep(1)
        assert labels(process) == {}


async def test_a_list_that_was_late_changes_nothing_that_is_newer() -> None:
    async with stage("v0") as (at, tasks):
        process = Process(at, "scheduler")
        await process.start(tasks)
        at.server.faults.on_request.append(
            lambda call: Fault(answer_delay_s=5.0) if call.verb == "list" and call.kind.plural == "pods" else None
        )
        await send(at.server.transport(), "POST", BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": {}}})
        await anyio.sleep(1)
        await at.api.patch(PODS, "v0", {"metadata": {"labels": {"app": "newer"}}}, namespace=NS)
        await anyio.sleep(10)
        assert labels(process)[at.uids["v0"]]["app"] == "newer"
