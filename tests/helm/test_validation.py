"""All that the chart renders is taken by a real API server, strictly: unknown and doubled fields are errors there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.helm.chart import TABLE, Values, rendered
from tools.chart import CHART
from tools.cluster.plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.helm]

#: Kinds of cert-manager and Prometheus Operator, which are not there.
_FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/")
_NAMESPACES = ("kai-scheduler", "kai-resource-reservation", "kai-scale-adjust", "kai-scheduler-node")


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """With all that the objects of a chart lie in."""
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _NAMESPACES]
    # No pod is taken, not even for show, whose service account is not there.
    of = {"name": "moorage-check", "namespace": "kai-scheduler"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": of}
    control_plane.apply(yaml.safe_dump_all([*spaces, account]))
    control_plane.apply("\n---\n".join(path.read_text() for path in sorted((CHART / "crds").glob("*.yaml"))))
    return control_plane


@pytest.fixture(scope="module")
def taken() -> set[str]:
    """What the server took already, as JSON: it is not asked twice, and most objects are the same for most values."""
    return set()


@pytest.mark.parametrize("values", TABLE.values(), ids=TABLE)
def test_a_real_api_server_takes_every_object(
    plane: ControlPlane, taken: set[str], values: Values, tmp_path: Path
) -> None:
    objects = [made for made in rendered(tmp_path, values) if not made["apiVersion"].startswith(_FOREIGN)]
    assert objects
    fresh = {json.dumps(made) for made in objects} - taken
    if not fresh:
        return
    said = plane.kubectl(
        *("apply", "--dry-run=server", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-"),
        stdin="\n---\n".join(sorted(fresh)),
    )
    assert len(said.splitlines()) == len(fresh)
    taken |= fresh


def test_a_field_that_is_none_would_be_refused(plane: ControlPlane, tmp_path: Path) -> None:
    (deployment, *_) = [made for made in rendered(tmp_path, {}) if made["kind"] == "Deployment"]
    deployment["spec"]["replicass"] = 2
    with pytest.raises(Exception, match=r"unknown field|field not declared in schema"):
        plane.kubectl(
            *("apply", "--dry-run=server", "--server-side", "--validate=strict", "-f", "-"),
            stdin=yaml.safe_dump(deployment),
        )
