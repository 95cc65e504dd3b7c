"""What is found on objects as KAI leaves them: a table for each kind of row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import yaml

from cli.migration.config import CONFIG, SHARD, Fate
from cli.migration.findings import judge
from cli.migration.rows import TEXTS, Code, Found, Level, row
from tests.kai import left as kai
from tests.kai.left import GROUP, OTHER
from tools.chart import CHART
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

HALF = {"gpu_fraction": "0.5"}


def pod(manifest: dict[str, Any], *, namespace: str = "team", phase: str = "Running") -> Pod:
    """As it is read: with a namespace, an identity and a phase."""
    name = manifest["metadata"]["name"]
    metadata = {"namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7", **manifest["metadata"]}
    phase = phase if manifest["spec"].get("nodeName") else "Pending"
    return msgspec.convert({**manifest, "metadata": metadata, "status": {"phase": phase}}, Pod)


def held(group: str = GROUP, *, node: str = "n", phase: str = "Running", namespace: str = "", **changes: str) -> Pod:
    manifest = kai.reservation(node, group, **changes)
    return pod(manifest, namespace=namespace or kai.RESERVATIONS, phase=phase)


def tenant(name: str = "p", *groups: str, node: str = "n", **asked: str) -> Pod:
    return pod(kai.share(name, *(groups or (GROUP,)), node=node, **(asked or HALF)))


def node(labels: dict[str, str] | None = None) -> dict[str, Node]:
    return {"n": msgspec.convert({"metadata": {"name": "n", "labels": labels or {}}}, Node)}


def codes(found: Found) -> list[tuple[Code, str]]:
    return [(each.code, each.about) for each in judge(found)]


HELD = f"Pod kai-resource-reservation/{held().metadata.name}"
OTHER_HELD = f"Pod kai-resource-reservation/{held(OTHER).metadata.name}"
P = "Pod team/p"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([held(), tenant()], [(Code.SHARE_ADOPTED, P)], id="adopted"),
        pytest.param(
            [held(), held(OTHER, uuid="GPU-2"), tenant("p", GROUP, OTHER, gpu_fraction="0.5")],
            [(Code.SHARE_ADOPTED, P)],
            id="adopted-on-two",
        ),
        pytest.param(
            [held(name="gpu-reservation-n-abcde"), tenant()], [(Code.SHARE_ADOPTED, P)], id="adopted-of-an-older-kai"
        ),
        pytest.param([held()], [(Code.RESERVATION_IDLE, HELD)], id="idle"),
        pytest.param([tenant()], [(Code.SHARE_UNRESERVED, P)], id="unreserved"),
        pytest.param([held(phase="Failed"), tenant()], [(Code.RESERVATION_ENDED, HELD)], id="ended"),
        pytest.param([held(phase="Failed")], [], id="ended-for-nobody"),
        pytest.param([held(), tenant(node="m")], [(Code.SHARE_MISPLACED, P)], id="on-another-node"),
        pytest.param(
            [held(uuid=""), tenant()], [(Code.RESERVATION_UNTOLD, HELD), (Code.SHARE_ADOPTED, P)], id="untold"
        ),
        pytest.param(
            [held(uuid="0"), tenant()], [(Code.RESERVATION_BY_INDEX, HELD), (Code.SHARE_ADOPTED, P)], id="by-index"
        ),
        pytest.param(
            [held(), held(name="gpu-reservation-n-abcde"), tenant()],
            [
                (Code.RESERVATION_DISPUTED, HELD),
                (Code.RESERVATION_DISPUTED, "Pod kai-resource-reservation/gpu-reservation-n-abcde"),
                (Code.GPU_TWICE, HELD),
                (Code.GPU_TWICE, "Pod kai-resource-reservation/gpu-reservation-n-abcde"),
            ],
            id="disputed",
        ),
        pytest.param(
            [held(), held(OTHER), tenant(), tenant("q", OTHER)],
            [
                (Code.GPU_TWICE, HELD),
                (Code.GPU_TWICE, OTHER_HELD),
                (Code.SHARE_ADOPTED, P),
                (Code.SHARE_ADOPTED, "Pod team/q"),
            ],
            id="one-gpu-twice",
        ),
        pytest.param(
            [held("", name="x")], [(Code.RESERVATION_NAMELESS, "Pod kai-resource-reservation/x")], id="nameless"
        ),
        pytest.param(
            [held(name="x", namespace="runai-reservation"), tenant()],
            [(Code.RESERVATION_ELSEWHERE, "Pod runai-reservation/x"), (Code.SHARE_UNRESERVED, P)],
            id="in-the-namespace-of-before-0.6",
        ),
        pytest.param([tenant("p", node="n", gpu_fraction="0.5")], [(Code.SHARE_UNRESERVED, P)], id="no-reservation"),
        pytest.param(
            [held(), *[tenant(name, gpu_fraction="0.4") for name in ("p", "q", "r")]],
            [(Code.GPU_OVERBOOKED, HELD)],
            id="given-away-more-than-once",
        ),
        pytest.param([held(), tenant(gpu_memory="2000")], [(Code.SHARE_WHOLE, P)], id="memory-of-an-unknown-card"),
        pytest.param([held(), tenant(gpu_fraction="half")], [(Code.SHARE_WHOLE, P)], id="unreadable"),
    ],
)
def test_a_running_share_is_adopted_or_it_is_said_why_not(
    pods: Sequence[Pod], expected: list[tuple[Code, str]]
) -> None:
    assert codes(Found(pods=tuple(pods), nodes=node(), queues=queues("team-a"), groups=groups(pods))) == expected


def test_memory_is_counted_by_the_label_of_the_node() -> None:
    pods = (held(), tenant("p", gpu_memory="20000"), tenant("q", gpu_memory="20000"))
    labelled = node({"nvidia.com/gpu.memory": "40000"})
    found = Found(pods=pods, nodes=labelled, queues=queues("team-a"), groups=groups(pods))
    assert codes(found) == [(Code.SHARE_ADOPTED, P), (Code.SHARE_ADOPTED, "Pod team/q")]


def test_kais_newer_words_are_counted_as_well() -> None:
    manifests = [kai.share(name, GROUP, node="n") for name in ("p", "q")]
    for manifest in manifests:
        manifest["metadata"]["annotations"]["nvidia.com/container.main.gpu-memory.request"] = "10Gi"
    pods = (held(), *map(pod, manifests))
    labelled = node({"nvidia.com/gpu.memory": "40000"})
    found = Found(pods=pods, nodes=labelled, queues=queues("team-a"), groups=groups(pods))
    assert codes(found) == [(Code.SHARE_ADOPTED, P), (Code.SHARE_ADOPTED, "Pod team/q")]


def test_a_running_share_without_a_label_is_nobodys() -> None:
    manifest = kai.share("p", node="n", **HALF)
    manifest["metadata"]["labels"] = {}
    assert codes(Found(pods=(pod(manifest),), nodes=node())) == [(Code.SHARE_UNLABELLED, P)]


def queues(*names: str, **spec: Any) -> tuple[Queue, ...]:
    """Queues as KAI takes them: with resources."""
    said = {"resources": {}, **spec}
    return tuple(msgspec.convert(kai.custom("Queue", name, said), Queue) for name in names)


def groups(pods: Sequence[Pod]) -> tuple[PodGroup, ...]:
    """Those that the pods name, by hand: nothing is to be said of them."""
    named = [pod for pod in pods if "pod-group-name" in (pod.metadata.annotations or {})]
    return tuple(
        msgspec.convert({"metadata": {"name": f"pg-{pod.metadata.name}", "namespace": "team"}}, PodGroup)
        for pod in named
    )


def test_a_queue_whose_quota_weight_and_minimal_runtimes_hold_as_with_kai_is_no_row() -> None:
    gpu = {"quota": 4, "limit": -1, "overQuotaWeight": 2}
    spec = {"priority": 200, "preemptMinRuntime": "5m", "reclaimMinRuntime": "1h"}
    assert list(judge(Found(queues=queues("team-a", resources={"gpu": gpu}, **spec)))) == []


def test_a_queue_that_is_not_there_is_named() -> None:
    pods = (held(), tenant())
    found = Found(queues=queues("other"), pods=pods, groups=groups(pods), nodes=node())
    assert [(each.code, each.about, each.values.get("value", "")) for each in judge(found)] == [
        (Code.QUEUE_MISSING, "Queue team-a", ""),
        (Code.SHARE_ADOPTED, P, ""),
    ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"resources": {"gpu": {"quota": -2, "limit": -1}}}, "the gpu quota is not a valid amount"),
        ({"parentQueue": "team-a"}, "queue team-a would be below itself: [team-a team-a]"),
    ],
)
def test_a_queue_that_admission_would_refuse_is_told_before_the_switch(spec: dict[str, Any], said: str) -> None:
    refused = [each for each in judge(Found(queues=queues("team-a", **spec))) if each.code is Code.QUEUE_REFUSED]
    assert [each.about for each in refused] == ["Queue team-a"]
    assert refused[0].values["why"].startswith(f"{said} (spec.")


@pytest.mark.parametrize(
    ("spec", "kind", "group", "expected"),
    [
        ({}, "Deployment", "apps", [(Code.GROUPS_ALONE, "Deployment")]),
        ({}, "PyTorchJob", "kubeflow.org", [(Code.GROUPS_OF_GANGS, "PyTorchJob")]),
        (
            {"minSubGroup": 1, "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}},
            "Pod",
            "",
            [
                (
                    Code.GROUP_CONTRADICTS,
                    "The PodGroup contradicts itself: it has both minMember and minSubGroup; allowed: one of them",
                ),
                (Code.GROUPS_ALONE, "Pod"),
            ],
        ),
        (
            {
                "minMember": None,
                "minSubGroup": 1,
                "subGroups": [{"name": "a", "minMember": 1}],
                "preemptionDelay": "2m",
                "schedulingBackoff": 2,
                "markUnschedulable": False,
            },
            "Pod",
            "",
            [
                (Code.GROUP_FIELD, "schedulingBackoff"),
                (Code.GROUP_FIELD, "markUnschedulable"),
                (Code.GROUPS_ALONE, "Pod"),
            ],
        ),
        (
            {
                "topologyConstraint": {"topology": "t", "preferredTopologyLevel": "rack"},
                "preemptibility": "preemptible",
            },
            "RayCluster",
            "ray.io",
            [(Code.GROUPS_OF_GANGS, "RayCluster")],
        ),
    ],
)
def test_what_a_pod_group_asks_and_who_made_it(
    spec: dict[str, Any], kind: str, group: str, expected: list[tuple[Code, str]]
) -> None:
    made = kai.pod_group("p", kind, group, **spec)
    made["metadata"]["namespace"] = "team"
    rows = judge(Found(groups=(msgspec.convert(made, PodGroup),)))
    assert [(each.code, next(iter(each.values.values()))) for each in rows] == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"partitionLabelValue": "pool-a"}, [(Code.SHARD_PARTITION, "SchedulingShard s", "pool-a")]),
        (
            {"partitionLabelValue": "pool-a", "placementStrategy": {"gpu": "spread", "cpu": "spread"}},
            [
                (Code.SHARD_PARTITION, "SchedulingShard s", "pool-a"),
                (
                    Code.OPTION_MAPPED,
                    "SchedulingShard s: placementStrategy",
                    "scheduler.pools[pool-a].placementStrategy=spread",
                ),
            ],
        ),
        ({"partitionLabelValue": "Pool_A"}, [(Code.OPTION_UNFIT, "SchedulingShard s: partitionLabelValue", "Pool_A")]),
        ({"placementStrategy": {"gpu": "binpack", "cpu": "binpack"}}, []),
        (
            {"placementStrategy": {"gpu": "spread", "cpu": "spread"}},
            [(Code.OPTION_MAPPED, "SchedulingShard s: placementStrategy", "scheduler.placementStrategy=spread")],
        ),
        (
            {"placementStrategy": {"gpu": "spread", "cpu": "binpack"}},
            [(Code.OPTION_MAPPED, "SchedulingShard s: placementStrategy.gpu", "scheduler.args.gpu-strategy=spread")],
        ),
        (
            {"args": {"v": "5", "restrict-node-scheduling": "true"}, "kValue": 1.0, "goMemLimitRatio": 0.8},
            [
                (Code.OPTION_MISSING, "SchedulingShard s: args.restrict-node-scheduling", "true"),
                (Code.OPTION_UNUSED, "SchedulingShard s: args.v", "5"),
                (Code.OPTION_UNUSED, "SchedulingShard s: goMemLimitRatio", "0.8"),
            ],
        ),
        (
            {
                "usageDBConfig": {
                    "clientType": "prometheus",
                    "connectionString": "http://p:9090",
                    "usageParams": {
                        "windowType": "sliding",
                        "halfLifePeriod": "12h",
                        "stalenessPeriod": "5m",
                        "extraParams": {"gpuCapacityMetric": "gpus"},
                    },
                }
            },
            [
                (
                    Code.OPTION_MAPPED,
                    "SchedulingShard s: usageDBConfig.connectionString",
                    "scheduler.args.queue-use-prometheus=http://p:9090",
                ),
                (
                    Code.OPTION_MISSING,
                    "SchedulingShard s: usageDBConfig.usageParams.extraParams.gpuCapacityMetric",
                    "gpus",
                ),
                (
                    Code.OPTION_MAPPED,
                    "SchedulingShard s: usageDBConfig.usageParams.halfLifePeriod",
                    "scheduler.args.queue-use-half-life=12h",
                ),
            ],
        ),
        (
            {"plugins": {"numa": {"enabled": True}}, "fromTheFuture": {"a": 1}},
            [
                (Code.OPTION_MISSING, "SchedulingShard s: fromTheFuture.a", "1"),
                (Code.OPTION_MISSING, "SchedulingShard s: plugins", '{"numa":{"enabled":true}}'),
            ],
        ),
    ],
)
def test_what_a_shard_says(spec: dict[str, Any], expected: list[tuple[Code, str, str]]) -> None:
    rows = judge(Found(shards=(kai.custom("SchedulingShard", "s", spec),)))
    assert [(each.code, each.about, each.values.get("chart", each.values["value"])) for each in rows] == expected


_PLAIN: dict[str, Any] = {"gpuSharing": True}
_RUNTIME = {"resourceReservation": {"runtimeClassName": "nvidia"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"namespace": "kai-scheduler", "global": {"schedulerName": "kai-scheduler", "replicaCount": None}}, []),
        (
            {"global": {"schedulerName": "mine", "fipsMode": True, "jsonLog": True, "nodeSelector": {"a.b/c": "d"}}},
            [
                (Code.OPTION_FIXED, "global.schedulerName", "allowed: kai-scheduler"),
                (Code.OPTION_MAPPED, "global.jsonLog", "set global.jsonLog=true"),
                (Code.OPTION_MAPPED, "global.nodeSelector", 'set global.nodeSelector={"a.b/c":"d"}'),
                (Code.OPTION_UNUSED, "global.fipsMode", "is set, and there is nothing"),
            ],
        ),
        (
            {"nodeScaleAdjuster": {"service": {"enabled": True}}, "queueController": {"service": {"enabled": False}}},
            [
                (Code.OPTION_MAPPED, "nodeScaleAdjuster.service.enabled", "set global.clusterAutoscaling=true"),
                (Code.OPTION_UNUSED, "queueController", "is set, and there is nothing"),
            ],
        ),
        (
            {"scheduler": {"replicas": 3, "GOGC": 200}, "podGrouper": {"args": {"gangScheduleKnative": False}}},
            [
                (Code.OPTION_MISSING, "podGrouper.args", 'is {"gangScheduleKnative":false}: nothing here does this'),
                (Code.OPTION_MAPPED, "scheduler.replicas", "set scheduler.replicas=3"),
                (Code.OPTION_UNUSED, "scheduler.GOGC", "is set, and there is nothing"),
            ],
        ),
    ],
)
def test_what_the_config_says(spec: dict[str, Any], expected: list[tuple[Code, str, str]]) -> None:
    config = kai.custom("Config", "kai-config", {"admission": _PLAIN, "binder": _RUNTIME, **spec})
    rows = [each for each in judge(Found(configs=(config,))) if "gpuSharing" not in each.about]
    rows = [each for each in rows if "runtimeClassName" not in each.about]
    assert [(each.code, each.about.removeprefix("Config kai-config: ")) for each in rows] == [e[:2] for e in expected]
    for each, (_, _, text) in zip(rows, expected, strict=True):
        assert text in f"{each.said} {each.do}"


def test_what_a_config_does_not_say_is_told_where_it_means_something_else_here() -> None:
    rows = judge(Found(configs=(kai.custom("Config", "kai-config", {}),)))
    assert [each.code for each in rows] == [Code.SHARING_OFF, Code.NO_RUNTIME_CLASS]


def _filled() -> dict[str, Any]:
    """A Config as KAI's operator leaves it, with its defaults, and one option that somebody set."""
    services = {
        name: {
            "service": {
                "enabled": True,
                "image": {"name": name, "repository": "r", "tag": "v0.18.0", "pullPolicy": "IfNotPresent"},
                "resources": {"requests": {"cpu": "50m"}},
                "k8sClientConfig": {"qps": 50, "burst": 300},
            },
            "replicas": 1,
        }
        for name in ("podGrouper", "podGroupController", "queueController")
    }
    unprivileged = {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "runAsUser": 10000}
    memory = {"requests": {"cpu": "50m", "memory": "200Mi"}, "limits": {"cpu": "100m", "memory": "200Mi"}}
    return {
        **services,
        "namespace": "kai-scheduler",
        "global": {
            "openshift": False,
            "securityContext": {**unprivileged, "capabilities": {"drop": ["ALL"]}},
            "requireDefaultPodAntiAffinityTerm": False,
            "replicaCount": 1,
            "queueLabelKey": "kai.scheduler/queue",
            "schedulerName": "kai-scheduler",
            "nodePoolLabelKey": "kai.scheduler/node-pool",
            "jsonLog": False,
        },
        "admission": {
            "gpuSharing": True,
            "queueLabelSelector": False,
            "gpuFractionRuntimeClassName": "nvidia",
            "validatingWebhookConfigurationName": "validating-kai-admission",
            "webhook": {"port": 443, "targetPort": 9443, "probePort": 8081, "metricsPort": 8080},
            "replicas": 1,
        },
        "binder": {
            "service": {"enabled": True, "resources": memory},
            "replicas": 1,
            "metricsPort": 8080,
            "probePort": 8081,
            "volumeBindingTimeoutSeconds": 120,
            "resourceReservation": {
                **dict.fromkeys(("namespace", "serviceAccountName", "appLabel"), "kai-resource-reservation"),
                "runtimeClassName": "nvidia",
                "allocationTimeout": 40,
            },
        },
        "scheduler": {"GOGC": 400, "replicas": 1, "schedulerService": {"port": 8080, "targetPort": 8080}},
        "prometheus": {"enabled": False, "instanceName": "prometheus", "retentionPeriod": "2w"},
        "nodeScaleAdjuster": {"service": {"enabled": True}},
    }


def test_of_a_config_with_all_defaults_only_what_was_set_is_no_detail() -> None:
    rows = judge(Found(configs=(kai.custom("Config", "kai-config", _filled()),)))
    assert sum(each.is_detail for each in rows) >= 20
    assert [each.about.partition(": ")[2] for each in rows if not each.is_detail] == [
        "admission.gpuSharing",
        "binder.resourceReservation.runtimeClassName",
        "nodeScaleAdjuster.service.enabled",
    ]


def test_options_are_mapped_to_values_that_the_chart_has() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for option in (*CONFIG.values(), *SHARD.values()):
        assert (option.fate is Fate.MAPPED) is bool(option.chart)
        for path in option.chart.split(", ") if option.chart else ():
            parts, found = path.split("."), values
            for part in parts[: parts.index("args") + 1] if "args" in parts else parts:
                assert part in found, path
                found = found[part]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"labels": {"runai-gpu-group": GROUP}}, [(Code.HALF_BOUND, P)]),
        ({"env": []}, [(Code.WAITS, P)]),
        ({"gated": True, "env": []}, []),
        ({"claim": True}, [(Code.WAITS, P)]),
        ({"group": "nowhere"}, [(Code.WAITS, P)]),
    ],
)
def test_of_a_pod_that_waits_it_is_told_why_it_would_go_on_waiting(
    changes: dict[str, Any], expected: list[tuple[Code, str]]
) -> None:
    manifest = kai.share("p", **HALF)
    manifest["metadata"]["labels"] = changes.get("labels", {})
    manifest["spec"]["containers"][0]["env"] = changes.get("env", manifest["spec"]["containers"][0]["env"])
    if changes.get("gated"):
        manifest["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    if changes.get("claim"):
        manifest["spec"]["resourceClaims"] = [{"name": "data"}]
    waiting = pod(manifest)
    known = groups([waiting])
    if "group" in changes:
        manifest["metadata"]["annotations"]["pod-group-name"] = changes["group"]
        waiting = pod(manifest)
    assert codes(Found(pods=(waiting,), groups=known)) == expected


def test_a_running_pod_that_could_not_be_placed_anew_is_named_with_what_it_asks() -> None:
    manifest = kai.share("p", GROUP, node="n", **HALF)
    manifest["spec"]["resourceClaims"] = [{"name": "data"}]
    pods = (held(), pod(manifest))
    (unsupported, _) = judge(Found(pods=pods, groups=groups(pods), nodes=node(), queues=queues("team-a")))
    assert (unsupported.code, unsupported.about, unsupported.values) == (Code.UNSUPPORTED, P, {"why": "resourceClaims"})


@pytest.mark.parametrize(("phase", "is_told"), [("", True), ("Pending", True), ("Failed", True), ("Succeeded", False)])
def test_an_order_of_kais_is_told_unless_it_is_done(phase: str, is_told: bool) -> None:
    made = kai.bind_request("p", "u", node="n", groups=[GROUP], phase=phase)
    made["metadata"]["namespace"] = "team"
    told = [(Code.BIND_REQUEST, "BindRequest team/p")] if is_told else []
    assert codes(Found(requests=(msgspec.convert(made, BindRequest),))) == told


def test_what_runs_is_named_the_operator_first() -> None:
    space = {"metadata": {"annotations": {"meta.helm.sh/release-name": "kai-scheduler"}}}
    deployments = [kai.deployment(name) for name in ("binder", "kai-scheduler-default", "kai-operator", "shop")]
    deployments.append(kai.deployment("admission", 0))
    found = Found(
        at_work=("pod kai-scheduler/binder-1",),
        elsewhere=("pod other/binder-1",),
        deployments=tuple(deployments),
        webhooks=("MutatingWebhookConfiguration mutating-kai-admission", "MutatingWebhookConfiguration lenient"),
        lenient_webhooks=frozenset({"MutatingWebhookConfiguration lenient"}),
        reservation_namespace=space,
        unread=(("Nodes", "forbidden"),),
    )
    assert codes(found) == [
        (Code.UNREAD, "Nodes"),
        (Code.DEPLOYMENT_AT_WORK, "Deployment kai-scheduler/kai-operator"),
        (Code.DEPLOYMENT_AT_WORK, "Deployment kai-scheduler/binder"),
        (Code.DEPLOYMENT_AT_WORK, "Deployment kai-scheduler/kai-scheduler-default"),
        (Code.KAI_AT_WORK, "pod kai-scheduler/binder-1"),
        (Code.KAI_ELSEWHERE, "pod other/binder-1"),
        (Code.WEBHOOK, "MutatingWebhookConfiguration mutating-kai-admission"),
        (Code.WEBHOOK_LENIENT, "MutatingWebhookConfiguration lenient"),
        (Code.OWNED_NAMESPACE, "Namespace kai-resource-reservation"),
    ]


def test_every_kind_of_row_has_its_words() -> None:
    assert set(TEXTS) == set(Code)
    values = [
        "allowed",
        "chart",
        "kind",
        "phase",
        "reservation",
        "release",
        "replicas",
        "setting",
        "tenants",
        "used",
        "uuid",
        "value",
        "why",
    ]
    for code, text in TEXTS.items():
        each = row(code, "about", **dict.fromkeys(values, "X"))
        assert "{" not in each.said + each.do
        assert each.do or text.level is not Level.FIRST, code
