from __future__ import annotations

import json

from simulator.checks.checker import BIND_REQUESTS
from tests.simulator.made_up import Story, pod


def test_a_pod_bound_twice_breaks_s5() -> None:
    assert Story().sees(pod("p", node="node-0")).sees(pod("p", node="node-1")).broken() == {"S5"}


def test_a_pod_that_runs_elsewhere_breaks_s5() -> None:
    assert Story().sees(pod("p")).starts("p", node="node-1").broken() == {"S5"}


def test_a_pod_that_runs_without_being_bound_breaks_s5() -> None:
    assert Story().sees(pod("p", node="")).starts("p").broken() == {"S5"}


def test_a_pod_bound_elsewhere_than_its_attempt_chose_breaks_s5() -> None:
    request = {"metadata": {"uid": "attempt-1", "name": "p"}, "spec": {"selectedNode": "node-1"}}
    grant = {"moorage.dev/grant": json.dumps({"attempt": "attempt-1", "devices": []})}
    story = Story().sees(request, kind=BIND_REQUESTS).sees(pod("p", node=""))
    assert story.sees(pod("p", node="node-0", annotations=grant)).broken() == {"S5"}
