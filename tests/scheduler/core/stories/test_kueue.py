"""Kueue in front: its gates keep pods waiting, and what it writes when it admits them is followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from scheduler.core.model.plan import Bind, Entry, Explain, Gang
from scheduler.core.model.verdict import Code
from tests.scheduler.core.objects import changed, cluster, feed, node, pod, pod_group
from wire.core import Pod

EXAMPLE = Path(__file__).parents[4] / "examples" / "migrating" / "kueue" / "pod.yaml"
GATES = ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"]


def gated(name: str, *gates: str, **asked: Any) -> Pod:
    return pod(name, gpus=1, spec={"schedulingGates": [{"name": gate} for gate in gates]}, **asked)


def admitted(there: Pod, **spec: Any) -> Pod:
    """The pod as Kueue changes it: without its gates, on the flavor's nodes."""
    opened = msgspec.structs.replace(there.spec, scheduling_gates=None, **spec)
    return msgspec.structs.replace(changed(there), spec=opened)


def entry(made: Any) -> Entry | None:
    entries = made.decide(0).entries
    return entries[0] if entries else None


@pytest.mark.parametrize("gate", GATES)
def test_a_pod_with_a_gate_of_kueues_is_not_scheduled_whatever_room_there_is(gate: str) -> None:
    waiting = gated("p", gate)
    made = cluster(node(gpus=4), waiting)
    assert entry(made) is None
    feed(made, admitted(waiting))
    assert isinstance(entry(made), Bind)


def test_a_gang_starts_when_kueue_has_admitted_as_many_as_it_needs() -> None:
    members = [gated(f"m{number}", GATES[0], group="g") for number in range(2)]
    made = cluster(node(gpus=4), pod_group("g", 2), *members)
    feed(made, admitted(members[0]))
    found = entry(made)
    assert isinstance(found, Explain)
    assert (found.verdict.code, found.verdict.gated) == (Code.GANG_NOT_READY, 1)
    feed(made, admitted(members[1]))
    assert isinstance(entry(made), Gang)


def test_the_example_is_a_pod_that_waits_for_kueue() -> None:
    body = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    example = msgspec.convert({**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "1"}}, Pod)
    made = cluster(node(gpus=4), example)
    assert entry(made) is None
    feed(made, admitted(example))
    assert isinstance(entry(made), Bind)
