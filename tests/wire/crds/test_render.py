from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from wire.crds import render
from wire.crds.definition import Definition

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


def test_a_type_without_a_structural_schema_is_a_mistake_that_shows() -> None:
    class Wrong(msgspec.Struct):
        either: int | str = 0

    wrong = Definition(group="g", version="v1", kind="W", plural="ws", namespaced=True, has_status=False, type=Wrong)
    with pytest.raises(TypeError, match="union of 2 types"):
        wrong.manifest()
