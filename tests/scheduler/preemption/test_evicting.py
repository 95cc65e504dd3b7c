"""The evictor: what each answer of the API server leads to, and how fast it asks."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kube.client.api import Api
from kube.client.resources import PODS
from kube.client.retry import Retry
from scheduler.preemption.evictor import SIDE_BY_SIDE, Evictor, Wanted
from scheduler.telemetry.events import Answer
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.background import in_background
from tests.simulator.apiserver.calls import send

NS = "team"
BUDGETS = f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets"


class Stage:
    """A server with running pods, an evictor, and what was told, with the second in which it was."""

    def __init__(self, *, per_s: int = 300, side_by_side: int = SIDE_BY_SIDE) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        self.server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
        self.api = Api(self.server.transport("scheduler"), retry=Retry(random.Random(1)))
        self.told: list[tuple[str, Answer, int]] = []
        self.refused: list[tuple[str, bool]] = []
        self.evictor = Evictor(self.api, per_s=per_s, side_by_side=side_by_side, on_refused=self._note_refused)
        self.due: dict[str, bool] = {}
        #: How often each was asked whether its pod is still due.
        self.judged: Counter[str] = Counter()
        self._began = anyio.current_time()

    def _note_refused(self, uid: str, is_refused: bool) -> None:
        self.refused.append((uid, is_refused))

    @property
    def now_s(self) -> float:
        return anyio.current_time() - self._began

    async def pods(self, *names: str, is_running: bool = True, namespace: str = NS) -> dict[str, str]:
        """Make pods; their UIDs by name."""
        uids = {}
        for name in names:
            spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "i"}]}
            made = await self.api.create(
                PODS, {"metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec}, namespace=namespace
            )
            uids[name] = made.metadata.uid
            if is_running:
                status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                await self.api.patch(PODS, name, {"status": status}, namespace=namespace, subresource="status")
        return uids

    async def budget(self, name: str, allowed: int) -> None:
        client = self.server.transport()
        await send(client, "POST", BUDGETS, {"metadata": {"name": name}, "spec": {"selector": {}}})
        await self.allow(name, allowed)

    async def allow(self, name: str, allowed: int) -> None:
        status = {"observedGeneration": 1, "disruptionsAllowed": allowed}
        await send(self.server.transport(), "PATCH", f"{BUDGETS}/{name}/status", {"status": status})

    def ask(self, name: str, uid: str, asker: str = "", *, past_budgets: bool = False, namespace: str = NS) -> None:
        """Ask for a pod; what is told to other askers than the first has their name in place of the pod's."""
        key = asker or name

        def told(answer: Answer) -> None:
            self.told.append((key, answer, int(self.now_s)))

        def is_due() -> bool:
            self.judged[key] += 1
            return self.due[key]

        self.due.setdefault(key, True)
        self.evictor.ask(
            Wanted(
                uid=uid,
                namespace=namespace,
                name=name,
                asker=asker,
                is_due=is_due,
                told=told,
                past_budgets=past_budgets,
            )
        )

    def requests(self) -> list[Any]:
        return [entry for entry in self.server.audit if entry.subresource == "eviction"]

    async def is_there(self, name: str) -> bool:
        listed = await self.api.list(PODS, namespace=NS)
        return any(pod.metadata.name == name and not pod.metadata.deletion_timestamp for pod in listed.items)


@asynccontextmanager
async def stage(**settings: int) -> AsyncIterator[Stage]:
    made = Stage(**settings)
    async with in_background(made.evictor.run, made.server.run):
        yield made


def once(fault: Fault, is_struck: Callable[[Call], bool] = lambda call: call.subresource == "eviction") -> Any:
    """A rule that strikes one request."""
    left = [fault]
    return lambda call: left.pop() if left and is_struck(call) else None


async def test_a_pod_is_evicted_once() -> None:
    async with stage() as at:
        uids = await at.pods("p")
        at.ask("p", uids["p"])
        await anyio.sleep(60)
        assert at.told == [("p", Answer.EVICTED, 0)]
        assert not await at.is_there("p")
        assert len(at.requests()) == 1


async def test_a_pod_that_is_gone_and_one_that_is_another_now_are_left_alone() -> None:
    async with stage() as at:
        await at.pods("p")
        at.ask("p", "another")
        at.ask("q", "nobody")
        await anyio.sleep(60)
        assert [answer for name, answer, _ in at.told if name == "p"] == [Answer.FAILED, Answer.OTHER_POD]
        assert [answer for name, answer, _ in at.told if name == "q"] == [Answer.GONE]
        assert await at.is_there("p")


async def test_a_pod_that_is_not_due_any_more_is_spared() -> None:
    async with stage(per_s=1) as at:
        uids = await at.pods("o", "p", "q")
        for name, uid in uids.items():
            at.ask(name, uid)
        await anyio.sleep(0.5)
        at.due["q"] = False
        await anyio.sleep(10)
        assert at.told == [("o", Answer.EVICTED, 0), ("p", Answer.EVICTED, 0), ("q", Answer.SPARED, 1)]
        assert await at.is_there("q")


async def test_all_who_want_a_pod_gone_hear_that_it_is_evicted_once() -> None:
    async with stage() as at:
        uids = await at.pods("p")
        at.ask("p", uids["p"])
        at.ask("p", uids["p"], "other")
        await anyio.sleep(60)
        assert at.told == [("p", Answer.EVICTED, 0), ("other", Answer.EVICTED, 0)]
        assert len(at.requests()) == 1


@pytest.mark.parametrize("spared", ["p", "other"])
async def test_a_pod_that_one_asker_does_not_want_any_more_goes_for_the_other(spared: str) -> None:
    async with stage(per_s=1) as at:
        uids = await at.pods("o", "p")
        at.ask("o", uids["o"])
        at.ask("p", uids["p"])
        at.ask("p", uids["p"], "other")
        at.due[spared] = False
        await anyio.sleep(10)
        left = "other" if spared == "p" else "p"
        assert {name: answer for name, answer, _ in at.told} == {
            "o": Answer.EVICTED,
            spared: Answer.SPARED,
            left: Answer.EVICTED,
        }
        assert not await at.is_there("p")


async def test_whoever_asks_while_a_request_is_on_its_way_hears_its_end_too() -> None:
    async with stage() as at:
        uids = await at.pods("p")
        at.server.faults.on_request.append(once(Fault(answer_delay_s=5)))
        at.ask("p", uids["p"])
        await anyio.sleep(1)
        at.ask("p", uids["p"], "other")
        assert at.evictor.is_asking(uids["p"], "other")
        await anyio.sleep(60)
        assert sorted(name for name, answer, _ in at.told if answer is Answer.EVICTED) == ["other", "p"]
        assert not at.evictor.is_asking(uids["p"], "other")


@pytest.mark.parametrize("budgets", [1, 2])
async def test_a_pod_for_which_budgets_do_not_count_is_deleted_where_they_forbid_its_eviction(budgets: int) -> None:
    async with stage() as at:
        uids = await at.pods("p", "kept", "other")
        for number in range(budgets):
            await at.budget(f"b{number}", 0)
        at.ask("p", uids["p"], past_budgets=True)
        at.ask("other", "uid-of-a-pod-before", past_budgets=True)
        at.ask("kept", uids["kept"])
        await anyio.sleep(100)
        assert ("p", Answer.EVICTED, 0) in at.told
        assert {answer for name, answer, _ in at.told if name == "kept"} == {Answer.REFUSED}
        assert [answer for name, answer, _ in at.told if name == "other"][-1] is Answer.OTHER_POD
        deleted = [each.name for each in at.server.audit if (each.verb, each.resource) == ("delete", "pods")]
        assert deleted.count("p") == 1
        assert "kept" not in deleted


async def test_a_pod_whose_budget_is_spent_is_asked_less_and_less_often_until_it_may_go() -> None:
    async with stage() as at:
        uids = await at.pods("p")
        await at.budget("b", 0)
        at.ask("p", uids["p"])
        await anyio.sleep(3000)
        assert [second for _, answer, second in at.told if answer is Answer.REFUSED] == [
            0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430,
        ]  # fmt: skip
        await at.allow("b", 1)
        await anyio.sleep(100)
        assert at.told[-1] == ("p", Answer.EVICTED, 3030)
        assert at.refused[-1] == (uids["p"], False)


async def test_who_is_refused_is_told_and_so_is_that_it_may_be_asked_again() -> None:
    async with stage() as at:
        uids = await at.pods("p")
        await at.budget("b", 0)
        at.ask("p", uids["p"])
        await anyio.sleep(1)
        assert at.refused == [(uids["p"], True)]
        at.due["p"] = False
        await anyio.sleep(8)
        assert len(at.refused) == 1
        await anyio.sleep(2)
        assert at.refused[1:] == [(uids["p"], False)]
        assert at.told[-1] == ("p", Answer.SPARED, 10)


@pytest.mark.parametrize(("pause_s", "again_s"), [(500.0, 20), (700.0, 10)], ids=["remembered", "forgotten"])
async def test_how_often_one_was_refused_is_remembered_for_ten_minutes(pause_s: float, again_s: int) -> None:
    async with stage() as at:
        uids = await at.pods("p")
        await at.budget("b", 0)
        at.ask("p", uids["p"])
        await anyio.sleep(1)
        at.due["p"] = False
        await anyio.sleep(pause_s)
        at.evictor.forget_refusals()
        at.due["p"] = True
        at.ask("p", uids["p"])
        await anyio.sleep(again_s + 1)
        *_, (_, _, first), (_, _, second) = at.told
        assert second - first == again_s


async def test_one_that_is_wanted_again_while_it_is_refused_waits_until_it_is_not() -> None:
    async with stage() as at:
        uids = await at.pods("p")
        await at.budget("b", 0)
        at.ask("p", uids["p"])
        await anyio.sleep(1)
        at.ask("p", uids["p"])
        await anyio.sleep(8)
        assert len(at.requests()) == 1
        await anyio.sleep(2)
        assert len(at.requests()) == 2


async def test_a_pod_under_two_budgets_is_refused_for_ten_minutes_at_once() -> None:
    async with stage() as at:
        uids = await at.pods("p")
        await at.budget("b", 1)
        await at.budget("c", 1)
        at.ask("p", uids["p"])
        await anyio.sleep(1300)
        assert [second for _, answer, second in at.told if answer is Answer.REFUSED] == [0, 600, 1200]


async def test_a_server_with_too_much_to_do_is_not_taken_for_a_budget() -> None:
    async with stage() as at:
        uids = await at.pods("p")
        at.server.faults.on_request.append(once(Fault(refuse_with=429, retry_after_s=7)))
        at.ask("p", uids["p"])
        await anyio.sleep(60)
        assert at.told == [("p", Answer.FAILED, 0), ("p", Answer.EVICTED, 7)]
        assert at.refused == []


@pytest.mark.parametrize(
    ("fault", "answers"),
    [
        (Fault(refuse_with=500), [Answer.FAILED, Answer.EVICTED]),
        (Fault(refuse_with=500, carried_out=True), [Answer.FAILED, Answer.EVICTED]),
        (Fault(refuse_with=403), [Answer.FAILED, Answer.EVICTED]),
        (Fault(lost="request"), [Answer.FAILED, Answer.EVICTED]),
        (Fault(lost="answer"), [Answer.FAILED, Answer.EVICTED]),
        (Fault(lost="request", lands_after_s=3.0), [Answer.FAILED, Answer.EVICTED]),
    ],
    ids=["500", "500 that lies", "403", "request lost", "answer lost", "late"],
)
async def test_what_is_not_answered_clearly_ends_with_one_eviction(fault: Fault, answers: list[Answer]) -> None:
    async with stage() as at:
        uids = await at.pods("p")
        at.server.faults.on_request.append(once(fault))
        at.ask("p", uids["p"])
        await anyio.sleep(120)
        assert [answer for _, answer, _ in at.told] == answers
        assert not await at.is_there("p")
        assert sum(entry.code < 300 for entry in at.requests()) == 1


async def test_one_whose_eviction_was_not_answered_is_told_even_when_it_is_not_due_any_more() -> None:
    async with stage() as at:
        uids = await at.pods("p")
        at.server.faults.on_request.append(once(Fault(lost="answer", breaks=True)))
        at.ask("p", uids["p"])
        await anyio.sleep(0.1)
        at.due["p"] = False  # a watch shows that it goes
        await anyio.sleep(60)
        assert [answer for _, answer, _ in at.told] == [Answer.FAILED, Answer.EVICTED]


async def test_a_pod_that_nobody_may_read_holds_up_no_other() -> None:
    async with stage() as at:
        uids = await at.pods("p", "q")
        at.server.faults.on_request.append(lambda call: Fault(refuse_with=403) if call.name == "p" else None)
        at.ask("p", uids["p"])
        at.ask("q", uids["q"])
        await anyio.sleep(1)
        assert ("q", Answer.EVICTED, 0) in at.told
        assert await at.is_there("p")


async def test_what_breaks_one_request_stops_nothing_else() -> None:
    async with stage() as at:
        uids = await at.pods("p", "q")
        broken = [RuntimeError("something that nobody expects")]

        def strike(call: Call) -> None:
            if call.subresource == "eviction" and broken:
                raise broken.pop()

        at.server.faults.on_request.append(strike)
        at.ask("p", uids["p"])
        at.ask("q", uids["q"])
        await anyio.sleep(60)
        assert Counter(answer for _, answer, _ in at.told) == {Answer.FAILED: 1, Answer.EVICTED: 2}


async def test_so_many_at_once_and_then_so_many_a_second() -> None:
    async with stage(per_s=10) as at:
        uids = await at.pods(*(f"p{i}" for i in range(60)))
        for name, uid in uids.items():
            at.ask(name, uid)
        await anyio.sleep(0.05)
        assert len(at.told) == 20
        await anyio.sleep(2)
        assert len(at.told) == 40
        assert [name for name, _, _ in at.told] == [f"p{i}" for i in range(40)]


@pytest.mark.parametrize("silent", [1, 2, 3])
async def test_pods_of_a_few_namespaces_that_are_not_answered_keep_no_other_namespace_waiting(silent: int) -> None:
    async with stage() as at:
        at.server.faults.on_request.append(
            lambda call: Fault(delay_s=10.0) if call.subresource == "eviction" and call.name != "other" else None
        )
        uids = {f"p{number}": f"silent-{number % silent}" for number in range(30)}
        for name, namespace in uids.items():
            (uid,) = (await at.pods(name, namespace=namespace)).values()
            at.ask(name, uid, namespace=namespace)
        other = await at.pods("other", namespace="another")
        await anyio.sleep(1)
        at.ask("other", other["other"], namespace="another")
        await anyio.sleep(1)
        assert [name for name, _, _ in at.told] == ["other"]
        await anyio.sleep(90)
        assert {name for name, answer, _ in at.told if answer is Answer.EVICTED} == {"other", *uids}


async def test_so_many_side_by_side() -> None:
    async with stage(side_by_side=4) as at:
        uids = await at.pods(*(f"p{i}" for i in range(10)))
        at.server.faults.on_request.append(lambda call: Fault(delay_s=1.0) if call.subresource == "eviction" else None)
        for name, uid in uids.items():
            at.ask(name, uid)
        await anyio.sleep(1.5)
        assert len(at.told) == 4
        await anyio.sleep(1)
        assert len(at.told) == 8


async def test_whether_a_pod_is_due_is_asked_once_and_again_only_after_a_wait_for_its_turn() -> None:
    async with stage(per_s=2) as at:
        uids = await at.pods(*(f"p{number}" for number in range(6)))
        for name, uid in uids.items():
            at.ask(name, uid)
        await anyio.sleep(30)
        assert [answer for _, answer, _ in at.told] == [Answer.EVICTED] * 6
        assert at.judged == {"p0": 1, "p1": 1, "p2": 1, "p3": 1, "p4": 2, "p5": 2}


async def test_a_pod_that_is_spared_takes_nobodys_turn() -> None:
    async with stage(per_s=1) as at:
        uids = await at.pods("a", "b", "c", "d")
        for name in ("a", "b", "c"):
            at.due[name] = name == "a"
        for name, uid in uids.items():
            at.ask(name, uid)
        await anyio.sleep(30)
        assert [(name, second) for name, answer, second in at.told if answer is Answer.EVICTED] == [("a", 0), ("d", 0)]
