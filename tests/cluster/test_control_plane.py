from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pauses import pause_s
from tools.cluster.plane import ControlPlane
from tools.processes import ProcessDied
from tools.rest import Rest, RestError

pytestmark = pytest.mark.cluster

POD = {"containers": [{"name": "main", "image": "none"}]}
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: buoys.harbour.test}
spec:
  group: harbour.test
  names: {kind: Buoy, plural: buoys}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def eventually(what: Callable[[], Any], *, within_s: float = 120.0) -> Any:
    """Ask a real cluster until it answers with something true."""
    began_at = time.monotonic()
    while not (answer := what()):
        waited_s = time.monotonic() - began_at
        assert waited_s < within_s, what
        time.sleep(pause_s(waited_s))
    return answer


def namespace(rest: Rest, name: str) -> str:
    """Make a namespace in which pods can be made: the controller manager has given it its service account."""
    rest.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    eventually(lambda: rest.send("GET", account)[0] == 200)
    return name


def make_pod(rest: Rest, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return rest.call("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name}, "spec": spec})


def make_node(rest: Rest, name: str, labels: dict[str, str]) -> None:
    rest.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": room, "capacity": room, "conditions": ready}
    rest.call("PUT", f"/api/v1/nodes/{name}/status", {"metadata": {"name": name}, "status": status})


def bound_to_a_zone(rest: Rest, namespace: str) -> dict[str, Any]:
    """Make a node in a zone and a pod, bind them, and return the pod."""
    rest.call(
        "POST", "/api/v1/nodes", {"metadata": {"name": "pier", "labels": {"topology.kubernetes.io/zone": "north"}}}
    )
    make_pod(rest, namespace, "bound", POD | {"schedulerName": "ours"})
    path = f"/api/v1/namespaces/{namespace}/pods/bound"
    rest.call("POST", f"{path}/binding", {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "pier"}})
    return rest.call("GET", path)


def test_it_is_the_version_that_go_mod_names_or_that_the_assets_bring(control_plane: ControlPlane) -> None:
    version = control_plane.rest().call("GET", "/version")
    assert version["gitVersion"].startswith(f"v{version['major']}.{version['minor'].rstrip('+')}.")


def test_applying_twice_changes_nothing(control_plane: ControlPlane) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/buoys.harbour.test"
    control_plane.apply(CRD)
    before = control_plane.rest().call("GET", path)["metadata"]["generation"]
    control_plane.apply(CRD)
    assert control_plane.rest().call("GET", path)["metadata"]["generation"] == before


@pytest.fixture(scope="module")
def other() -> Iterator[ControlPlane]:
    """A second control plane, with everything set that can be set: each start costs some seconds."""
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
    with ControlPlane(
        feature_gates={"PodTopologyLabelsAdmission": False},
        audit_policy=json.dumps(policy),
        scheduler=True,
        node_lifecycle=False,
    ) as plane:
        namespace(plane.rest(), "settings")
        yield plane


def test_two_run_side_by_side_and_do_not_know_each_other(control_plane: ControlPlane, other: ControlPlane) -> None:
    assert other.url != control_plane.url
    with pytest.raises(RestError, match="401"):
        control_plane.rest(other.token).call("GET", "/api/v1/namespaces")


def test_with_the_gate_off_binding_does_not_copy_the_topology_labels(other: ControlPlane) -> None:
    assert "labels" not in bound_to_a_zone(other.rest(), "settings")["metadata"]


def test_without_node_lifecycle_the_stock_scheduler_takes_a_node_that_is_only_an_object(other: ControlPlane) -> None:
    rest = other.rest()
    make_node(rest, "quay", {})
    assert "taints" not in rest.call("GET", "/api/v1/nodes/quay")["spec"]
    path = "/api/v1/namespaces/settings/pods/scheduled"
    make_pod(rest, "settings", "scheduled", POD)
    assert eventually(lambda: rest.call("GET", path)["spec"].get("nodeName")) == "quay"


def test_the_audit_log_tells_who_wrote_what(other: ControlPlane) -> None:
    other.rest().call("POST", "/api/v1/namespaces/settings/configmaps", {"metadata": {"name": "audited"}})
    events = [json.loads(line) for line in other.audit_log_path.read_text().splitlines()]
    writers = {
        event["user"]["username"]
        for event in events
        if event["verb"] == "create" and event.get("objectRef", {}).get("name") == "audited"
    }
    assert writers == {"admin"}


def test_with_the_gate_at_its_default_binding_copies_the_topology_labels(control_plane: ControlPlane) -> None:
    rest = control_plane.rest()
    pod = bound_to_a_zone(rest, namespace(rest, "labels"))
    assert pod["metadata"]["labels"] == {"topology.kubernetes.io/zone": "north"}


def test_a_program_that_does_not_start_is_told_with_its_log_and_leaves_nothing(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    wrong = ControlPlane(feature_gates={"NoSuchGate": True}, folder=tmp_path / "run")
    with pytest.raises(ProcessDied, match=r"(?s)kube-apiserver ended with 1.*NoSuchGate"):
        wrong.start()
    assert not (tmp_path / "run").exists()
    control_plane.check()
