"""What a node says of its pods, in a form in which two nodes can be compared: a history.

Left out is what chance or a clock decides (names that are made up, times, addresses, UUIDs: devices are called ``a``,
``b`` in the order in which they are told), what is said twice, and states that a pod has passed through when something
else is told of it. A line is one state of one pod; the lines of a step stand together, pod by pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from wire import names

Raw = Mapping[str, Any]
_GONE = "gone"
#: States that a pod only passes through: kubelet tells the newest one, so on a busy machine some are never told.
_PASSING = re.compile(r"^Pending .* waits \((ContainerCreating|PodInitializing)\)|^Running$|^Running .* ended with")


class Telling:
    """One history, written down while it happens."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str, str]] = []
        self._steps: list[str] = []
        self._latest: dict[str, str] = {}
        self._devices: dict[str, str] = {}
        #: UID -> what a pod is called here.
        self._names: dict[str, str] = {}
        self._ran: list[str] = []

    def step(self, what: str) -> None:
        """What is done next."""
        self._steps.append(what)

    def pod(self, event: str, raw: Raw) -> None:
        """Take a pod as a watch shows it."""
        name = self._name(raw)
        line = _GONE if event == "DELETED" else self._state(raw)
        if line.startswith(names.RUNNING) and name not in self._ran:
            self._ran.append(name)
        if line != self._latest.get(name):
            self._latest[name] = line
            self.say(name, line)

    def say(self, who: str, what: str) -> None:
        """Add a line."""
        self._lines.append((len(self._steps), who, what))

    def sees(self, name: str, uuids: set[str]) -> None:
        """What a program in a pod has found."""
        self.say(name, f"sees {' '.join(sorted(map(self.device, uuids))) or 'nothing'}")

    def order(self) -> None:
        """Say in which order pods came to run, so far."""
        self.say("order", ", ".join(self._ran))

    def latest(self, name: str) -> str:
        """The last line of a pod, "" before its first."""
        return self._latest.get(name, "")

    def device(self, uuid: str) -> str:
        """What a device is called here."""
        return self._devices.setdefault(uuid, "abcdefgh"[len(self._devices)])

    @property
    def text(self) -> str:
        """The history."""
        parts, kept = [], [line for place, line in enumerate(self._lines) if not self._is_passed(place)]
        for number, step in enumerate(self._steps, start=1):
            parts.append(f"== {step}")
            lines = [(who, what) for at, who, what in kept if at == number]
            parts += [f"{who}: {what}" for who, what in sorted(lines, key=lambda line: line[0])]
        return "\n".join(parts) + "\n"

    def _is_passed(self, place: int) -> bool:
        _, name, line = self._lines[place]
        return _PASSING.search(line) is not None and any(name == other for _, other, _ in self._lines[place + 1 :])

    def _name(self, raw: Raw) -> str:
        meta = raw["metadata"]
        if meta["namespace"] != names.RESERVATION_NAMESPACE:
            return str(meta["name"])
        count = sum(name.startswith("reservation") for name in self._names.values())
        return self._names.setdefault(meta["uid"], f"reservation-{count + 1}")

    def _state(self, raw: Raw) -> str:
        status = raw["status"]
        phase = status.get("phase", names.PENDING)
        going = ", is to go" if raw["metadata"].get("deletionTimestamp") else ""
        if status.get("reason"):
            return f"{phase} {status['reason']}: {status.get('message', '')}{going}"
        words = [phase]
        for one in status.get("containerStatuses") or ():
            words += [_container(one), *(() if phase in names.ENDED_PHASES else self._allocated(one))]
        return " ".join(words) + going

    def _allocated(self, container: Raw) -> list[str]:
        """The devices of a container; of pods that have ended kubelet tells them until they are given out again."""
        told = [one for each in container.get("allocatedResourcesStatus") or () for one in each["resources"]]
        found = sorted((self.device(one["resourceID"]), one["health"]) for one in told)
        return [f"on {device}" if health == "Healthy" else f"on {device} ({health})" for device, health in found]


def _container(told: Raw) -> str:
    ((kind, state),) = told["state"].items()
    if kind == "running":
        said = "runs" if told["ready"] else "runs, not ready"
    elif kind == "waiting":
        said = f"waits ({state['reason']})"
    else:
        said = f"ended with {state['exitCode']} ({state['reason']})"
    again = told["restartCount"]
    return f"{told['name']} {said}" + (f" in life {again + 1}" if again else "")


def is_there(line: str, wanted: str) -> bool:
    """Whether a state is what is waited for: a regular expression, found anywhere in it."""
    return re.search(wanted, line) is not None
