from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube.client.resources import Resource
from tools.cluster.plane import ControlPlane
from tools.rest import Rest, RestError
from wire.crds import render
from wire.crds.bindrequest import BindRequest, BindRequestSpec, ReceivedGPU
from wire.crds.definition import Definition
from wire.crds.podgroup import PodGroup

pytestmark = pytest.mark.cluster

Raw = dict[str, Any]

DEFINITIONS = {definition.plural: definition for definition in render.DEFINITIONS}
NAMESPACE = "crds"


@pytest.fixture(scope="module")
def rest(control_plane: ControlPlane) -> Rest:
    """The API server with our CRDs in it, and a namespace for their objects."""
    control_plane.apply("\n---\n".join(render.rendered().values()))
    rest = control_plane.rest()
    rest.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    return rest


def collection(definition: Definition) -> str:
    kind = Resource(
        group=definition.group,
        version=definition.version,
        plural=definition.plural,
        kind=definition.kind,
        namespaced=definition.namespaced,
        type=definition.type,
    )
    return kind.path(NAMESPACE)


def create(rest: Rest, plural: str, name: str, spec: Raw, **more: Any) -> Raw:
    """Create with strict validation: a field that is not in the schema is an error."""
    definition = DEFINITIONS[plural]
    head = {"apiVersion": f"{definition.group}/{definition.version}", "kind": definition.kind}
    body = {**head, "metadata": {"name": name}, "spec": spec, **more}
    return rest.call("POST", f"{collection(definition)}?fieldValidation=Strict", body)


def replace(rest: Rest, plural: str, stored: Raw, **change: Any) -> Raw:
    path = f"{collection(DEFINITIONS[plural])}/{stored['metadata']['name']}?fieldValidation=Strict"
    return rest.call("PUT", path, {**stored, **change})


@pytest.mark.parametrize("definition", render.DEFINITIONS, ids=lambda definition: definition.plural)
def test_a_crd_is_established_and_its_schema_is_structural(rest: Rest, definition: Definition) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition.name}"
    conditions = {each["type"]: each["status"] for each in rest.call("GET", path)["status"]["conditions"]}
    assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
    assert conditions.get("NonStructuralSchema", "False") == "False"


def test_a_queue_keeps_every_field_and_shows_its_columns(control_plane: ControlPlane, rest: Rest) -> None:
    amounts = {"quota": 2.5, "overQuotaWeight": 1, "limit": -1}
    spec = {
        "displayName": "Team A",
        "parentQueue": "all",
        "priority": 7,
        "preemptMinRuntime": "10m",
        "reclaimMinRuntime": "1h",
        "resources": {"cpu": amounts, "memory": amounts, "gpu": amounts},
    }
    assert create(rest, "queues", "crds-team-a", spec)["spec"] == spec
    table = control_plane.kubectl("get", "queues.scheduling.run.ai", "crds-team-a").splitlines()
    assert table[0].split() == ["NAME", "PRIORITY", "PARENT", "CHILDREN", "DISPLAYNAME"]
    assert table[1].split() == ["crds-team-a", "7", "all", "Team", "A"]


def test_a_status_is_written_through_its_subresource_only(rest: Rest) -> None:
    status = {
        "allocated": {"nvidia.com/gpu": "500m", "cpu": 2},
        "childQueues": ["a"],
        "conditions": [{"type": "Orphan", "status": "True", "lastProbeTime": "2026-01-01T00:00:00Z"}],
    }
    stored = create(rest, "queues", "crds-status", {}, status=status)
    assert "status" not in stored

    path = f"{collection(DEFINITIONS['queues'])}/crds-status/status?fieldValidation=Strict"
    assert rest.call("PUT", path, {**stored, "status": status})["status"] == status


def test_a_gpu_node_keeps_every_field_of_its_status_and_shows_its_columns(
    control_plane: ControlPlane, rest: Rest
) -> None:
    spec = {"mig": [{"uuid": "GPU-a", "layout": [{"profile": "3g.40gb", "start": 4}], "attempt": "a1"}]}
    stored = create(rest, "gpunodes", "crds-node", spec)
    assert stored["spec"] == spec
    card = {"uuid": "GPU-a", "index": 0, "memoryMiB": 81559, "product": "H100", "numa": 1, "mig": True}
    card |= {"health": {"state": "ill", "reason": "XID 79", "since": "2026-01-01T00:00:00Z"}, "slices": ["MIG-b"]}
    card |= {"profiles": [{"name": "3g.40gb", "size": 4, "starts": [0, 4]}]}
    tenant = {"podUID": "u", "pod": "team-a/one", "card": "MIG-b", "memoryPercent": 95, "smPercent": 5}
    tenant["idleSince"] = "2026-01-01T00:00:00Z"
    agent = {"version": "0.1.0", "backEnds": ["kill"], "pluginMode": "off", "missing": [{"what": "mps", "why": "off"}]}
    status = {"gpus": 1, "healthy": 0, "cards": [card], "tenants": [{**tenant, "enforced": "kill"}], "agent": agent}
    status["reportedAt"] = "2026-01-01T00:00:00Z"
    path = f"{collection(DEFINITIONS['gpunodes'])}/crds-node/status?fieldValidation=Strict"
    assert rest.call("PUT", path, {**stored, "status": status})["status"] == status
    table = control_plane.kubectl("get", "gpunodes", "crds-node").splitlines()
    assert [line.split()[:5] for line in table] == [
        ["NAME", "GPUS", "HEALTHY", "PLUG-IN", "VERSION"],
        ["crds-node", "1", "0", "off", "0.1.0"],
    ]


def test_a_pod_group_keeps_every_field_and_has_its_short_name(control_plane: ControlPlane, rest: Rest) -> None:
    near = {"topology": "wires", "requiredTopologyLevel": "rack", "preferredTopologyLevel": "host"}
    spec = {
        "minMember": 0,
        "minSubGroup": 2,
        "queue": "team",
        "priorityClassName": "train",
        "preemptibility": "non-preemptible",
        "markUnschedulable": False,
        "schedulingBackoff": -1,
        "preemptionDelay": "5s",
        "stalenessGracePeriod": "-1s",
        "topologyConstraint": near,
        "subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "parent": "a", "topologyConstraint": near}],
    }
    stored = create(rest, "podgroups", "group", spec)
    assert stored["spec"] == spec
    assert msgspec.convert(stored, PodGroup).spec.sub_groups is not None
    assert control_plane.kubectl("get", "pg", "-n", NAMESPACE, "-o", "name").split() == [
        "podgroup.scheduling.run.ai/group"
    ]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minMember": -1}, "spec.minMember"),
        ({"minMember": 2**31}, "spec.minMember"),
        ({"minMember": "1"}, "spec.minMember"),
        ({"minSubGroup": -1}, "spec.minSubGroup"),
        ({"preemptibility": "semi-preemptible"}, "spec.preemptibility"),
        ({"subGroups": [{"minMember": 1}]}, "spec.subGroups[0].name"),
        ({"subGroups": [{"name": ""}]}, "spec.subGroups[0].name"),
        ({"subGroups": [{"name": "Upper"}]}, "spec.subGroups[0].name"),
        ({"subGroups": [{"name": "a", "parent": "-"}]}, "spec.subGroups[0].parent"),
        ({"members": 1}, "spec.members"),
    ],
    ids=str,
)
def test_a_malformed_pod_group_is_refused_by_field(rest: Rest, spec: Raw, field: str) -> None:
    with pytest.raises(RestError) as refusal:
        create(rest, "podgroups", "malformed", spec)
    assert refusal.value.code in {400, 422}
    assert field in str(refusal.value)


def test_a_bind_request_that_we_write_is_stored_as_it_is(rest: Rest) -> None:
    spec = BindRequestSpec(
        pod_name="p",
        selected_node="node-1",
        received_resource_type="Fraction",
        received_gpu=ReceivedGPU(count=2, portion="0.50"),
        selected_gpu_groups=["g1", "g2"],
        backoff_limit=3,
    )
    written: Raw = msgspec.to_builtins(spec)
    stored = create(rest, "bindrequests", "p", written)
    assert stored["spec"] == written
    assert msgspec.convert(stored, BindRequest).spec == spec


def test_allocations_of_resource_claims_are_kept_whole(rest: Rest) -> None:
    allocation = {"devices": {"results": [{"driver": "gpu.example.com", "device": "0", "adminAccess": None}]}}
    spec = {
        "resourceClaimAllocations": [{"name": "claim", "allocation": allocation}],
        "extendedResourceClaimAllocation": {
            "allocation": allocation,
            "deviceRequests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}],
            "containerMappings": [{"containerName": "c", "requestName": "r", "resourceName": "nvidia.com/gpu"}],
        },
        "predictedNUMAZones": [{"zone": "0", "amount": {"cpu": "1500m", "nvidia.com/gpu": 1}}],
    }
    assert create(rest, "bindrequests", "claims", spec)["spec"] == spec


def levels(*labels: str, **aliases: str) -> Raw:
    return {"levels": [{"nodeLabel": each, **({"alias": aliases[each]} if each in aliases else {})} for each in labels]}


def test_only_the_aliases_of_a_topology_can_be_edited(rest: Rest) -> None:
    stored = create(rest, "topologies", "crds-edited", levels("block", "rack", "kubernetes.io/hostname"))
    renamed = levels("block", "rack", "kubernetes.io/hostname", block="room", rack="shelf")

    stored = replace(rest, "topologies", stored, spec=renamed)
    assert stored["spec"] == renamed
    stored = replace(rest, "topologies", stored, spec=levels("block", "rack", "kubernetes.io/hostname", rack="row"))
    for other in (("rack", "block", "kubernetes.io/hostname"), ("block", "rack"), ("block", "rack", "host")):
        with pytest.raises(RestError, match="nodeLabel structure is immutable; only aliases may be edited"):
            replace(rest, "topologies", stored, spec=levels(*other))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (levels("rack", "block", "rack"), "nodeLabel must be unique"),
        (
            levels("kubernetes.io/hostname", "rack"),
            "the kubernetes.io/hostname label can only be used at the lowest level of topology",
        ),
        (levels(), "spec.levels"),
        (levels(*(f"level-{index}" for index in range(17))), "spec.levels"),
        ({}, "spec.levels"),
        (levels(""), "spec.levels[0].nodeLabel"),
        (levels("not a label"), "spec.levels[0].nodeLabel"),
        (levels("x" * 317), "spec.levels[0].nodeLabel"),
        ({"levels": [{"alias": "rack"}]}, "spec.levels[0].nodeLabel"),
        (levels("rack", rack="not an alias"), "spec.levels[0].alias"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_topology_that_breaks_a_rule_is_refused(rest: Rest, spec: Raw, message: str) -> None:
    with pytest.raises(RestError) as refusal:
        create(rest, "topologies", "crds-refused", spec)
    assert refusal.value.code == 422
    assert message in str(refusal.value)


def test_sixteen_levels_of_the_longest_labels_are_within_the_budget_of_the_rules(rest: Rest) -> None:
    labels = [f"{'d' * 250}.x/{'n' * 61}{index:02}" for index in range(16)]
    stored = create(rest, "topologies", "crds-largest", levels(*labels))
    aliased = levels(*labels, **{labels[0]: "top"})
    assert replace(rest, "topologies", stored, spec=aliased)["spec"] == aliased
