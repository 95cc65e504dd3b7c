"""Custom resources: decoded, rendered, and what a Queue says by default."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import yaml

from wire.core import ObjectMeta
from wire.crds import render
from wire.crds.bindrequest import BindRequest, BindRequestSpec, ReceivedGPU
from wire.crds.definition import Definition, misfits
from wire.crds.podgroup import PodGroup
from wire.crds.queue import UNITS, Queue, counted
from wire.crds.topology import Topology, TopologyLevel, TopologySpec


def test_a_queue_decodes_with_whole_numbers_where_floats_stand() -> None:
    text = b"""{"metadata": {"name": "team"}, "spec": {"parentQueue": "all", "priority": 7,
        "resources": {"gpu": {"quota": 2, "overQuotaWeight": 0.5, "limit": -1}, "cpu": {"quota": -1}}}}"""
    queue = msgspec.json.decode(text, type=Queue)

    assert queue.spec.resources is not None
    assert queue.spec.resources.gpu is not None
    assert (queue.spec.resources.gpu.quota, queue.spec.resources.gpu.limit) == (2.0, -1.0)
    assert queue.spec.resources.memory is None


def test_a_pod_group_decodes_with_the_status_that_others_wrote() -> None:
    text = b"""{"metadata": {"name": "g", "annotations": {"kai.scheduler/last-start-timestamp": "2026-01-01"}},
        "spec": {"minMember": 4, "queue": "team", "subGroups": [{"name": "a", "minMember": 1, "parent": null}]},
        "status": {"phase": "gone", "running": 3,
          "resourcesStatus": {"allocated": {"nvidia.com/gpu": "500m", "cpu": 2}},
          "schedulingConditions": [{"type": "UnschedulableOnNodePool", "nodePool": "", "transitionID": "12",
            "reasons": [{"reason": "OverLimit", "message": "m", "details": {"queueDetails": {"name": "team"}}}]}],
          "conditions": null}}"""
    group = msgspec.json.decode(text, type=PodGroup)

    assert group.spec.sub_groups is not None
    assert group.spec.sub_groups[0].parent is None
    assert group.status.resources_status is not None
    assert group.status.resources_status.allocated == {"nvidia.com/gpu": "500m", "cpu": 2}
    assert group.status.scheduling_conditions is not None
    assert group.status.scheduling_conditions[0].transition_id == "12"


def test_a_bind_request_is_written_with_the_spelling_of_the_wire() -> None:
    request = BindRequest(
        api_version="scheduling.run.ai/v1alpha2",
        kind="BindRequest",
        metadata=ObjectMeta(name="p", namespace="n"),
        spec=BindRequestSpec(
            pod_name="p",
            selected_node="node-1",
            received_resource_type="Fraction",
            received_gpu=ReceivedGPU(count=2, portion="0.50"),
            selected_gpu_groups=["g1", "g2"],
        ),
    )
    assert msgspec.to_builtins(request) == {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {
            "podName": "p",
            "selectedNode": "node-1",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 2, "portion": "0.50"},
            "selectedGPUGroups": ["g1", "g2"],
        },
    }


def test_a_topology_decodes_from_coarse_to_fine() -> None:
    text = b'{"spec": {"levels": [{"nodeLabel": "example.com/rack", "alias": "rack"}, {"nodeLabel": "host"}]}}'
    topology = msgspec.json.decode(text, type=Topology)
    levels = [TopologyLevel(node_label="example.com/rack", alias="rack"), TopologyLevel(node_label="host")]
    assert topology == Topology(spec=TopologySpec(levels=levels))


@pytest.mark.parametrize("kind", [definition.type for definition in render.DEFINITIONS])
def test_fields_that_a_later_version_adds_do_not_stop_an_object_from_being_read(kind: type[msgspec.Struct]) -> None:
    levels = [{"nodeLabel": "host", "new": 1}]
    text = msgspec.json.encode({"new": [1], "spec": {"levels": levels, "new": {"x": None}}, "status": {"new": True}})
    assert isinstance(msgspec.json.decode(text, type=kind), kind)


def test_a_value_that_the_schema_refuses_is_still_read_when_it_is_stored() -> None:
    stored = msgspec.json.decode(b'{"spec": {"minMember": -1, "preemptibility": "semi"}}', type=PodGroup)
    assert (stored.spec.min_member, stored.spec.preemptibility) == (-1, "semi")


@pytest.mark.parametrize(
    ("value", "units", "expected"),
    [
        (0.1, UNITS["gpu"], 100_000_000),
        (0.3, UNITS["gpu"], 300_000_000),
        (1e-10, UNITS["gpu"], 0),
        (2.5, UNITS["memory"], 2_500_000),
        (1500.0, UNITS["cpu"], 1500),
        (1_152_921_504.0, UNITS["gpu"], 1_152_921_504 * 10**9),
        (1_152_921_505.0, UNITS["gpu"], None),
        (-0.5, UNITS["gpu"], None),
        (math.nan, UNITS["gpu"], None),
        (math.inf, UNITS["gpu"], None),
    ],
)
def test_an_amount_is_counted_as_the_decimal_that_it_prints_as(value: float, units: int, expected: int | None) -> None:
    assert counted(value, units) == expected


Schema = dict[str, Any]


def schema_of(plural: str) -> Schema:
    [definition] = [each for each in render.DEFINITIONS if each.plural == plural]
    schema: Schema = definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def at(schema: Schema, path: str) -> Schema:
    """The node at a dotted path; ``[]`` steps into the items of an array."""
    for step in path.split("."):
        schema = schema["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            schema = schema["items"]
    return schema


def test_the_committed_yaml_is_what_the_structs_say() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in render.FOLDER.iterdir()}
    assert committed == render.rendered(), "run: python -m wire.crds.render"


def test_the_yaml_reads_back_as_the_manifest() -> None:
    read = [yaml.safe_load(text) for text in render.rendered().values()]
    assert read == [definition.manifest() for definition in render.DEFINITIONS]


@pytest.mark.parametrize(
    ("plural", "group", "version", "scope", "short_names", "columns", "has_status"),
    [
        ("bindrequests", "scheduling.run.ai", "v1alpha2", "Namespaced", None, None, True),
        ("podgroups", "scheduling.run.ai", "v2alpha2", "Namespaced", ["pg"], None, True),
        (
            "queues",
            "scheduling.run.ai",
            "v2",
            "Cluster",
            None,
            [
                ("Priority", ".spec.priority", "string"),
                ("Parent", ".spec.parentQueue", "string"),
                ("Children", ".status.childQueues", "string"),
                ("DisplayName", ".spec.displayName", "string"),
            ],
            True,
        ),
        ("topologies", "kai.scheduler", "v1alpha1", "Cluster", None, None, False),
        (
            "gpunodes",
            "moorage.dev",
            "v1alpha1",
            "Cluster",
            None,
            [
                ("GPUs", ".status.gpus", "integer"),
                ("Healthy", ".status.healthy", "integer"),
                ("Plug-in", ".status.agent.pluginMode", "string"),
                ("Version", ".status.agent.version", "string"),
                ("Age", ".metadata.creationTimestamp", "date"),
            ],
            True,
        ),
    ],
)
def test_a_kind_is_served_under_the_names_of_kai(
    plural: str,
    group: str,
    version: str,
    scope: str,
    short_names: list[str] | None,
    columns: list[tuple[str, str, str]] | None,
    has_status: bool,
) -> None:
    [definition] = [each for each in render.DEFINITIONS if each.plural == plural]
    manifest = definition.manifest()
    [served] = manifest["spec"]["versions"]

    assert manifest["metadata"]["name"] == f"{plural}.{group}"
    assert (manifest["spec"]["group"], manifest["spec"]["scope"], served["name"]) == (group, scope, version)
    assert manifest["spec"]["names"].get("shortNames") == short_names
    printed = [(each["name"], each["jsonPath"], each["type"]) for each in served.get("additionalPrinterColumns", [])]
    assert printed == (columns or [])
    assert ("subresources" in served) is has_status


QUANTITY_MAP = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?"
        r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        "x-kubernetes-int-or-string": True,
    },
}
NOT_NEGATIVE_INT32 = {"type": "integer", "format": "int32", "minimum": 0}
SUBGROUP_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}


@pytest.mark.parametrize(
    ("plural", "path", "expected"),
    [
        ("queues", "spec.priority", {"type": "integer"}),
        ("queues", "spec.resources.gpu.quota", {"type": "number"}),
        ("queues", "spec.resources.memory.overQuotaWeight", {"type": "number"}),
        ("queues", "spec.resources.cpu.limit", {"type": "number"}),
        ("queues", "spec.preemptMinRuntime", {"type": "string"}),
        ("queues", "status.allocatedNonPreemptible", QUANTITY_MAP),
        ("queues", "status.conditions[].lastProbeTime", {"type": "string", "format": "date-time"}),
        ("podgroups", "spec.minMember", NOT_NEGATIVE_INT32),
        ("podgroups", "spec.minSubGroup", NOT_NEGATIVE_INT32),
        ("podgroups", "spec.subGroups[].minSubGroup", NOT_NEGATIVE_INT32),
        ("podgroups", "spec.subGroups[].name", {**SUBGROUP_NAME, "minLength": 1}),
        ("podgroups", "spec.subGroups[].parent", SUBGROUP_NAME),
        ("podgroups", "spec.preemptibility", {"type": "string", "enum": ["preemptible", "non-preemptible"]}),
        ("podgroups", "spec.markUnschedulable", {"type": "boolean"}),
        ("podgroups", "spec.schedulingBackoff", {"type": "integer", "format": "int32"}),
        ("podgroups", "spec.stalenessGracePeriod", {"type": "string"}),
        ("podgroups", "spec.topologyConstraint.requiredTopologyLevel", {"type": "string"}),
        ("podgroups", "status.schedulingConditions[].transitionID", {"type": "string"}),
        ("podgroups", "status.schedulingConditions[].reasons[].details.queueDetails.queueResourceLimits", QUANTITY_MAP),
        ("podgroups", "status.conditions[].transitionID", {"type": "string"}),
        ("bindrequests", "spec.receivedGPU.count", {"type": "integer"}),
        ("bindrequests", "spec.receivedGPU.portion", {"type": "string"}),
        ("bindrequests", "spec.selectedGPUGroups", {"type": "array", "items": {"type": "string"}}),
        (
            "bindrequests",
            "spec.resourceClaimAllocations[].allocation",
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ),
        ("bindrequests", "spec.predictedNUMAZones[].amount", QUANTITY_MAP),
        ("bindrequests", "spec.backoffLimit", {"type": "integer", "format": "int32"}),
        ("bindrequests", "status.failedAttempts", {"type": "integer", "format": "int32"}),
        ("topologies", "metadata", {"type": "object"}),
        ("gpunodes", "spec.mig[].layout[].start", NOT_NEGATIVE_INT32),
        ("gpunodes", "status.cards[].memoryMiB", {"type": "integer"}),
        ("gpunodes", "status.tenants[].memoryPercent", {**NOT_NEGATIVE_INT32, "maximum": 100}),
    ],
)
def test_a_field_has_the_schema_of_the_contract(plural: str, path: str, expected: Schema) -> None:
    node = {key: value for key, value in at(schema_of(plural), path).items() if key != "description"}
    assert node == expected


@pytest.mark.parametrize(
    ("plural", "path", "required"),
    [
        ("topologies", "spec", ["levels"]),
        ("topologies", "spec.levels[]", ["nodeLabel"]),
        ("podgroups", "spec", None),
        ("podgroups", "spec.subGroups[]", ["name"]),
        ("podgroups", "status.conditions[]", None),
        ("queues", "spec", None),
        ("queues", "status.conditions[]", ["type", "status"]),
        ("bindrequests", "spec.predictedNUMAZones[]", ["zone", "amount"]),
        (
            "bindrequests",
            "spec.extendedResourceClaimAllocation.containerMappings[]",
            ["containerName", "requestName", "resourceName"],
        ),
    ],
)
def test_only_what_the_contract_requires_is_required(plural: str, path: str, required: list[str] | None) -> None:
    assert at(schema_of(plural), path).get("required") == required


def nodes(schema: Schema) -> list[Schema]:
    below = [*schema.get("properties", {}).values()]
    below += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return [schema, *(node for child in below for node in nodes(child))]


@pytest.mark.parametrize("definition", render.DEFINITIONS, ids=lambda definition: definition.plural)
def test_every_schema_is_structural(definition: Definition) -> None:
    for node in nodes(schema_of(definition.plural)):
        assert ("type" in node) is not node.get("x-kubernetes-int-or-string", False)
        assert not {"$ref", "oneOf", "allOf", "default", "nullable"} & node.keys()
        assert not ("properties" in node and "additionalProperties" in node)


@pytest.mark.parametrize(
    ("plural", "spec", "refused"),
    [
        ("podgroups", {"minMember": 0, "preemptibility": "preemptible", "schedulingBackoff": -1}, []),
        ("podgroups", {"minMember": -1}, [("spec.minMember", "0 to 2147483647")]),
        ("podgroups", {"minMember": 2**31}, [("spec.minMember", "0 to 2147483647")]),
        ("podgroups", {"schedulingBackoff": -(2**31) - 1}, [("spec.schedulingBackoff", "-2147483648 to 2147483647")]),
        ("podgroups", {"preemptibility": "x"}, [("spec.preemptibility", "preemptible, non-preemptible")]),
        ("podgroups", {"subGroups": [{"name": ""}]}, [("spec.subGroups[0].name", "1 to any number of characters")]),
        ("podgroups", {"subGroups": [{"name": "a", "minmember": 1}]}, [("spec.subGroups[0].minmember", "")]),
        ("queues", {"resources": {"gpu": {"quota": -1, "limit": 0.5}}, "priority": None}, []),
        ("queues", {"resources": {"gpus": {}}}, [("spec.resources.gpus", "")]),
        ("topologies", {"levels": [{"nodeLabel": "a" * 317}]}, [("spec.levels[0].nodeLabel", "1 to 316 characters")]),
    ],
)
def test_what_the_api_server_refuses_or_drops_is_told_by_the_schema(
    plural: str, spec: Any, refused: list[tuple[str, str]]
) -> None:
    found = misfits(at(schema_of(plural), "spec"), spec, "spec")
    assert [(each.field, each.allowed) for each in found] == refused


def test_a_type_without_a_structural_schema_is_a_mistake_that_shows() -> None:
    class Wrong(msgspec.Struct):
        either: int | str = 0

    wrong = Definition(group="g", version="v1", kind="W", plural="ws", namespaced=True, has_status=False, type=Wrong)
    with pytest.raises(TypeError, match="union of 2 types"):
        wrong.manifest()
