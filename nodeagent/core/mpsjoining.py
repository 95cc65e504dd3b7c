"""Which tenants have a process under MPS, as far as the daemon's list of clients can be believed. Pure.

The list has names of processes, which tenants choose: one with line ends may make lines of any client. So a line counts
only where the process that it names is in the control group of the pod whose namespace it names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from nodeagent.core import mps
from nodeagent.core.mpscontrol import Client, Said

#: Server and namespace.
Place: TypeAlias = tuple[str, str]
#: Processes of one namespace that a look asks about. A tenant may make as many lines as an answer has.
MOST_ASKED: Final = 32


def in_question(before: Collection[Place], said: Said) -> tuple[Client, ...]:
    """Return clients whose pods are to be looked up: of namespaces of pods that are not known to be joined."""
    there = {(one.server, one.name) for one in said.namespaces if mps.pod_of(one.name)}
    by_place: dict[Place, list[Client]] = {}
    for one in sorted(said.clients, key=lambda client: client.pid):
        if one.place in there and one.place not in before:
            by_place.setdefault(one.place, []).append(one)
    return tuple(one for listed in by_place.values() for one in listed[:MOST_ASKED])


def joined(before: Collection[Place], said: Said, pods: Mapping[int, str]) -> frozenset[Place]:
    """Return which namespaces have had a client, as long as they are there.

    ``pods``: the pod UID of each process in question, "" for one that is in no pod, or has ended.
    """
    there = {(one.server, one.name) for one in said.namespaces}
    seen = {one.place for one in said.clients if pods.get(one.pid) and pods[one.pid] == mps.pod_of(one.namespace)}
    return frozenset(place for place in {*before, *seen} if place in there)
