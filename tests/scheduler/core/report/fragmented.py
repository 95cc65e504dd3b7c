"""Small nodes with free devices, and kinds of pods, drawn for the tests of fragmentation; and pods of these kinds."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_kind import Kind
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import Occupancy
from scheduler.core.report.fragmentation import NodeLeft, node_left
from scheduler.core.snapshot.node_count import AS_IT_IS
from tests.scheduler.core.objects import NANO, cluster, node, pod, reservation
from wire import names
from wire.core import Pod

CARD_MIB: Final = 16_000
SETTINGS: Final = Settings(preemption=False, reservation_cpu_milli=500, reservation_mem_mib=512)
_SHARED_MODES: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "mig": {"nvidia.com/mig.config.state": "success", names.NODE_MIG_STRATEGY: "single"},
    "multiplied": {names.NODE_GPU_REPLICAS: "2"},
}


class Shared(msgspec.Struct, frozen=True):
    """A device that a reservation holds. ``tells``: it has told the card's memory."""

    used_nano: int = 0
    is_ill: bool = False
    deleting: bool = False
    tells: bool = False


class Machine(msgspec.Struct, frozen=True):
    """A node with so much left beside the pods that are there. ``gpus``: free ones."""

    cpu_milli: int = 4_000
    mem_mib: int = 8_192
    pods: int = 4
    gpus: int = 0
    shared: tuple[Shared, ...] = ()
    has_cards: bool = True
    mode: str = "plain"
    ready: bool = True
    cordoned: bool = False

    def left(self, *devices: int) -> Machine:
        """The same where all devices but these (free ones first, by number) are full."""
        kept = {number - self.gpus for number in devices if number >= self.gpus}
        shared = tuple(
            each if number in kept else msgspec.structs.replace(each, used_nano=NANO)
            for number, each in enumerate(self.shared)
        )
        return msgspec.structs.replace(self, gpus=sum(number < self.gpus for number in devices), shared=shared)

    def objects(self, name: str = "n1", labels: dict[str, str] | None = None) -> list[Any]:
        """The node, and its reservations."""
        made = node(
            name,
            gpus=self.gpus + len(self.shared),
            cpu=f"{self.cpu_milli}m",
            memory=f"{self.mem_mib}Mi",
            pods=self.pods + len(self.shared),
            mem_mib=CARD_MIB if self.has_cards else 0,
            labels={**_SHARED_MODES[self.mode], **(labels or {})},
            ready=self.ready,
            cordoned=self.cordoned,
        )
        return [made, *(self._reservation(name, number, each) for number, each in enumerate(self.shared))]

    def _reservation(self, name: str, number: int, shared: Shared) -> Pod:
        group = f"g{number}-{name}"
        return reservation(
            group,
            name,
            uuid=f"GPU-{group}",
            book={"x": shared.used_nano} if shared.used_nano else {},
            is_ill=shared.is_ill,
            deleting=shared.deleting,
            mem_mib=CARD_MIB if shared.tells and self.has_cards else 0,
        )


def left_of(made: Cluster, name: str) -> NodeLeft:
    """What is left of a node of a cluster, as it is counted."""
    return node_left(*counted_of(made, name))


def counted_of(made: Cluster, name: str) -> tuple[NodeRecord, Occupancy]:
    """A node of a cluster, as it is counted."""
    snapshot = made.snapshot()
    in_order = snapshot.ledger.in_order()
    record = in_order.nodes[in_order.position_of[name]]
    return record, snapshot.used(record, AS_IT_IS)


def alone(machine: Machine) -> Cluster:
    """A cluster of one node."""
    return cluster(*machine.objects(), settings=SETTINGS)


def pod_of(kind: Kind, name: str = "asks") -> Pod:
    """A pod of this kind."""
    milli = f"{kind.milli // 1000}.{kind.milli % 1000:03d}"
    is_share = not kind.is_whole
    return pod(
        name,
        gpus=kind.devices if kind.is_whole else 0,
        fraction=milli if is_share and kind.milli else "",
        mem=kind.device_mib if is_share and kind.device_mib else "",
        devices=kind.devices if is_share and kind.devices > 1 else 0,
        cpu=f"{kind.cpu_milli}m" if kind.cpu_milli else "",
        memory=f"{kind.mem_mib}Mi" if kind.mem_mib else "",
    )


_CPU: Final = st.sampled_from([0, 1_000, 1_499, 2_000, 8_000])
_MEMORY: Final = st.sampled_from([0, 1_024, 1_600, 8_192])


def kinds() -> st.SearchStrategy[Kind]:
    sizes = st.one_of(
        st.just((1_000, 0)),
        st.tuples(st.sampled_from([250, 300, 500, 900]), st.just(0)),
        st.tuples(st.just(0), st.sampled_from([4_000, 4_800, 12_000, 20_000])),
    )
    return st.builds(
        lambda devices, size, cpu, memory: Kind(devices, size[0], cpu, memory, size[1]),
        st.integers(1, 3),
        sizes,
        _CPU,
        _MEMORY,
    )


def machines(most_gpus: int = 2, most_shared: int = 2) -> st.SearchStrategy[Machine]:
    shared = st.builds(
        Shared,
        used_nano=st.sampled_from([0, 0, NANO // 4, NANO // 2, 7 * NANO // 10, NANO]),
        is_ill=st.sampled_from([False, False, False, True]),
        deleting=st.sampled_from([False, False, False, True]),
        tells=st.booleans(),
    )
    return st.builds(
        Machine,
        cpu_milli=_CPU,
        mem_mib=_MEMORY,
        pods=st.integers(0, 3),
        gpus=st.integers(0, most_gpus),
        shared=st.lists(shared, max_size=most_shared).map(tuple),
        has_cards=st.booleans(),
        mode=st.sampled_from([*["plain"] * 6, "mig", "multiplied"]),
        ready=st.sampled_from([True] * 7 + [False]),
        cordoned=st.sampled_from([False] * 7 + [True]),
    )
