"""What the agent and the MPS keeper send each other, in the frames of nodeagent/core/messages.py. Pure.

The agent sends all tenants each time, the keeper whose namespaces have their limits. Standard library only: the keeper
has no more. A message of another form or beyond these bounds is refused, from any sender.

Agent and keeper are of different versions for weeks: a keeper is replaced on a drained node only. So a reader ignores
fields that it does not know, and a new fact is an optional field of its own. Lists of tenants keep their form. What a
keeper must not ignore, an agent believes only once a report says it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core import mps
from nodeagent.core.messages import MalformedMessage, framed
from nodeagent.core.mps import Wanted
from nodeagent.core.mpssteps import Held

#: Tenants of a message: more than a node has pods.
MOST_TENANTS: Final = 1_024
LONGEST_WHY: Final = 200
_MOST_MIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Report:
    """One look of the keeper. ``why``: what is wrong, "" for nothing; some tenants may be held nevertheless.

    ``is_down``: the control daemon does not answer, so nobody is held. ``gone``: GPUs whose server does not serve.
    """

    held: tuple[Held, ...] = ()
    why: str = ""
    is_down: bool = False
    gone: tuple[str, ...] = ()


def write_wanted(tenants: Iterable[Wanted]) -> bytes:
    """Write all tenants; what a keeper would not take is left out, so that it takes the others."""
    listed = {one.key: one for one in tenants if mps.can_be_named(one.pod_uid, one.device)}
    return framed({"tenants": [_written(one) for _, one in sorted(listed.items())[:MOST_TENANTS]]})


def read_wanted(message: bytes) -> tuple[Wanted, ...]:
    """Read all tenants. Raises MalformedMessage."""
    said = _object(message, "tenants")
    found = tuple(_wanted(each) for each in _listed(said["tenants"], "tenants"))
    if len({one.pod_uid for one in found}) != len(found):
        raise MalformedMessage("tenants: a pod is named twice; once is allowed, as it is a client of one server")
    return found


def write_report(report: Report) -> bytes:
    """Write a report."""
    held = [[*_written(one.wanted), one.was_joined] for one in report.held[:MOST_TENANTS]]
    gone = report.gone[:MOST_TENANTS]
    return framed({"held": held, "why": report.why[:LONGEST_WHY], "down": report.is_down, "gone": gone})


def read_report(message: bytes) -> Report:
    """Read a report. Raises MalformedMessage."""
    said = _object(message, "held", "down")
    why, is_down = said.get("why", ""), said["down"]
    if not isinstance(why, str) or len(why) > LONGEST_WHY:
        raise MalformedMessage(f"why: {_shown(why)}; a text of at most {LONGEST_WHY} characters is allowed")
    if not isinstance(is_down, bool):
        raise MalformedMessage(f"down: {_shown(is_down)}; true or false is allowed")
    gone = tuple(_gpu(each) for each in _listed(said.get("gone", []), "gone"))
    return Report(tuple(_held(each) for each in _listed(said["held"], "held")), why, is_down, gone)


def _written(one: Wanted) -> list[Any]:
    return [one.pod_uid, one.device, one.memory_mib, one.compute_percent]


def _wanted(said: Any) -> Wanted:
    match said:
        case [str(pod), str(device), int(mib), int(percent)] if (
            mps.can_be_named(pod, device)
            and not isinstance(mib, bool)
            and not isinstance(percent, bool)
            and 0 <= mib <= _MOST_MIB
            and 0 < percent <= mps.ALL_COMPUTE
        ):
            return Wanted(pod, device, mib, percent)
        case _:
            allowed = f"[pod UID, GPU UUID, MiB up to {_MOST_MIB}, percent from 1 to {mps.ALL_COMPUTE}] is allowed"
            raise MalformedMessage(f"tenants: {_shown(said)}; {allowed}")


def _held(said: Any) -> Held:
    match said:
        case [*of, bool(was_joined)]:
            return Held(_wanted(of), was_joined)
        case _:
            raise MalformedMessage(f"held: {_shown(said)}; a tenant and whether it was joined is allowed")


def _gpu(said: Any) -> str:
    if isinstance(said, str) and mps.is_gpu(said):
        return said
    raise MalformedMessage(f"gone: {_shown(said)}; the UUID of a GPU is allowed")


def _object(message: bytes, *fields: str) -> dict[str, Any]:
    """Read an object that has at least these fields."""
    try:
        said = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"message: {str(error)[:200]}; JSON is allowed") from error
    if not isinstance(said, dict) or not said.keys() >= set(fields):
        raise MalformedMessage(f"message: {_shown(said)}; an object with {' and '.join(fields)} is allowed")
    return said


def _listed(said: Any, field: str) -> list[Any]:
    if not isinstance(said, list) or len(said) > MOST_TENANTS:
        raise MalformedMessage(f"{field}: {_shown(said)}; a list of at most {MOST_TENANTS} is allowed")
    return said


def _shown(said: Any) -> str:
    return f"{said!r:.80}"
