"""Snapshots of the oracle's generator on a real control plane: the pod is given to kube-scheduler, then to Moorage."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubernetes_asyncio.client import ApiException

from tests.e2e.bare import STOCK, Bare, Object, reasons, settled
from tools.kubeoracle.drawing.snapshot import NAMESPACES, draw
from wire import names

_NAME: Final = "new"
_VERDICT_WITHIN_S: Final = 60.0
_AGREE_WITHIN_S: Final = 20.0
_LONG_S: Final = 3_600
_UNPROCESSABLE, _FORBIDDEN = 422, 403
#: Words about nodes that a name in ``matchFields`` leaves out before any plug-in looks at them.
_LEFT_OUT: Final = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
_OF_NODES: Final = (
    _LEFT_OUT,
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
    "node(s) didn't match Pod's node affinity/selector",
)
#: Rules that kube-scheduler judges after the amounts of a node, and Moorage before them
#: (docs/reference/differences.md).
_AFTER_AMOUNTS: Final = frozenset(
    {
        "node(s) didn't match pod topology spread constraints (missing required label)",
        "node(s) didn't match pod topology spread constraints",
        "node(s) didn't match pod affinity rules",
        "node(s) didn't match pod anti-affinity rules",
        "node(s) didn't satisfy existing pods anti-affinity rules",
    }
)


@dataclass(frozen=True, slots=True)
class Beside:
    """Both verdicts on one pod. ``difference``: in what they differ, in words; "" for nothing."""

    theirs: tuple[str, str]
    ours: tuple[str, str]
    difference: str


async def beside(cluster: Bare, seed: int) -> Beside | None:
    """Give a snapshot's pod to both; None where the API server does not take the pod."""
    question = draw(seed).question
    if "claims" in question:
        return None  # volumes are compared by the oracle alone
    try:
        await cluster.nodes(map(_node, question["nodes"]))
        await cluster.seen()
        for pod in question["pods"]:
            await _running(cluster, pod)
        theirs = await _verdict_of(cluster, question, STOCK)
        return None if theirs is None else await _compare(cluster, question, theirs)
    finally:
        await cluster.clear([*NAMESPACES])


async def _compare(cluster: Bare, question: Mapping[str, Any], theirs: tuple[str, str]) -> Beside:
    namespace = question["pod"]["metadata"]["namespace"]
    await cluster.end(namespace, _NAME, grace_s=0)
    await cluster.pod(_new(question["pod"], names.SCHEDULER_NAME))
    ours = ("", "")

    async def agrees() -> bool | None:
        nonlocal ours
        ours = await cluster.verdict(namespace, _NAME)
        return (any(ours) and not difference(theirs, ours)) or None

    await settled(agrees, within_s=_AGREE_WITHIN_S)
    return Beside(theirs, ours, difference(theirs, ours))


async def _verdict_of(cluster: Bare, question: Mapping[str, Any], scheduler: str) -> tuple[str, str] | None:
    """The verdict of kube-scheduler on all nodes; None if the API server refuses the pod."""
    namespace, count = question["pod"]["metadata"]["namespace"], len(question["nodes"])
    try:
        await cluster.pod(_new(question["pod"], scheduler))
    except ApiException as refused:
        _expect_refusal(refused)
        return None

    async def said() -> tuple[str, str] | None:
        node, why = await cluster.verdict(namespace, _NAME)
        return (node, why) if node or why.startswith(f"0/{count} ") else None

    found: tuple[str, str] | None = await settled(said, within_s=_VERDICT_WITHIN_S)
    if found is None:
        raise AssertionError(f"kube-scheduler said nothing about {count} nodes within {_VERDICT_WITHIN_S} s")
    return found


async def _running(cluster: Bare, pod: Object) -> None:
    """A pod that runs, and that may be ending; one that the API server refuses is left out, for both."""
    try:
        await cluster.pod(_plain(pod))
    except ApiException as refused:
        _expect_refusal(refused)
        return
    if "deletionTimestamp" in pod["metadata"]:
        await cluster.end(pod["metadata"]["namespace"], pod["metadata"]["name"], grace_s=_LONG_S)


def _expect_refusal(refused: ApiException) -> None:
    if refused.status not in {_UNPROCESSABLE, _FORBIDDEN}:
        raise refused


def _node(drawn: Object) -> Object:
    made = copy.deepcopy(drawn)
    made["metadata"].pop("uid")
    made["status"]["capacity"] = made["status"]["allocatable"]
    return made


def _plain(drawn: Object) -> Object:
    made = copy.deepcopy(drawn)
    made["metadata"] = {key: made["metadata"][key] for key in ("name", "namespace", "labels")}
    return {"metadata": made["metadata"], "spec": made["spec"]}


def _new(drawn: Object, scheduler: str) -> Object:
    made = _plain(drawn)
    made["metadata"]["name"], made["spec"]["schedulerName"] = _NAME, scheduler
    return made


def difference(theirs: tuple[str, str], ours: tuple[str, str]) -> str:
    """In what two verdicts differ, in words; "" where both bind the pod, or say the same of as many nodes."""
    if bool(theirs[0]) != bool(ours[0]):
        return f"theirs: {theirs}, ours: {ours}"
    if theirs[0]:
        return ""
    expected, found = reasons(theirs[1]), reasons(ours[1])
    if _LEFT_OUT in expected:
        expected, found = _joined(expected), _joined(found)
    if expected == found or _is_order_of_rules(expected, found):
        return ""
    return f"theirs: {expected}, ours: {found}"


def _joined(counts: Mapping[str, int]) -> dict[str, int]:
    joined = {words: count for words, count in counts.items() if words not in _OF_NODES}
    return {**joined, _LEFT_OUT: sum(counts.get(words, 0) for words in _OF_NODES)}


def _is_order_of_rules(theirs: Mapping[str, int], ours: Mapping[str, int]) -> bool:
    """Whether all that differs is that nodes are out for a rule here and for an amount there."""
    for words in theirs.keys() | ours.keys():
        more = ours.get(words, 0) - theirs.get(words, 0)
        is_amount = words.startswith("Insufficient ") or words == "Too many pods"
        if more and not (more > 0 if words in _AFTER_AMOUNTS else is_amount and more < 0):
            return False
    return any(ours.get(words, 0) > theirs.get(words, 0) for words in _AFTER_AMOUNTS)
