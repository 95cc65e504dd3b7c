"""Whatever may let a pod start that sleeps has it decided on again, and nothing else costs a look at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.owners import job_record
from scheduler.core.convert.selectors import NamespaceRecord
from scheduler.core.model.plan import Explain, Placement, Plan, placements
from scheduler.core.model.verdict import Verdict
from tests.scheduler.core.objects import (
    NANO,
    Fed,
    bind_request,
    bound,
    changed,
    claim,
    cluster,
    feed,
    node,
    pod,
    pod_group,
    reservation,
    storage_class,
    volume,
)
from tests.scheduler.core.stories.test_slices import SLICE, asking, cut
from wire import names
from wire.core import Job, Pod

_S = 1_000_000_000
_P = pod(gpus=2)
_OTHER = pod("r", gpus=2)
_GANG = (pod("p", gpus=1, group="g"), pod("q", gpus=1, group="g"))
_HOST = names.HOSTNAME_LABEL
_RWOP = claim("data", "pv", modes=["ReadWriteOncePod"])

Event = Callable[[Cluster], object]


def _fed(*objects: Fed) -> Event:
    return lambda made: feed(made, *objects)


def _gone(name: str) -> Event:
    return lambda made: made.remove_pod(f"uid-{name}")


def _job(**annotations: str) -> Event:
    made = msgspec.convert({"metadata": {"namespace": "ns", "name": "o", "uid": "o", "annotations": annotations}}, Job)
    return lambda cluster: cluster.owners.jobs.put(job_record(made))


def _owned() -> Pod:
    return pod("p", gpus=1, owner=("batch/v1", "Job"))


def _mounting(name: str = "p", *, group: str = "") -> Pod:
    mounted = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    return pod(name, gpus=1, group=group, spec={"volumes": mounted})


_ON_ITS_WAY = _mounting("r")


def _keeping_off(**more: Any) -> Pod:
    term = {"topologyKey": _HOST, "labelSelector": {}, **more}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return bound(pod("r", spec={"affinity": {"podAntiAffinity": rules}}), "n1")


def _placed_elsewhere(made: Cluster) -> None:
    placement = Placement(pod_uid="uid-p", namespace="ns", name="p", rv=_P.metadata.resource_version, node="n1")
    made.commits.assume(placement)


def _failed(made: Cluster) -> None:
    made.commits.failed("uid-p", "n1", "Refused", now_ns=0)


_PLANNED = {names.PLAN: '{"id": "x", "members": {"uid-p": {"node": "n1"}}}'}


@pytest.mark.parametrize(
    ("objects", "events"),
    [
        pytest.param((node(gpus=1), _P), [_fed(node("n2"))], id="a node comes"),
        pytest.param(
            (node(), pod("p", extended={"example.com/nic": "1"})),
            [_fed(node("n2", 0)), _fed(node("n3", 0, extended={"example.com/nic": "1"}))],
            id="a node comes that has what none had before",
        ),
        pytest.param((node(cordoned=True), _P), [_fed(node())], id="a node is opened"),
        pytest.param((node(ready=False), _P), [_fed(node())], id="a node is ready"),
        pytest.param((node(gpus=1), _P), [_fed(node(gpus=2))], id="a node has more devices"),
        pytest.param(
            (cut(count=1), reservation("g", resource=SLICE, book={"t": NANO}), asking()),
            [_fed(reservation("g", resource=SLICE, book={"t": NANO // 2}))],
            id="a slice that is shared has room",
        ),
        pytest.param((node(gpus=2), pod("r", gpus=1, bound_to="n1"), _P), [_gone("r")], id="a pod ends"),
        pytest.param(
            (node(gpus=2), pod("r", gpus=2, priority=5), _P),
            [_gone("r")],
            id="a pod that was decided on before it is gone, and was never bound",
        ),
        pytest.param(
            (node(gpus=2), pod("r", gpus=2, priority=5), pod_group("g", 2), *_GANG),
            [_gone("r")],
            id="a pod that was decided on before its gang is gone, and was never bound",
        ),
        pytest.param(
            (node(gpus=2), pod("r", gpus=1, priority=5), pod_group("g", 1), bound(_GANG[1], "n1"), _GANG[0]),
            [_gone("r")],
            id="a pod that was decided on before a member beyond the minimum is gone, and was never bound",
        ),
        pytest.param(
            (node(gpus=2), _P, bind_request(_P, "n1")),
            [_fed(changed(_P)), lambda made: made.remove_bind_request("ns", "p")],
            id="a BindRequest for an older version of it is gone",
        ),
        pytest.param(
            (node(gpus=2), node("n2", gpus=2), _OTHER, bind_request(_OTHER, "n1"), bound(pod("s", gpus=1), "n2"), _P),
            [_fed(bind_request(_OTHER, "n3"))],
            id="a pod on its way there goes elsewhere",
        ),
        pytest.param((node(), pod(gated=True, gpus=1)), [_fed(pod(gpus=1))], id="its gate is taken away"),
        pytest.param((node(gpus=1), _P), [_fed(pod(gpus=1))], id="it asks less"),
        pytest.param((node(), *_GANG), [_fed(pod_group("g", 2))], id="its PodGroup comes"),
        pytest.param((node(gpus=1), pod_group("g", 2), *_GANG), [_fed(pod_group("g", 1))], id="its minimum is less"),
        pytest.param((node(), pod_group("g", 2), _GANG[0]), [_fed(_GANG[1])], id="a member comes"),
        pytest.param((node(gpus=1), pod_group("g", 2), *_GANG), [_fed(node("n2"))], id="a node comes for a gang"),
        pytest.param(
            (node(gpus=1), pod_group("g", 2), pod("p", gpus=1, group="g"), pod("q", cpu="1", group="g", gated=True)),
            [_fed(pod("q", cpu="1", group="g"))],
            id="the gate of a member is taken away",
        ),
        pytest.param(
            (node(gpus=1), pod_group("g", 1), bound(pod("q", gpus=1, group="g"), "n1"), _GANG[0]),
            [_gone("q")],
            id="a member beyond the minimum has room",
        ),
        pytest.param((node(), _owned()), [_job()], id="its Job is seen"),
        pytest.param(
            (node(), _owned()), [_job(**{"kai.scheduler/batch-min-member": "2"}), _job()], id="its Job changes"
        ),
        pytest.param((node(), _mounting()), [_fed(claim("data", "pv"), volume("pv"))], id="its claim is bound"),
        pytest.param((node(), _mounting(), claim("data", "pv")), [_fed(volume("pv"))], id="its volume is there"),
        pytest.param(
            (node(), _mounting(), claim("data", "pv", storage_class="late", bound=False), storage_class("late", "x")),
            [_fed(claim("data", "pv", storage_class="late")), _fed(volume("pv"))],
            id="its claim is bound later",
        ),
        pytest.param(
            (node(), _RWOP, volume("pv"), bound(_mounting("r"), "n1"), _mounting()),
            [_gone("r")],
            id="nobody else uses its claim any more",
        ),
        pytest.param(
            (
                *(node(), _RWOP, volume("pv"), pod_group("g", 2), pod("q", gpus=1, group="g")),
                *(bound(_mounting("r"), "n1"), _mounting(group="g")),
            ),
            [_gone("r")],
            id="nobody else uses the claim of a member of its gang any more",
        ),
        pytest.param(
            (
                *(node(), _RWOP, volume("pv"), pod_group("g", 2), pod("q", gpus=1, group="g")),
                *(_ON_ITS_WAY, bind_request(_ON_ITS_WAY, "n1"), _mounting(group="g")),
            ),
            [lambda made: made.remove_bind_request("ns", "r"), _gone("r")],
            id="who was on its way with the claim of a member is gone",
        ),
        pytest.param((node(), _keeping_off(), pod(gpus=1)), [_gone("r")], id="nobody keeps it off any more"),
        pytest.param(
            (node(), _keeping_off(namespaceSelector={"matchLabels": {"team": "blue"}}, namespaces=["x"]), pod(gpus=1)),
            [
                lambda made: made.others.namespaces.put(NamespaceRecord("ns", {"team": "blue"})),
                lambda made: made.others.namespaces.put(NamespaceRecord("ns", {"team": "red"})),
            ],
            id="its namespace has another label",
        ),
        pytest.param(
            (node(), _P),
            [_placed_elsewhere, lambda made: made.commits.release("uid-p", attempt=0)],
            id="what was under way for it was withdrawn",
        ),
        pytest.param(
            (node(), _P, bind_request(_P, "n1")),
            [lambda made: made.remove_bind_request("ns", "p"), lambda made: made.commits.forget_departed("uid-p")],
            id="its BindRequest is gone, and nothing comes of it",
        ),
        pytest.param(
            (node(), pod_group("g", 1, annotations=_PLANNED), _GANG[0]),
            [_fed(pod_group("g", 1))],
            id="the plan of its gang was taken back",
        ),
        pytest.param(
            (node(), _P), [_failed, lambda made: made.commits.forgive("uid-p", "n1")], id="its node is forgiven"
        ),
    ],
)
def test_a_pod_starts_as_soon_as_it_may(objects: Sequence[Fed], events: Sequence[Event]) -> None:
    """It waits until the last event."""
    made = cluster(*objects)
    *before, last = events
    for event in before:
        event(made)
        _decided(made)
    assert "uid-p" not in _decided(made)
    last(made)
    assert "uid-p" in _decided(made)


@pytest.mark.parametrize(
    ("happens", "after_ns"),
    [
        pytest.param(
            lambda made: made.commits.failed("uid-p", "", "Refused", now_ns=0), 1 * _S, id="its back-off ends"
        ),
        pytest.param(_failed, 60 * _S, id="its node is tried again"),
    ],
)
def test_a_pod_starts_when_its_time_has_come(happens: Event, after_ns: int) -> None:
    made = cluster(node(), _P)
    happens(made)
    plan = made.decide(1)
    made.told([entry for entry in plan.entries if isinstance(entry, Explain)])
    waited_ns = 1
    while not any(placements(plan.entries)) and plan.wake_at_ns is not None:
        waited_ns = plan.wake_at_ns
        plan = made.decide(waited_ns)
    assert [placement.pod_uid for placement in placements(plan.entries)] == ["uid-p"]
    assert waited_ns <= after_ns


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(_fed(pod("other", cpu="1", bound_to="n1")), id="a pod comes elsewhere"),
        pytest.param(_fed(node(gpus=1, cordoned=True)), id="a node is closed"),
        pytest.param(_fed(changed(_P, labels={"color": "blue"})), id="it has a new version"),
        pytest.param(_fed(pod_group("other", 2)), id="a PodGroup comes that has no pod"),
        pytest.param(_job(), id="a Job comes that has no pod"),
    ],
)
def test_what_helps_nobody_wakes_nobody_and_is_no_news(event: Event) -> None:
    gang = [pod(name, gpus=1, group="g") for name in ("g1", "g2")]
    made = cluster(node(gpus=1), _P, pod_group("g", 2), *gang)
    _decided(made)
    event(made)
    assert not made.prepared(0).scheduling_queue.awake()
    plan = made.decide(0)
    assert not made.scheduling_queue.awake()
    assert not made.scheduling_queue.awake_gangs()
    assert plan.entries == ()


def test_a_pod_whose_reason_stays_is_told_nothing_and_its_counts_are_known() -> None:
    made = cluster(node(gpus=1), _P)
    _decided(made)
    feed(made, node("n2", gpus=1))
    plan = made.decide(2 * _S)
    assert plan.entries == ()
    verdict = made.scheduling_queue.said.verdict("uid-p")
    assert isinstance(verdict, Verdict)
    assert [reason.nodes for reason in verdict.node_reasons] == [2]


def test_a_replica_that_does_not_decide_keeps_nothing_of_pods_that_came_and_went() -> None:
    made = cluster(node())
    for number in range(3):
        pods = [pod(f"p{number}", gpus=1), pod(f"m{number}", gpus=1, group=f"g{number}")]
        feed(made, *pods)
        feed(made, *(bound(each, "n1") for each in pods))
        _gone(f"p{number}")(made)
    made.forget_gone()
    assert not made.scheduling_queue.touched
    assert not made.scheduling_queue.gangs()


def test_a_pod_that_comes_back_from_its_way_is_told_again() -> None:
    made = cluster(node(gpus=1), _P)
    _decided(made)
    _placed_elsewhere(made)
    _decided(made)
    made.commits.release("uid-p", attempt=0)
    assert [entry.pods for entry in _plan(made).entries if isinstance(entry, Explain)] == [("uid-p",)]


def _plan(made: Cluster) -> Plan:
    plan = made.decide(0)
    made.told([entry for entry in plan.entries if isinstance(entry, Explain)])
    return plan


def _decided(made: Cluster) -> set[str]:
    """UIDs of pods that are placed; who waits has been told."""
    return {placement.pod_uid for placement in placements(_plan(made).entries)}
