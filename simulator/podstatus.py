"""The status that a kubelet reports for a pod, made from the lives of its containers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wire import names
from wire.core import Condition, Pod

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
#: Conditions that belong to kubelet; all others are kept as they are.
_OURS: Final = ("Initialized", "Ready", "ContainersReady", names.CONDITION_POD_SCHEDULED)


@dataclass(slots=True)
class Life:
    """One container's state. Exactly one of waiting (a reason), running and terminated (an exit code) is set."""

    name: str
    image: str
    is_init: bool
    #: An init container that goes on beside the others (KEP-753).
    is_sidecar: bool = False
    restarts: int = 0
    waiting: tuple[str, str] | None = ("PodInitializing", "")
    running_since: str = ""
    exit_code: int | None = None
    #: Whether a terminated container is final: its restart policy doesn't start it again.
    is_final: bool = False
    has_started: bool = False

    def wait(self, reason: str, message: str = "") -> None:
        """Not running for ``reason``."""
        self.waiting, self.running_since, self.exit_code = (reason, message), "", None

    def run(self, since: str) -> None:
        """Its process lives."""
        self.waiting, self.running_since, self.exit_code, self.has_started = None, since, None, True

    def end(self, exit_code: int) -> None:
        """Its process is gone."""
        self.waiting, self.running_since, self.exit_code = None, "", exit_code


def restarts(policy: str, exit_code: int) -> bool:
    """Whether a container that ended is started again; "" is Always, the API server's default."""
    if policy in {"", ALWAYS}:
        return True
    return policy == ON_FAILURE and exit_code != 0


def phase(lives: Sequence[Life]) -> str:
    """Return the pod's phase as kubelet computes it (getPhase): sidecars don't keep a pod from ending."""
    inits = [life for life in lives if life.is_init and not life.is_sidecar]
    regular = [life for life in lives if not life.is_init]
    if any(life.is_final and life.exit_code for life in inits):
        return names.FAILED
    if all(life.is_final for life in regular):
        return names.FAILED if any(life.exit_code for life in regular) else names.SUCCEEDED
    return names.RUNNING if any(life.has_started for life in regular) else names.PENDING


def render(pod: Pod, lives: Sequence[Life], *, started_at: str, now: str) -> dict[str, Any]:
    """Make the status to be merged into the pod; conditions that are not kubelet's are carried over."""
    reached = phase(lives)
    is_over = reached in {names.SUCCEEDED, names.FAILED}
    inits_done = all(_is_past(life) for life in lives if life.is_init)
    ready = not is_over and all(life.running_since for life in lives if not life.is_init)
    conditions = {"Initialized": inits_done, "Ready": ready, "ContainersReady": ready, "PodScheduled": True}
    return {
        "phase": reached,
        "startTime": started_at,
        "conditions": _conditions(pod.status.conditions or (), conditions, now),
        "initContainerStatuses": [_container(life) for life in lives if life.is_init],
        "containerStatuses": [_container(life) for life in lives if not life.is_init],
    }


def refused(pod: Pod, reason: str, message: str, *, now: str) -> dict[str, Any]:
    """Make the status of a pod that kubelet didn't admit."""
    conditions = _conditions(pod.status.conditions or (), {names.CONDITION_POD_SCHEDULED: True}, now)
    return {"phase": names.FAILED, "reason": reason, "message": message, "startTime": now, "conditions": conditions}


def _is_past(life: Life) -> bool:
    return bool(life.running_since) if life.is_sidecar else life.exit_code == 0


def _conditions(known: Iterable[Condition], wanted: dict[str, bool], now: str) -> list[dict[str, Any]]:
    before = {condition.type: condition for condition in known}
    foreign = [_plain(condition) for condition in before.values() if condition.type not in _OURS]
    ours = []
    for kind, holds in wanted.items():
        status = "True" if holds else "False"
        old = before.get(kind)
        since = old.last_transition_time if old and old.status == status and old.last_transition_time else now
        ours.append({"type": kind, "status": status, "lastTransitionTime": since})
    return foreign + ours


def _plain(condition: Condition) -> dict[str, Any]:
    named = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
        "observedGeneration": condition.observed_generation,
    }
    return {key: value for key, value in named.items() if value}


def _container(life: Life) -> dict[str, Any]:
    return {
        "name": life.name,
        "image": life.image,
        "imageID": "",
        "ready": bool(life.running_since) or (life.is_init and life.exit_code == 0),
        "started": bool(life.running_since),
        "restartCount": life.restarts,
        "state": _state(life),
    }


def _state(life: Life) -> dict[str, Any]:
    if life.waiting is not None:
        reason, message = life.waiting
        return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    if life.running_since:
        return {"running": {"startedAt": life.running_since}}
    reason = "Error" if life.exit_code else "Completed"
    return {"terminated": {"exitCode": life.exit_code or 0, "reason": reason}}
