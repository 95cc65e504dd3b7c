"""Pods: defaults, what may change, status, deletion with grace, eviction."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.contract.cluster import Cluster, pod


async def test_a_new_pod_gets_defaults(api_server: Cluster) -> None:
    created = await api_server.made(api_server.pods, pod("p"))
    spec, status = created.body["spec"], created.body["status"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["serviceAccountName"] == "default"
    assert spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert [each["key"] for each in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert spec["containers"][0]["resources"] == {}
    assert status == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created.body["metadata"]["generation"] == 1


async def test_a_limit_is_also_the_request(api_server: Cluster) -> None:
    container = {"name": "c", "image": "busybox:1", "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "1"}}}
    created = await api_server.made(api_server.pods, {"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    stored = created.body["spec"]["containers"][0]
    assert stored["resources"]["limits"] == {"nvidia.com/gpu": "1", "cpu": "1"}
    assert stored["resources"]["requests"] == {"nvidia.com/gpu": "1", "cpu": "1"}
    assert stored["imagePullPolicy"] == "IfNotPresent"
    assert created.body["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("i", "Always"),
        ("i:latest", "Always"),
        ("i:1", "IfNotPresent"),
        ("r.dev:5000/i", "Always"),
        ("r.dev:5000/i:latest", "Always"),
        ("r.dev:5000/i:1", "IfNotPresent"),
        (f"i@sha256:{'0' * 64}", "IfNotPresent"),
        (f"i:1@sha256:{'0' * 64}", "IfNotPresent"),
    ],
)
async def test_an_image_that_may_change_is_always_pulled(api_server: Cluster, image: str, policy: str) -> None:
    created = await api_server.made(api_server.pods, pod("p", containers=[{"name": "c", "image": image}]))
    assert created.body["spec"]["containers"][0]["imagePullPolicy"] == policy


NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ([{"key": "k", "operator": "Exists", "effect": "NoExecute"}], [NOT_READY, UNREACHABLE]),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"}], [UNREACHABLE]),
        ([{"key": UNREACHABLE, "operator": "Exists"}], [NOT_READY]),
        ([{"operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
        ([{"operator": "Exists"}], []),
    ],
)
async def test_a_pod_tolerates_a_node_that_is_away_unless_it_says_how(
    api_server: Cluster, own: list[dict[str, Any]], added: list[str]
) -> None:
    created = await api_server.made(api_server.pods, pod("p", tolerations=own))
    stored = created.body["spec"]["tolerations"]
    assert stored[: len(own)] == own
    assert [each["key"] for each in stored[len(own) :]] == added
    assert all(each["tolerationSeconds"] == 300 for each in stored[len(own) :])


BOTH, CPU = {"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}


def of(name: str, **resources: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": resources}


@pytest.mark.parametrize(
    ("containers", "inits", "requests", "qos"),
    [
        pytest.param([of("c")], [], {"cpu": "4", "memory": "8Gi"}, "Guaranteed", id="the limit"),
        pytest.param(
            [of("c", requests={"cpu": "500m", "memory": "1Gi"}), of("d", limits={"memory": "1Gi"})],
            [],
            {"cpu": "500m", "memory": "2Gi"},
            "Burstable",
            id="what containers request together",
        ),
        pytest.param(
            [of("c", requests={"cpu": "1"})],
            [of("i", requests={"cpu": "2"})],
            {"cpu": "2", "memory": "8Gi"},
            "Burstable",
            id="what one requests before the others",
        ),
        pytest.param(
            [of("c", requests={"cpu": "1"})],
            [{**of("s", requests={"cpu": "1"}), "restartPolicy": "Always"}],
            {"cpu": "2", "memory": "8Gi"},
            "Burstable",
            id="a sidecar beside the others",
        ),
    ],
)
async def test_a_pod_with_limits_as_a_whole_gets_requests(
    api_server: Cluster,
    containers: list[dict[str, Any]],
    inits: list[dict[str, Any]],
    requests: dict[str, str],
    qos: str,
) -> None:
    limits = {"limits": {"cpu": "4", "memory": "8Gi"}}
    made = pod("p", containers=containers, initContainers=inits, resources=limits)
    created = await api_server.made(api_server.pods, made)
    assert created.body["spec"]["resources"] == {**limits, "requests": requests}
    assert created.body["status"]["qosClass"] == qos


async def test_a_pod_without_limits_as_a_whole_gets_no_requests(api_server: Cluster) -> None:
    written = {"requests": {"memory": "1Gi"}}
    made = pod("p", containers=[of("c", requests={"cpu": "1"})], resources=written)
    created = await api_server.made(api_server.pods, made)
    assert created.body["spec"]["resources"] == written


@pytest.mark.parametrize(
    ("containers", "qos"),
    [
        ([{}], "BestEffort"),
        ([{"limits": {"nvidia.com/gpu": "1"}}], "BestEffort"),
        ([{"limits": BOTH}], "Guaranteed"),
        ([{"limits": BOTH, "requests": BOTH}, {"limits": BOTH}], "Guaranteed"),
        ([{"limits": BOTH}, {}], "Burstable"),
        ([{"limits": BOTH}, {"limits": CPU}], "Burstable"),
        ([{"requests": BOTH}], "Burstable"),
        ([{"requests": CPU, "limits": {"cpu": "2", "memory": "1Gi"}}], "Burstable"),
    ],
)
async def test_a_pod_is_of_the_quality_that_its_resources_make(
    api_server: Cluster, containers: list[dict[str, Any]], qos: str
) -> None:
    made = [{"name": f"c{n}", "image": "i", "resources": resources} for n, resources in enumerate(containers)]
    created = await api_server.made(api_server.pods, pod("p", containers=made))
    assert created.body["status"]["qosClass"] == qos


async def test_devices_in_thousandths_are_stored_as_the_whole_number_that_they_are(api_server: Cluster) -> None:
    created = await api_server.made(api_server.pods, _with_resources(limits={"nvidia.com/gpu": "2000m"}))
    assert created.body["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}


async def test_what_a_client_says_about_the_status_is_dropped(api_server: Cluster) -> None:
    created = await api_server.made(api_server.pods, {**pod("p"), "status": {"phase": "Running"}})
    assert created.body["status"]["phase"] == "Pending"


async def test_a_gated_pod_says_so(api_server: Cluster) -> None:
    created = await api_server.made(api_server.pods, pod("p", schedulingGates=[{"name": "x.dev/g"}]))
    (condition,) = created.body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    assert condition["lastProbeTime"] is None


def _with_resources(**resources: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ({"metadata": {"name": "p"}, "spec": {}}, (422, "Invalid")),
        ({"metadata": {"name": "p"}, "spec": {"containers": [{"image": "i"}]}}, (422, "Invalid")),
        ({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}, (422, "Invalid")),
        ({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "C", "image": "i"}]}}, (422, "Invalid")),
        ({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}] * 2}}, (422, "Invalid")),
        (pod("p", schedulingGates=[{"name": "x.dev/g"}], nodeName="n1"), (422, "Invalid")),
        (_with_resources(limits={"nvidia.com/gpu": "500m"}), (422, "Invalid")),
        (_with_resources(requests={"nvidia.com/gpu": "1"}), (422, "Invalid")),
        (_with_resources(requests={"nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": "2"}), (422, "Invalid")),
        (pod("p", priorityClassName="none"), (403, "Forbidden")),
        (pod("p", priority=5), (403, "Forbidden")),
        (pod("p", serviceAccountName="none"), (403, "Forbidden")),
        (pod("p", runtimeClassName="none"), (403, "Forbidden")),
    ],
)
async def test_a_bad_pod_is_refused(api_server: Cluster, body: dict[str, Any], failure: tuple[int, str]) -> None:
    assert (await api_server.send("POST", api_server.pods, body)).failure == failure


async def test_priority_comes_from_the_class(api_server: Cluster) -> None:
    name = f"{api_server.namespace}-high"
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = await api_server.made(classes, {"metadata": {"name": name}, "value": 77})
    assert made.body["preemptionPolicy"] == "PreemptLowerPriority"
    created = await api_server.made(api_server.pods, pod("p", priorityClassName=name))
    assert created.body["spec"]["priority"] == 77
    system = await api_server.get(f"{classes}/system-node-critical")
    assert system.body["value"] == 2000001000


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"activeDeadlineSeconds": 50}, 200),
        ({"nodeName": "n1"}, 422),
        ({"nodeSelector": {"a": "b"}}, 422),
        ({"priority": 9}, 422),
        ({"schedulerName": "other"}, 422),
        ({"terminationGracePeriodSeconds": 1}, 422),
        ({"schedulingGates": [{"name": "x.dev/g"}]}, 422),
    ],
)
async def test_little_of_a_pod_may_change(api_server: Cluster, patch: dict[str, Any], code: int) -> None:
    await api_server.made(api_server.pods, pod("p"))
    answer = await api_server.patch(f"{api_server.pods}/p", {"spec": patch})
    assert answer.code == code
    if code == 200:
        assert answer.body["metadata"]["generation"] == 2


async def test_images_change_and_tolerations_are_added(api_server: Cluster) -> None:
    created = await api_server.made(api_server.pods, pod("p"))
    containers = [{**created.body["spec"]["containers"][0], "image": "other"}]
    path = f"{api_server.pods}/p"
    assert (await api_server.patch(path, {"spec": {"containers": containers}})).code == 200
    more = [*created.body["spec"]["tolerations"], {"key": "k", "operator": "Exists"}]
    answer = await api_server.patch(path, {"spec": {"tolerations": more}})
    assert (answer.code, answer.body["metadata"]["generation"]) == (200, 3)
    # The default ones come back by themselves, others are missed.
    assert (await api_server.patch(path, {"spec": {"tolerations": more[2:]}})).code == 200
    assert (await api_server.patch(path, {"spec": {"tolerations": []}})).code == 422
    deadline = {"spec": {"activeDeadlineSeconds": 50}}
    assert (await api_server.patch(path, deadline)).code == 200
    assert (await api_server.patch(path, {"spec": {"activeDeadlineSeconds": 70}})).code == 422
    assert (await api_server.patch(path, {"spec": {"activeDeadlineSeconds": 20}})).code == 200


async def test_a_gated_pod_may_be_narrowed(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p", schedulingGates=[{"name": "x.dev/g"}], nodeSelector={"a": "b"}))
    path = f"{api_server.pods}/p"
    assert (await api_server.patch(path, {"spec": {"nodeSelector": {"c": "d"}}})).code == 200
    assert (await api_server.patch(path, {"spec": {"nodeSelector": {"a": "x"}}})).code == 422
    assert (await api_server.patch(path, {"spec": {"nodeSelector": {"a": None}}})).code == 422
    assert (await api_server.patch(path, {"spec": {"schedulingGates": None}})).code == 200
    assert (await api_server.patch(path, {"spec": {"nodeSelector": {"e": "f"}}})).code == 422


async def test_the_status_subresource_changes_status_and_metadata_but_no_spec(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    patch = {
        "metadata": {
            "labels": {"l": "x"},
            "annotations": {"a": "x"},
            "finalizers": ["x.dev/f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}],
        },
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    changed = (await api_server.patch(f"{api_server.pods}/p/status", patch)).body
    assert changed["status"]["phase"] == "Running"
    blank = {"lastProbeTime": None, "lastTransitionTime": None}
    assert changed["status"]["conditions"] == [{"type": "Ready", "status": "True", **blank}]
    assert "nodeName" not in changed["spec"]
    meta = changed["metadata"]
    assert (meta["labels"], meta["annotations"], meta["finalizers"]) == ({"l": "x"}, {"a": "x"}, ["x.dev/f"])
    assert "ownerReferences" not in meta
    assert meta["generation"] == 1


async def test_an_update_of_the_pod_leaves_its_status_alone(api_server: Cluster) -> None:
    created = await api_server.made(api_server.pods, pod("p"))
    answer = await api_server.patch(f"{api_server.pods}/p", {"status": {"phase": "Failed"}})
    assert (answer.body["status"]["phase"], answer.rv) == ("Pending", created.rv)


async def test_status_holds_to_versions_too(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    patch = {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Running"}}
    assert (await api_server.patch(f"{api_server.pods}/p/status", patch)).failure == (409, "Conflict")
    assert (await api_server.get(f"{api_server.pods}/p/status")).body["status"]["phase"] == "Pending"


# --- deletion


async def _types_after(api_server: Cluster, rv: str, count: int) -> list[str]:
    return [each.type for each in await api_server.watch(api_server.pods, count, resourceVersion=rv)]


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ({}, None),
        ({}, {"gracePeriodSeconds": 20}),
        ({"nodeName": "n1"}, {"gracePeriodSeconds": 0}),
        ({"nodeName": "n1", "terminationGracePeriodSeconds": 0}, None),
    ],
)
async def test_a_pod_goes_at_once(api_server: Cluster, spec: dict[str, Any], options: dict[str, Any] | None) -> None:
    created = await api_server.made(api_server.pods, pod("p", **spec))
    answer = await api_server.delete(f"{api_server.pods}/p", options)
    assert (answer.code, answer.body["kind"]) == (200, "Pod")
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert answer.body["metadata"]["generation"] == 2
    assert (await api_server.get(f"{api_server.pods}/p")).code == 404
    assert await _types_after(api_server, created.rv, 2) == ["MODIFIED", "DELETED"]


async def test_an_ended_pod_goes_at_once(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p", nodeName="n1"))
    await api_server.patch(f"{api_server.pods}/p/status", {"status": {"phase": "Succeeded"}})
    await api_server.delete(f"{api_server.pods}/p")
    assert (await api_server.get(f"{api_server.pods}/p")).code == 404


def _grace(answer_body: dict[str, Any]) -> int:
    return int(answer_body["metadata"]["deletionGracePeriodSeconds"])


async def test_a_bound_pod_goes_in_its_own_time_which_may_be_shortened(api_server: Cluster) -> None:
    path = f"{api_server.pods}/p"
    created = await api_server.made(api_server.pods, pod("p", nodeName="n1"))
    first = await api_server.delete(path)
    assert _grace(first.body) == 30
    at = datetime.datetime.fromisoformat(first.body["metadata"]["deletionTimestamp"])
    made = datetime.datetime.fromisoformat(created.body["metadata"]["creationTimestamp"])
    assert 30 <= (at - made).total_seconds() <= 40
    for again in (None, {"gracePeriodSeconds": 50}, {"gracePeriodSeconds": 30}):
        assert (await api_server.delete(path, again)).rv == first.rv
    shorter = await api_server.delete(path, {"gracePeriodSeconds": 5})
    assert _grace(shorter.body) == 5
    earlier = datetime.datetime.fromisoformat(shorter.body["metadata"]["deletionTimestamp"])
    assert (at - earlier).total_seconds() == 25
    assert (await api_server.get(path)).code == 200
    assert (await api_server.delete(path, gracePeriodSeconds="0")).code == 200
    assert (await api_server.get(path)).code == 404


async def test_a_pod_that_is_going_is_not_hurried_by_who_asks_for_no_less(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p", nodeName="n1"))
    path = f"{api_server.pods}/p"
    await api_server.delete(path, {"gracePeriodSeconds": 1})
    for options in ({"gracePeriodSeconds": 1}, {"gracePeriodSeconds": 5}, None):
        again = await api_server.delete(path, options)
        assert again.body["metadata"]["deletionGracePeriodSeconds"] == 1
        assert (await api_server.get(path)).code == 200


async def test_negative_grace_is_a_second(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p", nodeName="n1"))
    assert _grace((await api_server.delete(f"{api_server.pods}/p", {"gracePeriodSeconds": -3})).body) == 1


async def test_finalizers_and_grace_both_hold_a_pod(api_server: Cluster) -> None:
    path = f"{api_server.pods}/p"
    await api_server.made(api_server.pods, pod("p", finalizers=("x.dev/f",), nodeName="n1"))
    assert _grace((await api_server.delete(path)).body) == 30
    forced = await api_server.delete(path, {"gracePeriodSeconds": 0})
    assert _grace(forced.body) == 0
    assert (await api_server.get(path)).code == 200
    await api_server.patch(path, {"metadata": {"finalizers": None}})
    assert (await api_server.get(path)).code == 404


async def test_a_pod_without_finalizers_still_has_its_grace(api_server: Cluster) -> None:
    path = f"{api_server.pods}/p"
    await api_server.made(api_server.pods, pod("p", finalizers=("x.dev/f",), nodeName="n1"))
    await api_server.delete(path)
    await api_server.patch(path, {"metadata": {"finalizers": None}})
    assert (await api_server.get(path)).code == 200
    await api_server.delete(path, {"gracePeriodSeconds": 0})
    assert (await api_server.get(path)).code == 404


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_deleting_a_pod_holds_to_preconditions(api_server: Cluster, field: str) -> None:
    created = await api_server.made(api_server.pods, pod("p"))
    path = f"{api_server.pods}/p"
    assert (await api_server.delete(path, {"preconditions": {field: "1"}})).failure == (409, "Conflict")
    right = {"uid": created.uid, "resourceVersion": created.rv}
    assert (await api_server.delete(path, {"preconditions": right})).code == 200


# --- eviction


def _eviction(name: str, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return {**body, **({"deleteOptions": options} if options else {})}


async def test_an_eviction_is_a_graceful_deletion_with_a_reason(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p", nodeName="n1"))
    answer = await api_server.send("POST", f"{api_server.pods}/p/eviction", _eviction("p"))
    assert (answer.code, answer.body["status"]) == (201, "Success")
    going = (await api_server.get(f"{api_server.pods}/p")).body
    assert _grace(going) == 30
    (condition,) = going["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")


async def test_an_eviction_of_an_unbound_pod_removes_it(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    assert (await api_server.send("POST", f"{api_server.pods}/p/eviction", _eviction("p"))).code == 201
    assert (await api_server.get(f"{api_server.pods}/p")).code == 404


async def test_an_eviction_of_another_pod_is_refused(api_server: Cluster) -> None:
    # Running: with a pending pod the real server tries for ten seconds before it says the same.
    await api_server.made(api_server.pods, pod("p", nodeName="n1"))
    await api_server.patch(f"{api_server.pods}/p/status", {"status": {"phase": "Running"}})
    path = f"{api_server.pods}/p/eviction"
    wrong = await api_server.send("POST", path, _eviction("p", preconditions={"uid": "another"}))
    assert wrong.failure == (409, "Conflict")
    none = await api_server.send("POST", f"{api_server.pods}/q/eviction", _eviction("q"))
    assert none.failure == (404, "NotFound")
