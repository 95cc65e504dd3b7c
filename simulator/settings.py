"""How fast simulated machines are, and what their runtime is like."""

from __future__ import annotations

import msgspec

from kube.client.backoff import BackoffRange


class KubeletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds of the event loop. The defaults are near what kubelet does with a pulled image."""

    #: From admission to the first container's start: sandbox, network, volumes.
    sandbox_s: float = 0.5
    #: To start one container.
    start_s: float = 0.1
    #: How long an init container runs.
    init_run_s: float = 0.2
    #: How long a container takes to end after it was told to; at most its grace period.
    stop_s: float = 0.2
    #: Until a container that lacks a ConfigMap or Secret is tried again.
    config_retry_s: float = 1.0
    #: Between two tries of a write that didn't reach the API server.
    write_retry_s: float = 1.0
    crash_backoff: BackoffRange = BackoffRange(first_s=10.0, most_s=300.0)
    #: 0: no leases and no heartbeats (nobody looks at them on the in-memory API server).
    lease_period_s: float = 0.0
    #: What images set NVIDIA_VISIBLE_DEVICES to; CUDA's base images have "all", the most dangerous value. "": unset.
    image_visible_devices: str = "all"
    #: Whether devices are handed out in a random order (seeded) or by index.
    shuffle_devices: bool = True
    #: Concurrent writes of all nodes together.
    writers: int = 16


class ReservationFault(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with reservation processes on a node.

    ``delay_s`` passes before NVML answers; ``silent``: NVML never answers; ``lie``: the UUID that it tells
    instead of the true one; ``broken``: NVML fails with this message and the process ends with code 1. ``no_image``:
    their image can't be pulled, so none is started; those that run are left alone.
    """

    delay_s: float = 0.0
    silent: bool = False
    lie: str = ""
    broken: str = ""
    no_image: bool = False


NO_FAULT = ReservationFault()
