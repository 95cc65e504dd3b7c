"""All kinds of faults, by the name under which each is written into scenarios and switched on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Union, get_args

from verification.hostile.faults.components import (
    AdmissionDown,
    AdmissionSlow,
    AdmissionTwice,
    AgentDown,
    AgentSlow,
    ClockJump,
    ListExpired,
    ServerLags,
)
from verification.hostile.faults.devices import (
    ClaimControllerDown,
    ClaimsRemade,
    ClaimsUnheard,
    ClaimWrites,
    CrashAtClaims,
    DevicesRenewed,
    DevicesTainted,
    DevicesVanish,
    DriverFails,
    DriverSlow,
    GpuNodesLate,
    GpuNodesMeddled,
    GpuNodesUnheard,
    KubeletRestarts,
    PartitionerCrashes,
    PartitionerDown,
    ProvisionerDown,
    ProvisioningFails,
    ProvisioningSlow,
    RivalAllocates,
    SlicesGrabbed,
)
from verification.hostile.faults.ground import Timed
from verification.hostile.faults.nodes import (
    GpuIll,
    KubeletForgets,
    KubeletRefuses,
    NodeCordoned,
    NodeCutOff,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRebooted,
    NodeReinstalled,
    NodeReplaced,
    PluginDown,
    PluginLags,
    SlowStarts,
)
from verification.hostile.faults.objects import (
    EtcdRestored,
    EtcdRestoredUnderWork,
    EvictionsFail,
    EvictionsRefused,
    EvictionsSlow,
    LeaseDeleted,
    NamespaceDeleted,
    NominationConflict,
    NominationsDeleted,
    NomineeGoes,
    QueueVanishes,
    ReservationsDeleted,
    TwoBudgets,
    VictimStays,
)
from verification.hostile.faults.processes import Crash, CutOff, OlderVersion, Pause, TwoLeaders
from verification.hostile.faults.requests import (
    CacheOld,
    Conflicts,
    Expired,
    Forbidden,
    Resets,
    ServerErrors,
    Slow,
    Throttled,
    TimeOuts,
    Unauthorized,
    WatchCut,
    WatchDelayed,
    WatchExpired,
    WatchHeld,
    WatchRepeated,
)
from verification.hostile.faults.reservations import (
    BookLost,
    ReservationDeleted,
    ReservationEvicted,
    ReservationFails,
    ReservationKilled,
    ReservationLies,
    ReservationLiesAfar,
    ReservationSilent,
    ReservationSlow,
    ReservationUnpullable,
    ReservationVanishes,
)

Fault = Union[  # noqa: UP007 - read by get_args and by msgspec; one kind a line
    AdmissionDown,
    AdmissionSlow,
    AdmissionTwice,
    AgentDown,
    AgentSlow,
    BookLost,
    CacheOld,
    PartitionerCrashes,
    PartitionerDown,
    ClaimControllerDown,
    ClaimWrites,
    ClaimsRemade,
    ClaimsUnheard,
    ClockJump,
    Conflicts,
    Crash,
    CrashAtClaims,
    CutOff,
    DevicesRenewed,
    DevicesTainted,
    DevicesVanish,
    DriverFails,
    DriverSlow,
    EtcdRestored,
    EtcdRestoredUnderWork,
    EvictionsFail,
    EvictionsRefused,
    EvictionsSlow,
    Expired,
    Forbidden,
    GpuIll,
    GpuNodesLate,
    GpuNodesMeddled,
    GpuNodesUnheard,
    NomineeGoes,
    KubeletForgets,
    KubeletRefuses,
    KubeletRestarts,
    LeaseDeleted,
    ListExpired,
    NamespaceDeleted,
    NodeCordoned,
    NodeCutOff,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRebooted,
    NodeReinstalled,
    NodeReplaced,
    OlderVersion,
    Pause,
    PluginDown,
    PluginLags,
    ProvisionerDown,
    ProvisioningFails,
    ProvisioningSlow,
    QueueVanishes,
    ReservationDeleted,
    ReservationEvicted,
    ReservationFails,
    ReservationKilled,
    ReservationLies,
    ReservationLiesAfar,
    ReservationSilent,
    ReservationSlow,
    ReservationUnpullable,
    ReservationVanishes,
    ReservationsDeleted,
    Resets,
    RivalAllocates,
    NominationConflict,
    NominationsDeleted,
    ServerErrors,
    ServerLags,
    SlicesGrabbed,
    Slow,
    SlowStarts,
    Throttled,
    TimeOuts,
    TwoBudgets,
    TwoLeaders,
    Unauthorized,
    VictimStays,
    WatchCut,
    WatchDelayed,
    WatchExpired,
    WatchHeld,
    WatchRepeated,
]

#: Name -> kind.
KINDS: Final[Mapping[str, type[Timed]]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Fault)}

#: Those that are about evictions for others: drawn only where room is made, or by name.
OF_PREEMPTION: Final = frozenset({
    *("evictions-refused", "evictions-fail", "evictions-slow", "evictions-two-budgets", "victim-stays"),
    *("nominee-goes", "queue-vanishes", "nomination-conflict", "nominations-deleted"),
})  # fmt: skip

#: Those that are about node agents: drawn only where there are some, or by name.
OF_AGENTS: Final = frozenset({"agent-down", "agent-slow"})

#: Those that are about claims: drawn only where users have some, or by name.
OF_CLAIMS: Final = frozenset({
    *("claim-controller-down", "provisioner-down", "provisioning-fails", "provisioning-slow"),
    *("devices-vanish", "devices-renewed", "devices-tainted", "claims-remade", "rival-allocates"),
    *("claim-writes", "crash-at-claims", "claims-unheard"),
})  # fmt: skip


#: Those that are about agents that make MIG slices: drawn only where there are some, or by name.
OF_PARTITIONING: Final = frozenset({
    *("partitioner-crashes", "partitioner-down", "mig-driver-fails", "mig-driver-slow", "kubelet-restarts"),
    *("slices-grabbed", "gpu-nodes-late", "gpu-nodes-unheard", "gpu-nodes-meddled"),
})  # fmt: skip


def unpromised(faults: Iterable[Timed]) -> frozenset[str]:
    """Return the invariants that nobody can hold under such faults (each kind's docstring says why)."""
    return frozenset().union(*(fault.unpromised for fault in faults))
