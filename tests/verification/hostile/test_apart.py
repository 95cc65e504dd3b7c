"""Pods that keep apart: in some runs, some of them, by a rule or by its label."""

from __future__ import annotations

import random

from simulator.nodes import shape
from verification.hostile import workload
from verification.hostile.actions import APART, CreatePod
from verification.hostile.scenario import scenario_of
from verification.hostile.variations import spread_out

NODES = shape.parse(["3x2x40GiB"])


def drawn(size: int = 200) -> list[CreatePod]:
    """Pods of a run that has some."""
    made = workload.draw(random.Random(1), shapes=NODES, duration_s=60.0, size=size)
    return [action for action in spread_out(random.Random(1), made) if isinstance(action, CreatePod)]


def test_a_tenth_of_the_runs_have_pods_that_keep_apart_under_faults() -> None:
    having = [
        each
        for each in map(scenario_of, range(300))
        if any(isinstance(action, CreatePod) and action.apart for action in each.actions)
    ]
    assert 15 <= len(having) <= 45
    assert len({fault.kind for each in having for fault in each.faults}) > 30


def test_some_name_the_rule_and_others_have_its_label_only() -> None:
    alone = [pod for pod in drawn() if not pod.group]
    naming, labelled = [pod for pod in alone if pod.apart], [pod for pod in alone if APART in pod.labels]
    assert 0.4 < len(labelled) / len(alone) < 0.8
    assert 0.3 < len(naming) / len(labelled) < 0.7
    assert all(pod.labels[APART] == pod.apart for pod in naming)


def test_the_manifest_keeps_a_pod_off_nodes_that_have_one_of_its_kind() -> None:
    affinity = CreatePod(at_s=0, name="p", apart="a").manifest["spec"]["affinity"]
    (term,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term == {"labelSelector": {"matchLabels": {APART: "a"}}, "topologyKey": "kubernetes.io/hostname"}
    assert "affinity" not in CreatePod(at_s=0, name="p").manifest["spec"]
