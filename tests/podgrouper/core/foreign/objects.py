"""PodGroups of other schedulers, and pods that name them."""

from __future__ import annotations

from typing import Any

from podgrouper.core.answers import Group, Json, Nothing, Refusal
from podgrouper.core.grouping import group
from podgrouper.core.owner_chain import Absent, Read
from tests.podgrouper.objects import obj

COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"
SIGS = "scheduling.sigs.k8s.io/v1alpha1"
UPSTREAM = "scheduling.k8s.io/v1alpha2"

BY_COSCHEDULING: dict[str, Any] = {"labels": {"scheduling.x-k8s.io/pod-group": "llm"}}
BY_VOLCANO: dict[str, Any] = {"annotations": {"scheduling.k8s.io/group-name": "llm"}}
BY_SIGS: dict[str, Any] = {"labels": {"pod-group.scheduling.sigs.k8s.io": "llm"}}


def of_koordinator(least: str = "4", name: str = "llm", **more: str) -> dict[str, Any]:
    """Metadata of a pod of a gang that its pods define."""
    prefix = "gang.scheduling.koordinator.sh"
    words = {"name": name, "min-available": least, **{key.replace("_", "-"): text for key, text in more.items()}}
    return {"annotations": {f"{prefix}/{key}": text for key, text in words.items()}}


def pod_group(api_version: str = COSCHEDULING, name: str = "llm", **spec: Any) -> dict[str, Any]:
    return obj(api_version, "PodGroup", name, spec=spec)


def grouped(bottom: Json, *named: Json, owners: tuple[Json, ...] = ()) -> Group | Nothing | Refusal:
    """Ask the rules about a pod, with PodGroups of others that exist."""
    there: dict[tuple[str, str, str], Json | Absent] = {}
    for api_group in (COSCHEDULING, VOLCANO, SIGS, UPSTREAM):
        there[api_group.rpartition("/")[0], "PodGroup", "llm"] = Absent.NOT_FOUND
    for each in named:
        there[each["apiVersion"].rpartition("/")[0], "PodGroup", each["metadata"]["name"]] = each
    return group(bottom, Read(owners={each["metadata"]["uid"]: each for each in owners}, named=there))


def made(bottom: Json, *named: Json, owners: tuple[Json, ...] = ()) -> Group:
    answer = grouped(bottom, *named, owners=owners)
    assert isinstance(answer, Group), answer
    return answer


def refused(bottom: Json, *named: Json, owners: tuple[Json, ...] = ()) -> Refusal:
    answer = grouped(bottom, *named, owners=owners)
    assert isinstance(answer, Refusal), answer
    return answer
