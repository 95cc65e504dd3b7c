"""What the podgrouper keeps of pods and PodGroups, measured in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from podgrouper.watch.sinks import LISTED_BYTES, POD_BYTES, GroupSink, PodSink, seen
from podgrouper.watch.view import BODIES_BYTES, NAMESPACE_BYTES, SeenPod, View
from tests.podgrouper.objects import obj, pod
from tests.sizes import sizeof
from wire import names
from wire.core import Pod
from wire.crds.podgroup import PodGroup

MIB = 1 << 20
JOB = obj("batch/v1", "Job", "j")
#: As many labels as fit into an object of etcd's 1.5 MiB.
MANY_LABELS = {f"{'k' * 50}-{number}": "v" * 63 for number in range(9_000)}


def fresh(number: int, **meta: Any) -> Pod:
    """A pod as a watch shows it: with strings of its own."""
    return next(several(range(number, number + 1), **meta))


def several(numbers: Iterable[int], **meta: Any) -> Iterator[Pod]:
    written = msgspec.json.encode(pod(JOB, name="NAME", **meta))
    for number in numbers:
        yield msgspec.json.decode(written.replace(b"NAME", b"p%d" % number), type=Pod)


def group(number: int, **meta: Any) -> PodGroup:
    made = {"metadata": {"name": f"g{number}", "namespace": "team", "uid": f"u{number}", **meta}, "spec": {}}
    return msgspec.json.decode(msgspec.json.encode(made), type=PodGroup)


def test_the_measure_sees_what_a_sink_keeps() -> None:
    view = View()
    before = sizeof(view)
    view.pods["u"] = msgspec.structs.replace(kept(seen(fresh(0))), body=b"x" * MIB)
    assert sizeof(view) - before > MIB


def kept(pod: SeenPod | str) -> SeenPod:
    assert isinstance(pod, SeenPod)
    return pod


@pytest.mark.thorough
async def test_pods_with_thousands_of_labels_take_as_much_as_others() -> None:
    usual, attacked = View(), View()
    usual_sink, sink = PodSink(usual), PodSink(attacked)
    for one in several(range(450)):
        usual_sink.upsert(one)
    for one in several(range(450), labels=MANY_LABELS):
        sink.upsert(one)
    assert len(attacked.pods) == 450
    assert sizeof(attacked) < sizeof(usual) + 450 * LISTED_BYTES < 2 * MIB


@pytest.mark.thorough
async def test_a_list_of_pods_with_thousands_of_labels_takes_as_much_as_others() -> None:
    view = View()
    sink = PodSink(view)
    listed = [sink.keep(each) for each in several(range(450), labels=MANY_LABELS)]
    assert sizeof(listed) < MIB
    await sink.replace(listed)
    assert sizeof(view) < MIB


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({"annotations": {f"a{number}": "x" * 1000 for number in range(250)}}, id="annotations"),
        pytest.param({"annotations": {names.POD_GROUP_NAME: "g" * 250_000}}, id="name of its PodGroup"),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n" * MIB, "uid": "u"}]}, id="name"
        ),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "K" * MIB, "name": "n", "uid": "u"}]}, id="kind"
        ),
        pytest.param({"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u" * MIB}]}, id="UID"),
        pytest.param({"labels": {"scheduling.x-k8s.io/pod-group": "g" * MIB}}, id="its gang"),
    ],
)
def test_whatever_a_pod_has_no_more_is_kept_of_it_than_its_limit(meta: dict[str, Any]) -> None:
    view = View()
    before = sizeof(view)
    PodSink(view).upsert(fresh(0, **meta))
    assert sizeof(view) - before < POD_BYTES


def test_a_namespace_has_a_share_of_the_bodies_and_leaves_others_theirs() -> None:
    view = View()
    sink = PodSink(view)
    labels = {f"l{number}": "v" * 60 for number in range(80)}
    for one in several(range(2 * NAMESPACE_BYTES // 6000), namespace="large", uid="large-NAME", labels=labels):
        sink.upsert(one)
    sink.upsert(fresh(0, namespace="small", uid="small", labels=labels))
    bodies = {
        space: sum(len(each.body) for each in view.pods.values() if each.namespace == space)
        for space in ("large", "small")
    }
    assert NAMESPACE_BYTES * 0.9 < bodies["large"] <= NAMESPACE_BYTES
    assert bodies["small"] > 0
    assert BODIES_BYTES == 8 * NAMESPACE_BYTES


def test_what_is_kept_is_counted_down_when_pods_are_settled_change_or_go() -> None:
    view = View()
    sink = PodSink(view)
    labels = {f"l{number}": "v" * 60 for number in range(80)}
    for turn in range(3 * NAMESPACE_BYTES // 6000):
        number = turn % 3
        sink.upsert(fresh(number, labels={**labels, "turn": str(turn)}))
        one = view.pods[f"pod-p{number}"]
        assert one.body
        if turn % 2:
            view.settle(one.uid, one.fingerprint)
        else:
            view.pod_gone(one.uid)
    view.keep_pods(())
    sink.upsert(fresh(0, labels=labels))
    assert view.pods["pod-p0"].body


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param(
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "K", "name": "n", "uid": f"u{number}"} for number in range(20_000)
                ]
            },
            id="owners",
        ),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u" * MIB}]}, id="owner"
        ),
        pytest.param({"annotations": {names.GROUPED: "x" * 250_000}}, id="what was written"),
        pytest.param({"annotations": {names.FOREIGN_GANG: "x" * 250_000}}, id="what was said"),
        pytest.param({"labels": MANY_LABELS}, id="labels"),
    ],
)
async def test_whatever_a_pod_group_has_no_more_is_kept_of_it_than_a_few_kibibytes(meta: dict[str, Any]) -> None:
    view = View()
    sink = GroupSink(view)
    before = sizeof(view)
    sink.upsert(group(0, **meta))
    await sink.replace([sink.keep(group(0, **meta))])
    assert sizeof(view) - before < POD_BYTES
