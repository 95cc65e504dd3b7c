"""Nodes with GPUs in MIG mode, for tests of partitioning."""

from __future__ import annotations

from collections.abc import Sequence

from gpu.mig import Place, Profile
from scheduler.core.cluster import Cluster
from scheduler.core.model.mig import MigCard, MigNode, MigSlice
from scheduler.core.model.plan import Explain
from tests.scheduler.core.objects import cluster, commit, node
from wire import names
from wire.core import Node

#: Of an H100.
PROFILES = {
    "1g.10gb": Profile(tuple(Place(at, 1) for at in range(7)), 7),
    "2g.20gb": Profile(tuple(Place(at, 2) for at in (0, 2, 4)), 3),
    "3g.40gb": Profile(tuple(Place(at, 4) for at in (0, 4)), 2),
    "7g.80gb": Profile((Place(0, 8),), 1),
}
ONE, TWO, THREE, SEVEN = (f"nvidia.com/mig-{profile}" for profile in PROFILES)
OFFERED = {names.NODE_MIG: names.MIG_DYNAMIC, names.NODE_MIG_STRATEGY: "mixed"}


def slices(*texts: str) -> tuple[MigSlice, ...]:
    """``1g@0`` is a free slice, ``1g@0!`` one in use."""
    return tuple(map(_slice, texts))


def _slice(text: str) -> MigSlice:
    name, _, start = text.rstrip("!").partition("@")
    profile = next(each for each in PROFILES if each.startswith(name))
    size = PROFILES[profile].places[0].size
    return MigSlice(profile, int(start), size, text.endswith("!"))


def card(uuid: str, *texts: str, is_ready: bool = True, attempt: str = "", state: str = "") -> MigCard:
    return MigCard(uuid=uuid, is_ready=is_ready, profiles=PROFILES, slices=slices(*texts), attempt=attempt, state=state)


def mig_node(name: str, *cards: MigCard) -> MigNode:
    return MigNode(name=name, rv="1", cards=cards)


def shown(of: MigNode, *, labels: dict[str, str] | None = None, cpu: str = "64", less: Sequence[str] = ()) -> Node:
    """The Node whose device plug-in offers these slices."""
    counts: dict[str, int] = {}
    for each in (one for gpu in of.cards for one in gpu.slices if one.resource not in less):
        counts[each.resource] = counts.get(each.resource, 0) + 1
    extended = {name: str(number) for name, number in counts.items()}
    return node(of.name, gpus=0, labels=OFFERED if labels is None else labels, cpu=cpu, extended=extended)


def decided(*objects: object) -> tuple[Cluster, list[Explain]]:
    """A cluster after decisions until nothing more is placed, and what those that wait were told."""
    made = cluster(*objects)  # type: ignore[arg-type]  # as objects.cluster takes them
    while True:
        plan = made.decide(0)
        if all(isinstance(entry, Explain) for entry in plan.entries):
            return made, made.scheduling_queue.said.all()
        commit(made, plan)
