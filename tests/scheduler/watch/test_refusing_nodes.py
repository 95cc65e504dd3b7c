"""Pods that a kubelet could not align: their successors keep off its node for a while."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube.client.clock import monotonic_ns
from scheduler.core.model.plan import Bind
from scheduler.watch.cache import Cache, RefusingNodes
from tests.conftest import AnyioBackend
from tests.scheduler.core.objects import next_rv, node, pod
from tests.scheduler.watch.lists import cache, listed
from wire import names
from wire.core import Pod

_OWNER = ("apps/v1", "ReplicaSet")


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def _refused(name: str, on: str, *, reason: str = names.TOPOLOGY_AFFINITY_ERROR, owned: bool = True) -> Pod:
    made = msgspec.to_builtins(pod(name, gpus=1, owner=_OWNER if owned else None, bound_to=on))
    made["status"] |= {"phase": names.FAILED, "reason": reason}
    made["metadata"]["resourceVersion"] = next_rv()
    return msgspec.convert(made, Pod)


def _goes_to(made: Cache, name: str) -> str:
    entries: Any = made.cluster.decide(monotonic_ns()).entries
    return next((e.placement.node for e in entries if isinstance(e, Bind) and e.placement.name == name), "")


@pytest.mark.parametrize(
    ("refused", "node_of_next"),
    [
        (_refused("p-1", "n1"), "n2"),
        (_refused("p-1", "n2"), "n1"),
        (_refused("p-1", "n1", reason="OutOfcpu"), "n1"),
        (_refused("p-1", "n1", owned=False), "n1"),
    ],
    ids=["on-n1", "on-n2", "another-reason", "no-controller"],
)
async def test_the_next_pod_of_a_controller_keeps_off_the_node_that_could_not_align_the_last(
    refused: Pod, node_of_next: str
) -> None:
    made, sink = cache()
    for name in ("n1", "n2"):
        made.cluster.upsert_node(node(name))
    await listed(sink, refused)
    made.note_pod(pod("p-2", gpus=1, owner=_OWNER))
    assert _goes_to(made, "p-2") == node_of_next


async def test_pods_of_others_go_there() -> None:
    made, sink = cache()
    made.cluster.upsert_node(node("n1"))
    await listed(sink, _refused("p-1", "n1"))
    made.note_pod(pod("other", gpus=1))
    assert _goes_to(made, "other") == "n1"


def test_each_refusal_counts_once() -> None:
    made = RefusingNodes()
    for uid in ("p1", "p1", "p2"):
        made.note(uid, "ns", "job", "n1")
    made.note("p3", "ns", "job", "n2")
    assert dict(made.of("job")) == {"n1": 2, "n2": 1}
    assert dict(made.of("none")) == {}


def test_no_more_controllers_and_nodes_are_remembered_than_may_be() -> None:
    made = RefusingNodes()
    for number in range(5000):
        made.note(f"p{number}", f"ns-{number % 100}", f"job-{number}", "n1")
    assert not made.of("job-0")
    assert made.of("job-4999")
    for number in range(70):
        made.note(f"q{number}", "ns", "job", f"n{number}")
    assert len(made.of("job")) == 64
    assert "n69" in made.of("job")


def test_a_namespace_with_any_number_of_controllers_has_no_other_forgotten() -> None:
    made = RefusingNodes()
    made.note("p", "quiet", "job", "n1")
    for number in range(5000):
        made.note(f"p{number}", "loud", f"job-{number}", "n1")
    assert dict(made.of("job")) == {"n1": 1}
    assert sum(bool(made.of(f"job-{number}")) for number in range(5000)) == 512


@pytest.mark.parametrize(
    "other", [{"namespace": "other"}, {"ownerReferences": [{"kind": "K", "name": "o", "uid": "o"}]}]
)
async def test_pods_that_fail_with_the_uid_of_anothers_controller_keep_its_pods_off_no_node(
    other: dict[str, Any],
) -> None:
    made, sink = cache()
    for name in ("n1", "n2"):
        made.cluster.upsert_node(node(name))
    forged = msgspec.to_builtins(_refused("p-1", "n1"))
    forged["metadata"] |= other
    for owner in forged["metadata"]["ownerReferences"]:
        owner["controller"] = True
    await listed(sink, msgspec.convert(forged, Pod))
    made.note_pod(pod("p-2", gpus=1, owner=_OWNER))
    assert _goes_to(made, "p-2") == "n1"
