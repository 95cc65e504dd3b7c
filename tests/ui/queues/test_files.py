from __future__ import annotations

from pathlib import Path

import pytest

from runtime.options.selection import POD as POD_KIND
from runtime.text import BadInput
from ui.commands.explain import show_queue
from ui.explain import explanation, tables
from ui.queues import files
from ui.queues.pools import About

QUEUE = """apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: a, creationTimestamp: 2026-01-02T03:04:05Z}
spec: {resources: {gpu: {quota: 1, limit: -1, overQuotaWeight: 1}}}
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: p, labels: {kai.scheduler/queue: a}}
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]
"""


def written(folder: Path, *documents: str) -> list[str]:
    path = folder / "cluster.yaml"
    path.write_text("---\n".join(documents), encoding="utf-8")
    return [str(path)]


def test_objects_need_no_namespace_uid_or_quoted_date(tmp_path: Path) -> None:
    known = files.read(written(tmp_path, QUEUE, POD, POD.replace("name: p", "name: q")))
    queues = known.snapshot.queues
    assert [(record.name, record.created) for record in queues.records.all()] == [("a", "2026-01-02T03:04:05Z")]
    assert queues.sums.sums["a"].asked.gpu_nano == 4 * 10**9
    assert known.unread == ()


def test_what_queues_do_not_depend_on_is_named(tmp_path: Path) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
    known = files.read(written(tmp_path, QUEUE, service, service))
    assert known.unread == ("2 of kind Service: queues do not depend on them",)


GROUP = """apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: g}
spec: {minMember: 1, queue: a, priorityClassName: build}
"""
BUILD = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: build}\nvalue: 100\n"


def test_the_priority_of_a_group_is_its_class_or_said_to_be_missing(tmp_path: Path) -> None:
    member = POD.replace("name: p,", "name: p, annotations: {pod-group-name: g},")
    for also, missing in (([BUILD], []), ([], ["PriorityClasses"])):
        found = written(tmp_path, QUEUE, GROUP, member, *also)
        known, listed = files.read(found), files.read_listed(found)
        assert [pod.priority for pod in known.snapshot.pods.records.values()] == [0 if missing else 100]
        for unread in (known.unread, listed.unread):
            assert [each.partition(":")[0] for each in unread] == missing


CLASS = """apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
"""
SLICE = """apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-gpus}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: d0}]
"""
CLAIM = """apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
"""
RULE = """apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
metadata: {name: ill}
spec: {deviceSelector: {device: d0}, taint: {key: ill, effect: NoSchedule}}
"""
SCHEDULER = """apiVersion: v1
kind: Pod
metadata: {name: s, namespace: kai-scheduler, labels: {app.kubernetes.io/component: scheduler}}
spec: {containers: [{name: scheduler, args: [scheduler, --device-taint-rules=true]}]}
"""
#: The same scheduler without the rules.
PLAIN = SCHEDULER.replace("true", "false")
#: A list of the API: its objects have no kind of their own.
RULES = """apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRuleList
metadata: {resourceVersion: "7"}
items:
- metadata: {name: ill}
  spec: {deviceSelector: {device: d0}, taint: {key: ill, effect: NoSchedule}}
"""
NO_RULES = """apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRuleList
items: []
"""
NODE = """apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  allocatable: {cpu: 4, memory: 8Gi, pods: 110}
  conditions: [{type: Ready, status: "True"}]
"""
CLAIMING = """apiVersion: v1
kind: Pod
metadata: {name: p, labels: {kai.scheduler/queue: a}}
spec:
  schedulerName: kai-scheduler
  resourceClaims: [{name: gpu, resourceClaimName: c}]
  containers: [{name: main}]
"""
CLAIMED = (QUEUE, NODE, CLAIMING, CLASS, SLICE, CLAIM)
ALL = (PLAIN, *CLAIMED)
ALLOCATED = f"""{CLAIM}status:
  allocation: {{devices: {{results: [{{request: r, driver: gpu.example.com, pool: n1, device: d0}}]}}}}
"""
#: How the answer ends where no start is promised.
UNLESS = "unless something that was not read keeps it waiting."
#: The notes about rules: followed and not read, perhaps followed and not read, read and perhaps followed.
RULES_MISSED = "DeviceTaintRules, which the scheduler follows (--device-taint-rules)"
RULES_UNREAD = (
    "DeviceTaintRules, which do not count here; whether the scheduler follows them (--device-taint-rules): "
    "no pod of it is seen"
)
RULES_UNKNOWN = (
    "whether the scheduler follows DeviceTaintRules (--device-taint-rules): no pod of it is seen, "
    "and they do not count here"
)
#: The note about claims that are not looked at.
NOT_LOOKED_AT = "ResourceClaims of its pods, which may keep it waiting, too, or off some nodes"


#: Of a pod that waits for a device of a claim, where there are devices of no single node.
NO_COPIES = "devices that several nodes reach: changes that add nodes add none of them"


def explained(folder: Path, *documents: str, edits: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...], list[str]]:
    """The sentence about the pod ``p``, what could not be read, and what was not looked at."""
    known = files.read(written(folder, *documents), About(kind=POD_KIND, name="p", namespace="default"))
    subject = explanation.subject(known, POD_KIND, "default", "p")
    found = explanation.explained(known, subject, explanation.edits(edits), 1_800_000_000)
    message = tables.group_view(found, is_in_doubt=explanation.is_in_doubt(known, subject, found)).message
    left_out = explanation.not_looked_at(known, subject, found)
    return message, known.unread, [each for each in left_out if not each.startswith("the record of evictions")]


@pytest.mark.parametrize(
    ("documents", "told"),
    [
        (ALL, "fits now, on node n1"),
        ((*ALL[:-1], CLAIM.replace("name: c}", "name: c2}")), 'resourceclaim "c" not found'),
        (
            (*ALL[:5], SLICE.replace("name: d0", "name: d0, taints: [{key: t, effect: NoSchedule}]"), CLAIM),
            "cannot allocate",
        ),
        ((PLAIN, QUEUE, NODE, CLAIMING, ALLOCATED), "fits now, on node n1"),
        ((*CLAIMED, RULE, SCHEDULER), "cannot allocate all claims"),
        ((*CLAIMED, RULES, SCHEDULER), "cannot allocate all claims"),
        ((*CLAIMED, NO_RULES, SCHEDULER), "fits now, on node n1"),
        ((*CLAIMED, NO_RULES), "fits now, on node n1"),
        ((*ALL, RULE), "fits now, on node n1"),
    ],
)
def test_a_pod_with_a_claim_is_explained_by_the_devices_of_the_files(
    tmp_path: Path, documents: tuple[str, ...], told: str
) -> None:
    message, unread, left_out = explained(tmp_path, *documents)
    assert told in message
    assert (unread, left_out) == ((), [])


def test_a_node_that_is_supposed_has_devices_like_those_of_the_other_one(tmp_path: Path) -> None:
    other = ALLOCATED.replace("name: c}", "name: c2}")
    message, _, left_out = explained(tmp_path, *ALL, other)
    assert "1 node(s) cannot allocate all claims" in message
    assert left_out == []
    message, _, left_out = explained(tmp_path, *ALL, other, edits=("node +1 like n1",))
    assert "fits now, on node n1-more-1" in message
    assert left_out == []


def test_devices_that_several_nodes_reach_are_named_as_not_looked_at(tmp_path: Path) -> None:
    fabric = SLICE.replace("nodeName: n1", "allNodes: true")
    other = ALLOCATED.replace("name: c}", "name: c2}")
    message, _, left_out = explained(tmp_path, *ALL[:5], fabric, CLAIM, other, edits=("node +1 like n1",))
    assert "2 node(s) cannot allocate all claims" in message
    assert left_out == [NO_COPIES]


def test_nodes_may_be_added_for_a_pod_without_claims_that_waits(tmp_path: Path) -> None:
    plain = CLAIMING.replace("  resourceClaims: [{name: gpu, resourceClaimName: c}]\n", "")
    large = plain.replace("{name: main}", "{name: main, resources: {requests: {cpu: 64}}}")
    message, _, left_out = explained(tmp_path, *ALL[:3], large, *ALL[4:])
    assert "waits" in message
    assert left_out == []


def _in(version: str, *documents: str) -> tuple[str, ...]:
    return tuple(each.replace("resource.k8s.io/v1\n", f"resource.k8s.io/{version}\n") for each in documents)


@pytest.mark.parametrize(
    ("documents", "unread"),
    [
        ((QUEUE, NODE, CLAIMING), ()),
        (ALL[:-1], ()),
        ((*ALL[:5], CLAIM), ()),
        ((*ALL[:4], SLICE, CLAIM), ()),
        ((*ALL[:4], SLICE, CLAIM, ALLOCATED.replace("name: c}", "name: c2}")), ()),
        (
            _in("v1beta1", *ALL),
            tuple(
                f"1 of kind {kind}: version resource.k8s.io/v1beta1 is not read"
                for kind in ("DeviceClass", "ResourceClaim", "ResourceSlice")
            ),
        ),
        ((*ALL, *_in("v1beta2", SLICE)), ("1 of kind ResourceSlice: version resource.k8s.io/v1beta2 is not read",)),
    ],
)
def test_claims_are_not_looked_at_where_the_files_do_not_have_all_that_they_rest_on(
    tmp_path: Path, documents: tuple[str, ...], unread: tuple[str, ...]
) -> None:
    message, *rest = explained(tmp_path, *documents)
    assert "fits now" in message
    assert rest == [unread, [NOT_LOOKED_AT]]


@pytest.mark.parametrize(
    ("rules", "unread"),
    [
        ((), ()),
        (
            (RULE.replace("v1beta2", "v1alpha3"),),
            ("1 of kind DeviceTaintRule: version resource.k8s.io/v1alpha3 is not read",),
        ),
    ],
)
def test_where_rules_count_that_the_files_do_not_have_claims_are_not_looked_at(
    tmp_path: Path, rules: tuple[str, ...], unread: tuple[str, ...]
) -> None:
    for scheduler, missed in ((SCHEDULER, True), (PLAIN, False)):
        message, *rest = explained(tmp_path, *CLAIMED, *rules, scheduler)
        assert "fits now" in message
        assert message.endswith(UNLESS) is missed
        assert rest == [(*unread, *([RULES_MISSED] if missed else ())), [NOT_LOOKED_AT] if missed else []]


def test_where_it_is_not_known_whether_rules_count_no_start_is_promised(tmp_path: Path) -> None:
    for rules, note in (((), RULES_UNREAD), ((RULE,), RULES_UNKNOWN)):
        message, *rest = explained(tmp_path, *CLAIMED, *rules)
        assert message.endswith(UNLESS)
        assert rest == [(note,), []]


def test_a_kind_that_is_read_in_another_version_is_named_with_its_version(tmp_path: Path) -> None:
    known = files.read(written(tmp_path, QUEUE, QUEUE.replace("run.ai/v2", "run.ai/v9")))
    assert known.unread == ("1 of kind Queue: version scheduling.run.ai/v9 is not read",)


def test_a_queue_that_is_there_in_another_version_is_not_only_missing(tmp_path: Path) -> None:
    other = QUEUE.replace("run.ai/v2", "run.ai/v9").replace("name: a", "name: other")
    divided = files.read_listed(written(tmp_path, QUEUE, other))
    with pytest.raises(BadInput) as refused:
        show_queue(divided, "other", "")
    assert str(refused.value) == "there is no queue other; 1 of kind Queue: version scheduling.run.ai/v9 is not read"


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (QUEUE.replace("quota: 1", "quota: many"), "document 1: Queue a: Expected `float | null`"),
        ("kind: [", "not YAML"),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_place(tmp_path: Path, document: str, told: str) -> None:
    with pytest.raises(BadInput, match=r".*") as refused:
        files.read(written(tmp_path, document))
    assert told in str(refused.value)
