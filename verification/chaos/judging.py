"""A whole run shown to the checker of the simulations (simulator/checks/checker.py), from what was written of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from simulator.checks.checker import PODS, Checker
from simulator.checks.evictions import Write
from simulator.nodes import ground_truth
from simulator.nodes.device_manager import Device
from simulator.nodes.ground_truth import Refused, Started
from verification.chaos.journal import Journal, Moment, Seen
from verification.chaos.users import NAMESPACE

_USERS: Final = f"{NAMESPACE}/"
#: While everything is restarted again and again: a new scheduler counts the grace time of a broken gang from zero.
_GANG_GRACE_S: Final = 300.0
#: A gang that is seen broken late, after an outage, may be released a little before its time by our clock.
_RELEASE_S: Final = 40.0


@dataclass(frozen=True, slots=True)
class Machines:
    """What simulated machines wrote down, as UIDs of pods. ``ran``: users' pods.

    ``unseen``: pods that were never seen bound, as the observer had no API server meanwhile: nobody judges them.
    """

    ran: frozenset[str]
    refused: frozenset[str]
    unseen: frozenset[str]


def machines(records: Iterable[Path], journal: Journal) -> Machines:
    """Read what happened on the machines."""
    every = [record for path in records for record in ground_truth.read(path)]
    versions = (seen.raw for seen in journal.read() if seen.plural == PODS)
    bound = {raw["metadata"]["uid"] for raw in versions if raw["spec"].get("nodeName")}
    return Machines(
        ran=frozenset(each.pod_uid for each in every if isinstance(each, Started) and each.pod.startswith(_USERS)),
        refused=frozenset(record.pod_uid for record in every if isinstance(record, Refused)),
        unseen=frozenset(record.pod_uid for record in every) - bound,
    )


def judge(
    story: Iterable[Moment],
    devices: Mapping[str, tuple[Device, ...]],
    *,
    unseen: frozenset[str],
    rested_s: float,
    leftovers: Mapping[str, list[dict[str, Any]]],
) -> Checker:
    """Have the checker look at a run that was at rest at ``rested_s`` and at its end left ``leftovers``."""
    checker = Checker(devices, gang_grace_s=_GANG_GRACE_S, release_s=_RELEASE_S)
    checker.disturbed("everything was killed and restarted")
    is_rest_judged = False
    for moment in story:
        checker.findings.start_s = checker.findings.start_s or moment.at_s
        if moment.at_s > rested_s and not is_rest_judged:
            _judge_rest(checker, rested_s)
            is_rest_judged = True
        _show(checker, moment, unseen)
    checker.leftovers(leftovers, anyio.current_time())
    checker.finish(anyio.current_time())
    return checker


def _judge_rest(checker: Checker, at_s: float) -> None:
    checker.judge_waiting(at_s)
    checker.judge_forgotten((), at_s)
    checker.intents.judge_rest(at_s)
    checker.findings.judged.add("L2")


def _show(checker: Checker, moment: Moment, unseen: frozenset[str]) -> None:
    if isinstance(moment, Seen):
        checker.observed(moment.plural, moment.event, moment.raw, moment.at_s)
    elif isinstance(moment, Write):
        checker.wrote(moment)
    elif moment.pod_uid not in unseen:
        checker.witnessed(moment)
