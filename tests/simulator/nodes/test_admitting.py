from __future__ import annotations

from typing import Any

import msgspec
import pytest

from simulator.nodes import pod_admission
from simulator.nodes.shape import NodeShape
from wire.core import Pod


def pod(**spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [], **spec}}, Pod)


def container(cpu: str = "", *, limit: str = "", restart: str | None = None) -> dict[str, Any]:
    requests = {"cpu": cpu} if cpu else {}
    limits = {"cpu": limit} if limit else {}
    return {"name": "c", "resources": {"requests": requests, "limits": limits}, "restartPolicy": restart}


@pytest.mark.parametrize(
    ("spec", "cpu_milli"),
    [
        ({"containers": [container("1"), container("500m")]}, 1500),
        ({"containers": [container(limit="2")]}, 2000),
        ({"containers": [container("1", limit="2")]}, 1000),
        ({"containers": [container("1")], "initContainers": [container("3"), container("2")]}, 3000),
        ({"containers": [container("1")], "initContainers": [container("3", restart="Always")]}, 4000),
        ({"containers": [container("1")], "initContainers": [container("1", restart="Always"), container("5")]}, 6000),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}, 4000),
    ],
)
def test_requests_add_up_as_kubelet_adds_them(spec: dict[str, Any], cpu_milli: int) -> None:
    assert pod_admission.requests(pod(**spec))["cpu"] == cpu_milli


@pytest.mark.parametrize(("cpu", "reason"), [("1500m", None), ("1501m", "OutOfcpu")])
def test_a_pod_is_judged_beside_those_that_are_there(cpu: str, reason: str | None) -> None:
    shape = NodeShape(name="n", cpu_milli=2000)
    refusal = pod_admission.judge(pod(containers=[container(cpu)]), [pod(containers=[container("500m")])], shape, {})
    assert (refusal.reason if refusal else None) == reason


def test_a_refusal_tells_the_numbers() -> None:
    refusal = pod_admission.judge(pod(containers=[container("3")]), [], NodeShape(name="n", cpu_milli=2000), {})
    assert refusal is not None
    assert "cpu, requested: 3000, used: 0, capacity: 2000" in refusal.message
