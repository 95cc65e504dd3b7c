from __future__ import annotations

from typing import Any

import pytest

from cli.checks.nodes import check_cdi
from cli.checks.reader import Finding, Level, Reader
from tests.cli.checks.told import Told

VIRTUAL_TIME = True

POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
PODS = "/api/v1/pods"
CDI = "k8s.device-plugin.nvidia.com/gpu="


def policy(**cdi: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/version": "v26.3.0"}
    return {"items": [{"metadata": {"name": "cluster-policy", "labels": labels}, "spec": {"cdi": cdi}}]}


def pod(name: str, told: str, *, age: int = 0, granted: bool = True) -> dict[str, Any]:
    annotations = {"moorage.dev/visible-devices.c0": told} | ({"moorage.dev/grant": "{}"} if granted else {})
    created = f"2026-01-01T00:00:{50 - age:02}Z"
    return {"metadata": {"name": name, "namespace": "team", "creationTimestamp": created, "annotations": annotations}}


async def found(answers: dict[str, Any], *pods: dict[str, Any]) -> Finding:
    (finding,) = await check_cdi(Reader(Told({PODS: {"items": list(pods)}, **answers})))
    return finding


@pytest.mark.parametrize(
    ("answers", "pods", "said"),
    [
        ({}, [], "by UUIDs: there is no ClusterPolicy"),
        ({POLICIES: {"items": []}}, [pod("a", "GPU-a")], "by UUIDs: there is no ClusterPolicy"),
        ({POLICIES: policy(enabled=False)}, [pod("a", "GPU-a")], "by UUIDs: the ClusterPolicy cluster-policy"),
        ({POLICIES: policy(enabled=True)}, [], "by CDI names: the ClusterPolicy cluster-policy"),
        (
            {POLICIES: policy(enabled=True)},
            [pod("old", "GPU-a", age=9), pod("new", f"{CDI}GPU-a"), pod("forged", "all", granted=False)],
            "by CDI names: the ClusterPolicy cluster-policy",
        ),
    ],
)
async def test_what_was_told_last_agrees_with_the_cluster_policy(
    answers: dict[str, Any], pods: list[dict[str, Any]], said: str
) -> None:
    finding = await found(answers, *pods)
    assert (finding.level, finding.said) == (Level.OK, f"containers are told devices {said}")


@pytest.mark.parametrize(
    ("answers", "told", "said"),
    [
        ({}, f"{CDI}GPU-a", "pod team/p was told devices in another form than by UUIDs, as is right here: there is"),
        (
            {POLICIES: policy(enabled=True)},
            "GPU-a",
            "pod team/p was told devices in another form than by CDI names, as is right",
        ),
        ({POLICIES: policy(enabled=True, nriPluginEnabled=True)}, "GPU-a", "hands devices over by its NRI plugin"),
        ({POLICIES: policy(enabled="perhaps")}, "GPU-a", "the ClusterPolicy can't be read: Expected `bool | null`"),
    ],
)
async def test_what_does_not_agree_or_is_not_served_is_a_warning(answers: dict[str, Any], told: str, said: str) -> None:
    finding = await found(answers, pod("p", told), pod("older", "", age=5))
    assert finding.level is Level.WARNING
    assert said in finding.said
    assert finding.do


SHOWN = pytest.mark.parametrize(
    ("answers", "pods", "is_warned"),
    [
        ({}, [], True),
        ({}, [pod("p", "GPU-a")], True),
        ({POLICIES: policy(enabled=True)}, [pod("p", "GPU-a")], True),
        ({POLICIES: policy(enabled=True)}, [], False),
        ({}, [pod("p", f"{CDI}GPU-a")], False),
    ],
)


@SHOWN
async def test_nodes_whose_limits_by_the_agent_are_left_out_because_devices_are_told_by_uuids_are_named(
    answers: dict[str, Any], pods: list[dict[str, Any]], is_warned: bool
) -> None:
    words = {"a": "memory-cap=hami-core", "b": "memory-cap,hami-core", "c": "mps,compute-cap=hami-core"}
    nodes = [{"metadata": {"name": on, "annotations": {"moorage.dev/enforces": word}}} for on, word in words.items()]
    there = {PODS: {"items": pods}, "/api/v1/nodes": {"items": nodes}, **answers}
    _, *others = await check_cdi(Reader(Told(there)))
    assert [finding.level for finding in others] == [Level.WARNING] * is_warned
    assert all(finding.said.endswith("containers start without them on a, c") for finding in others)


@SHOWN
async def test_nodes_whose_tenants_get_no_view_because_devices_are_told_by_uuids_are_named(
    answers: dict[str, Any], pods: list[dict[str, Any]], is_warned: bool
) -> None:
    shown, other = ({"moorage.dev/tenant-view": value} for value in ("true", "false"))
    nodes = [{"metadata": {"name": "a", "annotations": shown}}, {"metadata": {"name": "b", "annotations": other}}]
    there = {PODS: {"items": pods}, "/api/v1/nodes": {"items": [*nodes, {"metadata": {"name": "c"}}]}, **answers}
    _, *others = await check_cdi(Reader(Told(there)))
    assert [finding.level for finding in others] == [Level.WARNING] * is_warned
    assert all(finding.said.endswith("containers get no view on a") for finding in others)
