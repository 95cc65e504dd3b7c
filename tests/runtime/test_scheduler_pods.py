"""What pods of schedulers say of their settings."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from runtime.scheduler_pods import CONFIG, POOL, TAINT_RULES, SchedulerPods, Unsure
from runtime.settings.declaration import declared
from runtime.settings.kinds import SWITCH
from runtime.settings.scheduler import SchedulerOptions
from wire import names
from wire.core import Pod

VARIABLE = "MOORAGE_SCHEDULER_DEVICE_TAINT_RULES"
FLAG = "--device-taint-rules"
UIDS = itertools.count()
POOL_FLAG = "--partition-label-value"
POOL_VARIABLE = "MOORAGE_SCHEDULER_PARTITION_LABEL_VALUE"


def written(*arguments: str, phase: str = "Running", component: str = "scheduler", **more: Any) -> Pod:
    """A pod as the chart writes it."""
    meta = {
        "name": "s",
        "uid": f"uid-{next(UIDS)}",
        "namespace": more.pop("namespace", names.SYSTEM_NAMESPACE),
        **more.pop("metadata", {}),
    }
    container = {"name": component, "args": [component, *arguments], **more}
    labels = {"app.kubernetes.io/name": "moorage", "app.kubernetes.io/component": component}
    made = {"metadata": {**meta, "labels": labels}, "spec": {"containers": [container]}, "status": {"phase": phase}}
    return msgspec.convert(made, Pod)


def said(*pods: Pod, pool: str = "") -> bool | Unsure:
    found = SchedulerPods()
    for each in pods:
        found.note(each)
    return found.follow_taint_rules(pool, {each.metadata.uid for each in pods})


def test_these_are_settings_of_the_scheduler() -> None:
    found = {each.key: each for each in declared(SchedulerOptions)}
    assert found[TAINT_RULES].setting.kind is SWITCH
    assert (found[TAINT_RULES].default, found[POOL].default, found[CONFIG].default) == (False, "", "")
    assert (found[TAINT_RULES].flag, found[TAINT_RULES].variable("scheduler")) == (FLAG, VARIABLE)
    assert (found[POOL].flag, found[POOL].variable("scheduler")) == (POOL_FLAG, POOL_VARIABLE)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (written(), False),
        (written(FLAG), True),
        (written(f"{FLAG}=true"), True),
        (written(FLAG, "true"), True),
        (written(FLAG, "false", "--log-level=info"), False),
        (written(FLAG, "--log-level=info"), True),
        (written(f"{FLAG}=true", f"{FLAG}=false"), False),
        (written(f"{FLAG}=perhaps"), Unsure.ELSEWHERE),
        (written(f"{FLAG}-not=true"), False),
        (written(env=[{"name": VARIABLE, "value": "true"}]), True),
        (written(f"{FLAG}=false", env=[{"name": VARIABLE, "value": "true"}]), False),
        (
            written(env=[{"name": VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]),
            Unsure.ELSEWHERE,
        ),
        (written(envFrom=[{"configMapRef": {"name": "c"}}]), Unsure.ELSEWHERE),
        (written("--config=/etc/moorage.yaml"), Unsure.ELSEWHERE),
        (written("--config=/etc/moorage.yaml", FLAG), Unsure.ELSEWHERE),
        (written("--config=/etc/moorage.yaml", FLAG, f"{POOL_FLAG}="), True),
        (written(args=[], command=["moorage", "scheduler", FLAG]), True),
    ],
)
def test_the_command_line_goes_before_the_environment_and_what_lies_elsewhere_is_not_known(
    pod: Pod, expected: bool | Unsure
) -> None:
    assert said(pod) is expected


@pytest.mark.parametrize(
    "pod",
    [
        written(FLAG, component="binder"),
        written(FLAG, namespace="team-a"),
        written(FLAG, phase="Succeeded"),
        written(FLAG, phase="Failed"),
        written(FLAG, metadata={"deletionTimestamp": "2026-11-27T04:00:00Z"}),
        written(FLAG, args=["sleep"]),
    ],
)
def test_pods_that_are_no_running_scheduler_say_nothing(pod: Pod) -> None:
    assert said(pod) is Unsure.UNSEEN
    assert said(pod, written()) is False


def test_pods_that_differ_say_nothing_as_while_they_are_replaced() -> None:
    assert said(written(), written(FLAG)) is Unsure.DIFFER


def test_each_node_pool_has_a_scheduler_of_its_own() -> None:
    pods = (written(), written(f"{POOL_FLAG}=blue", FLAG))
    assert [said(*pods, pool=pool) for pool in ("", "blue", "red")] == [False, True, Unsure.UNSEEN]


POOL_ELSEWHERE = {"name": POOL_VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}


@pytest.mark.parametrize(
    "other",
    [
        written("--config=/etc/blue.yaml", f"{FLAG}=false"),
        written(f"{FLAG}=false", env=[POOL_ELSEWHERE]),
        written(f"{FLAG}=false", envFrom=[{"configMapRef": {"name": "c"}}]),
    ],
)
def test_a_pod_whose_node_pool_is_said_elsewhere_is_not_taken_for_one_of_the_default_pool(other: Pod) -> None:
    assert said(written(FLAG), other) is True
    assert said(written(f"{POOL_FLAG}=blue", FLAG), other) is Unsure.ELSEWHERE


def test_pods_that_a_list_broken_off_had_count_only_if_the_next_one_has_them_too() -> None:
    found, before, after = SchedulerPods(), written(), written(FLAG)
    found.note(before)
    found.note(after)
    assert found.follow_taint_rules("", {after.metadata.uid}) is True
    found.note(written(FLAG, phase="Succeeded", metadata={"uid": after.metadata.uid}))
    assert found.follow_taint_rules("", {after.metadata.uid}) is Unsure.UNSEEN
