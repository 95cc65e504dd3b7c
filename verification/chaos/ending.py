"""The end of a run, without faults: what fits has to run, and when all pods are deleted nothing of ours may be left."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio

from kube.client import errors
from kube.client.transport import Transport
from simulator.checks import messages, observer
from simulator.checks.checker import BIND_REQUESTS, CONFIG_MAPS, NODES, PODS, WATCHED, Checker
from simulator.checks.ledgers import node as _node
from simulator.nodes.device_manager import Device
from verification.chaos.users import NAMESPACE, Users
from wire import names

_log: Final = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
#: Numbers of nodes in conditions are at least 10 s old at times (docs/pending.md, How old a reason can be).
_COUNTS_S: Final = 30.0
#: So often in a row nothing may be missing.
_LOOKS: Final = 3


class NotYet(Exception):
    """Raised when a cluster does not come to what it should within its time; says what is missing."""


async def settled(transport: Transport, devices: Mapping[str, tuple[Device, ...]], *, within_s: float) -> float:
    """Wait until all that fits runs and everybody else says why not; return how long it took. Raises NotYet.

    What conditions tell is then given time to become true, and judged as L3 if it does not.
    """

    async def unsettled() -> str:
        there = {plural: await _listed(transport, plural) for plural in WATCHED}
        checker = _checker(devices, there)
        fitting = list(checker.fitting(checker.scene).values())
        away = [node.name for node in map(_node, there[NODES]) if not node.is_ready]
        going = [pod.key for pod in checker.live.values() if not is_settled(pod.raw)]
        requests = [raw["metadata"]["name"] for raw in there[BIND_REQUESTS]]
        return _first_of({
            "nodes are not ready": away,
            "pods wait though they fit": fitting,
            "pods are on their way": going,
            "BindRequests are there": requests,
        })  # fmt: skip

    took_s = await _nothing_missing(unsettled, within_s=within_s)
    with anyio.move_on_after(_COUNTS_S):
        while await _untrue(transport, devices):  # noqa: ASYNC110 - asks the API server
            await anyio.sleep(_LOOK_S)
    return took_s


def _checker(devices: Mapping[str, tuple[Device, ...]], there: Mapping[str, list[dict[str, Any]]]) -> Checker:
    """Return a checker that was shown all of these objects, by plural."""
    checker = Checker(devices)
    for plural, listed in there.items():
        for raw in listed:
            checker.observed(plural, "ADDED", raw, 0.0)
    return checker


async def _untrue(transport: Transport, devices: Mapping[str, tuple[Device, ...]]) -> bool:
    """Whether a pod says of itself what is not so."""
    checker = _checker(devices, {plural: await _listed(transport, plural) for plural in WATCHED})
    checker.judge_waiting(0.0)
    return any(invariant == "L3" for invariant, _ in checker.findings.found)


async def cleared(transport: Transport, users: Users, *, within_s: float) -> float:
    """Delete all pods and wait until nothing of ours is left; return how long it took. Raises NotYet."""

    async def left() -> str:
        await users.leave()
        pods = [_key(raw) for raw in await _listed(transport, PODS)]
        requests = [_key(raw) for raw in await _listed(transport, BIND_REQUESTS)]
        spaces = (f"{NAMESPACE}/", f"{names.RESERVATION_NAMESPACE}/")
        return _first_of({
            "pods are left": [key for key in pods if key.startswith(spaces)],
            "BindRequests are left": requests,
        })  # fmt: skip

    return await _nothing_missing(left, within_s=within_s)


async def leftovers(transport: Transport) -> Mapping[str, list[dict[str, Any]]]:
    """Everything in which something of ours may be left, by plural."""
    return {plural: await _listed(transport, plural) for plural in (*WATCHED, CONFIG_MAPS)}


async def newest(transport: Transport) -> int:
    """The API server's own resourceVersion."""
    return int((await observer.objects(transport, PODS))["metadata"]["resourceVersion"])


async def _nothing_missing(look: Callable[[], Awaitable[str]], *, within_s: float) -> float:
    """Look until nothing is missing several times in a row; return when that was first so."""
    began, looks, missing = anyio.current_time(), 0, ""
    while looks < _LOOKS:
        if anyio.current_time() > began + within_s:
            raise NotYet(f"after {within_s:.0f} s without faults {missing}")
        try:
            missing = await look()
        except errors.ApiError as error:
            missing = str(error)
        looks = 0 if missing else looks + 1
        _log.info("%s", missing or "nothing is missing")
        await anyio.sleep(_LOOK_S)
    return anyio.current_time() - began - _LOOKS * _LOOK_S


def _first_of(missing: Mapping[str, list[str]]) -> str:
    return next((f"{len(found)} {what}: {found[0]}" for what, found in missing.items() if found), "")


async def _listed(transport: Transport, plural: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await observer.objects(transport, plural))["items"]
    return listed


def _key(raw: Mapping[str, Any]) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"


def is_settled(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs, has ended, or says why it waits; none is on its way out, or between two attempts."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return False
    if status.get("phase") in {names.RUNNING, names.SUCCEEDED, names.FAILED}:
        return True
    return any(
        each["type"] == names.CONDITION_POD_SCHEDULED
        and each["status"] == "False"
        and not messages.is_passing(each.get("message") or "")
        for each in status.get("conditions") or ()
    )
