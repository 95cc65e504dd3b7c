"""What an administrator may set about the scheduler's shell.

Settings of decisions are scheduler/core/model/settings.py's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from gpu.container_devices import Cdi
from gpu.limits import MemoryCaps
from scheduler.core.model.settings import Settings
from scheduler.core.queues.use_over_time import UsePeriod
from wire import names

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from scheduler.core.scores.score import Scores


class PartitioningSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How MIG slices are made for pods (docs/mig.md). Times in seconds of the event loop's clock.

    ``rest_s``: between two changes of a GPU. ``patience_s``: until its agent takes a change up. ``shown_s``: until its
    Node shows what was done. ``look_s``: changes within this time are looked at together.
    """

    rest_s: float = 60.0
    patience_s: float = 60.0
    shown_s: float = 30.0
    look_s: float = 1.0


class ScalingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How autoscalers are asked for nodes (docs/design/autoscaling.md). Times in seconds of the event loop's clock.

    ``memory_to_fraction_ratio_nano``: what a ``gpu-memory`` ask takes of a device while no card is known (KAI's ratio
    of 0.1). ``patience_s``: a device must have been wanted for so long. ``cool_down_s``: between two scaling pods for
    the same share (kai-contract 1.13). ``look_s``: changes within this time are looked at together.
    """

    image: str = "localhost/moorage/scalingpod:latest"
    namespace: str = names.SCALE_ADJUST_NAMESPACE
    memory_to_fraction_ratio_nano: int = 100_000_000
    patience_s: float = 5.0
    cool_down_s: float = 60.0
    look_s: float = 1.0


class InspectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The inspect API counts in ``unit_mib``, a GiB or a MiB; its answer about all nodes is used for ``fresh_s``."""

    unit_mib: int = 1024
    fresh_s: float = 1.0


class Asked(Protocol):
    """A Prometheus."""

    async def ask(self, query: str, at_s: int) -> bytes:
        """The answer to an instant query, as of a time in seconds since the epoch. Raises NoAnswer (queue_use.py)."""
        ...


class UseSource(msgspec.Struct, frozen=True, kw_only=True):
    """A Prometheus that says what queues used over time, at ``url``; times are KAI's (kai-contract 2.5).

    It is asked every ``fetch_s`` for the sum of one sample each ``resolution_s``, and has ``timeout_s`` for a query.
    What it said counts for nothing any more after ``staleness_period_s``. ``asking``: connects to it; None: over HTTP.
    """

    url: str
    fetch_s: int = 60
    staleness_period_s: int = 300
    timeout_s: float = 10.0
    resolution_s: int = 60
    asking: Callable[[UseSource], AbstractAsyncContextManager[Asked]] | None = None


class PricingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When prices are made again (scheduler/background/loops.py). Times in seconds of the event loop's clock.

    Every ``every_s``; and if the mix of pods has moved by ``moved_percent`` since, which is looked at every ``look_s``.
    What came before counts half after each ``half_life_s``. ``in_thread``: beside the event loop, for
    processes; a loop of virtual time does not wait for threads.
    """

    every_s: float = 600.0
    look_s: float = 60.0
    moved_percent: int = 10
    half_life_s: float = 21_600.0
    in_thread: bool = False


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds of the event loop's clock.

    ``gather_s``: changes that come within this time are decided on together. ``in_flight``: commits carried out side by
    side; each has a connection, whose handshake costs as much as several commits. ``condition_s``: a pod's condition is
    rewritten at most this often. ``staleness_grace_s``: what is left of a gang below its minimum is evicted after this
    time (kai-contract 4.7). ``orphan_s``: a BindRequest that vanished without the pod being bound or fenced is taken
    for withdrawn after this time, by fencing the pod ourselves. ``explain_in_flight``: condition writes side by side
    (they come after commits). ``opening_s``: further shares wait so long, after their device has told its name, for the
    first one to be bound: it may be one that can't be. ``answer_s``: a reservation pod that was seen, and that its
    kubelet is not starting, should say within this time which device it holds; machines under load take some seconds,
    and moving pods between those that are merely slow costs more than it gains. ``scaling`` None: autoscalers are asked
    for nothing. ``object_status``: the status of Queues and PodGroups is written. ``suggestions``: conditions of pods
    that have waited a while say what would let them start. ``cdi``: how containers are told their devices.
    ``memory_caps``: whose memory caps are written into books. ``scores``: those that ``decisions`` may name; None: the
    registry's (not imported here: NumPy, for ``--help``). ``prepare_s``: pods that start together wait so long for
    their claims to be bound, then they back off (KAI's time). ``evictions_per_s``: of all kinds together; twice as many
    at once after a pause. ``settle_s``: so long a node that came from another node pool takes nobody
    (scheduler/background/loops.py). ``queue_use``: which use of queues over time counts in their fair shares; None:
    none. ``use_source``: who knows it; None: the scheduler counts. ``pricing``: for the strategy ``priced``.
    ``follows_use``: pods are told of limits that agents of nodes have seen, and explanations name idle shares.
    ``device_taint_rules``: taints of DeviceTaintRules keep claims off devices. ``wait_for_config_maps``: pods wait for
    those that they name as required.
    """

    decisions: Settings = Settings()
    gather_s: float = 0.004
    in_flight: int = 32
    condition_s: float = 5.0
    explain_in_flight: int = 8
    staleness_grace_s: float = 60.0
    orphan_s: float = 15.0
    opening_s: float = 5.0
    answer_s: float = 10.0
    prepare_s: float = 120.0
    scaling: ScalingSettings | None = None
    partitioning: PartitioningSettings | None = None
    object_status: bool = True
    suggestions: bool = False
    cdi: Cdi = Cdi.AUTO
    memory_caps: MemoryCaps = MemoryCaps.NONE
    scores: Scores | None = None
    queue_use: UsePeriod | None = None
    use_source: UseSource | None = None
    pricing: PricingSettings = PricingSettings()
    evictions_per_s: int = 300
    settle_s: float = 15.0
    follows_use: bool = False
    device_taint_rules: bool = False
    wait_for_config_maps: bool = True
