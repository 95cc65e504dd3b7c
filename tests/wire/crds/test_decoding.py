from __future__ import annotations

import msgspec
import pytest

from wire.core import ObjectMeta
from wire.crds import render
from wire.crds.bindrequest import BindRequest, BindRequestSpec, ReceivedGPU
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
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
