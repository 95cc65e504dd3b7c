"""The status that a kubelet reports for a pod, made from the lives of its containers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from simulator.devices import Device
from wire import names
from wire.core import Condition, ContainerStatus, Pod

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"
#: Exit code of a container that ended with its machine; nobody knows a truer one.
LOST: Final = 255
_WELL: Final = "Healthy"
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
    waiting: tuple[str, str] | None = ("ContainerCreating", "")
    running_since: str = ""
    exit_code: int | None = None
    #: Why it ended, if something else ended it.
    ended_by: str = ""
    #: When it ended; "" if nobody knows.
    ended_at: str = ""
    #: The devices that it was given, and whether they are well.
    devices: Mapping[Device, bool] = field(default_factory=dict)
    #: Whether a terminated container is final: its restart policy doesn't start it again.
    is_final: bool = False
    has_started: bool = False

    def wait(self, reason: str, message: str = "") -> None:
        """Not running for ``reason``."""
        self.waiting, self.running_since, self.exit_code = (reason, message), "", None

    def run(self, since: str) -> None:
        """Its process lives."""
        self.waiting, self.running_since, self.exit_code, self.has_started = None, since, None, True

    def end(self, exit_code: int, *, at: str, ended_by: str = "") -> None:
        """Its process is gone."""
        self.waiting, self.running_since, self.exit_code = None, "", exit_code
        self.ended_by, self.ended_at = ended_by, at

    def recall(self, old: ContainerStatus) -> bool:
        """Take up what was told of it before the machine was down. Whether it had begun by then."""
        self.restarts = old.restart_count
        state = old.state
        if state is None or state.waiting or not (state.running or state.terminated):
            return False
        self.has_started = True
        if state.terminated:
            ended = state.terminated
            self.end(ended.exit_code, at=ended.finished_at or "", ended_by=ended.reason)
        else:
            self.end(LOST, at="", ended_by="Unknown")
        return True


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


def refused(pod: Pod, lives: Iterable[Life], reason: str, message: str, *, now: str) -> dict[str, Any]:
    """Make the status of a pod that kubelet didn't admit; some of its ``lives`` may have been before a reboot."""
    conditions = _conditions(pod.status.conditions or (), {names.CONDITION_POD_SCHEDULED: True}, now)
    told = {"phase": names.FAILED, "reason": reason, "message": message, "startTime": now, "conditions": conditions}
    before = [_container(life) for life in lives if not life.is_init and life.exit_code is not None]
    return {**told, "containerStatuses": before} if before else told


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
        "allocatedResourcesStatus": _allocated(life),
    }


def _allocated(life: Life) -> list[dict[str, Any]] | None:
    """Tell the devices of a container and their health, as kubelet does by KEP-4680."""
    told: dict[str, list[dict[str, str]]] = {}
    for device, well in life.devices.items():
        said = {"resourceID": device.uuid, "health": _WELL if well else names.UNHEALTHY}
        told.setdefault(device.resource, []).append(said)
    return [{"name": resource, "resources": devices} for resource, devices in sorted(told.items())] or None


def _state(life: Life) -> dict[str, Any]:
    if life.waiting is not None:
        reason, message = life.waiting
        return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    if life.running_since:
        return {"running": {"startedAt": life.running_since}}
    reason = life.ended_by or ("Error" if life.exit_code else "Completed")
    ended = {"exitCode": life.exit_code or 0, "reason": reason}
    return {"terminated": {**ended, "finishedAt": life.ended_at} if life.ended_at else ended}
