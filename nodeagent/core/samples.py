"""One look at the GPUs of a node: their memory, and the processes on them. Values of the standard library only.

The warden makes them and sends them to the agent, so what imports this module stays small.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Process:
    """A process with memory on a device. ``started``: its start time in clock ticks since boot, as /proc has it.

    PID and start time together name a process: a PID alone is used again. ``used_bytes``: None if the driver does not
    tell. ``sm_percent``: its part of the device's SMs since the last look, None if the driver does not tell.
    ``pod_uid``: "" for a process that is no pod's, or that had ended when it was looked up. ``name``: for people.
    ``count``: for how many processes of the pod it stands, which are told together; then it has no PID (0).
    """

    pid: int
    started: int
    used_bytes: int | None
    sm_percent: int | None = None
    pod_uid: str = ""
    container: str = ""
    name: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or MIG slice. ``sm_percent``: how busy it was, None if the driver does not tell (slices)."""

    uuid: str
    total_bytes: int
    used_bytes: int
    processes: tuple[Process, ...] = ()
    sm_percent: int | None = None

    @property
    def free_bytes(self) -> int:
        """Memory that nobody has."""
        return self.total_bytes - self.used_bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. ``at_ns``: of a monotonic clock. ``unread``: devices that the driver lists and could not describe."""

    at_ns: int
    devices: tuple[Device, ...] = ()
    unread: tuple[str, ...] = ()
