"""Settings of ``moorage scheduler``, by KAI's names where it has them (kai-contract 6.4)."""

from __future__ import annotations

from typing import Annotated, Final

from cli.inspection.options import UNITS_MIB
from cli.settings import kinds
from cli.settings.common import Address, Replica
from cli.settings.declaring import Setting
from scheduler.core.model.settings import Strategy
from scheduler.settings import ScalingSettings, SchedulerSettings
from wire import names

_SCALING: Final = ScalingSettings()


class SchedulerOptions(Replica, frozen=True, kw_only=True):
    """What an administrator may choose about the scheduler."""

    gpu_strategy: Annotated[
        Strategy,
        Setting(help="next shares: onto GPUs in use already, or onto free ones", kind=kinds.member(Strategy)),
    ] = Strategy.BINPACK
    cpu_strategy: Annotated[
        Strategy, Setting(help="pods without GPUs: onto nodes in use, or onto free ones", kind=kinds.member(Strategy))
    ] = Strategy.BINPACK
    default_staleness_grace_period: Annotated[
        float,
        Setting(
            help="what is left of a gang below its minimum is evicted after this time",
            kind=kinds.seconds(above=True),
        ),
    ] = SchedulerSettings().broken_gang_s
    require_enforcement: Annotated[
        bool,
        Setting(
            help="pods that wish caps or a mode wait for nodes that enforce them (node annotation "
            f"{names.NODE_ENFORCES}), not only pods with annotation {names.REQUIRE_ENFORCEMENT}",
            kind=kinds.SWITCH,
        ),
    ] = False
    workloads_are_grouped: Annotated[
        bool,
        Setting(
            help="`moorage workloads` runs beside it: pods of a Job, too, wait until they name a PodGroup",
            kind=kinds.SWITCH,
        ),
    ] = False
    cluster_autoscaling: Annotated[
        bool,
        Setting(
            help=f"ask autoscalers for nodes by pods in {_SCALING.namespace}, where shares of GPUs fit nowhere",
            kind=kinds.SWITCH,
        ),
    ] = False
    scaling_pod_image: Annotated[str, Setting(help="of those pods", kind=kinds.IMAGE)] = _SCALING.image
    gpu_memory_to_fraction_ratio: Annotated[
        int,
        Setting(
            help="what a gpu-memory ask takes of a GPU while no node tells how much memory one has", kind=kinds.RATIO
        ),
    ] = _SCALING.memory_nano
    inspect_address: Annotated[
        Address | None,
        Setting(
            help="serve the inspect API of Aliyun's gpushare there, to anybody who reaches it: nodes, GPUs, and names "
            "and shares of the pods on them",
            kind=kinds.ADDRESS,
            default="nowhere",
        ),
    ] = None
    inspect_memory_unit: Annotated[str, Setting(help="what it counts in", kind=kinds.choice(UNITS_MIB))] = "GiB"
