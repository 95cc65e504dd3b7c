"""Grove's PodCliqueSet: its PodCliques and their pods, each with its PodGang (ai-dynamo/grove: API types, namegen).

A PodGang has the PodCliques of a replica, and of each scaling group the replicas that are guaranteed; each further
replica of a scaling group has one of its own. All pods come at once, without topologies and shared claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu.translation import shown
from simulator.controllers.pods import (
    Charge,
    Json,
    Malformed,
    Placed,
    Template,
    child,
    marks,
    named,
    number,
    objects,
    placed,
    read_template,
    stored,
)
from wire import gangs

_TEMPLATE: Final = "spec.template"
_VERSION: Final = "grove.io/v1alpha1"


class _Clique(msgspec.Struct, frozen=True):
    """A clique: the template and the number of its pods, and how many start together."""

    name: str
    template: Template
    replicas: int
    minimum: int


class _Group(msgspec.Struct, frozen=True):
    """Cliques that are scaled together. ``guaranteed``: replicas that start with the whole."""

    name: str
    cliques: tuple[str, ...]
    replicas: int
    guaranteed: int


class _Member(msgspec.Struct, frozen=True):
    """A PodClique as it is stored, without and with a scaling group above it."""

    name: str
    clique: _Clique
    owners: tuple[Json, ...]


def expand(pod_clique_set: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods of all replicas. Raises Malformed."""
    spec, name = child(pod_clique_set, "spec"), pod_clique_set["metadata"]["name"]
    replicas = number(spec, "replicas", "spec", 0)
    written = child(spec, "template")
    listed = objects(child(written, "cliques"), f"{_TEMPLATE}.cliques")
    cliques = {each.name: each for each in (_clique(at, one) for at, one in enumerate(listed))}
    path = f"{_TEMPLATE}.podCliqueScalingGroups"
    groups = [
        _group(f"{path}[{at}]", one, cliques)
        for at, one in enumerate(objects(child(written, "podCliqueScalingGroups"), path))
    ]
    for clique in cliques.values():
        copies = sum(group.replicas for group in groups if clique.name in group.cliques)
        is_alone = not any(clique.name in group.cliques for group in groups)
        charge(replicas * clique.replicas * (copies + is_alone), f"{clique.template.path}.replicas", clique.template)
    for index in range(replicas):
        for gang, members in _gangs(pod_clique_set, f"{name}-{index}", cliques, groups).items():
            yield from _pods(pod_clique_set, gang, members, child(written, "priorityClassName"))


def _clique(at: int, written: Json) -> _Clique:
    path = f"{_TEMPLATE}.cliques[{at}]"
    spec = child(written, "spec")
    template = read_template(
        {"metadata": marks((written, path)), "spec": child(spec, "podSpec")}, f"{path}.spec.podSpec"
    )
    replicas = number(spec, "replicas", f"{path}.spec", 1)
    minimum = number(spec, "minAvailable", f"{path}.spec", replicas)
    return _Clique(named(written, path), template, replicas, minimum)


def _group(path: str, written: Json, cliques: Mapping[str, _Clique]) -> _Group:
    listed = child(written, "cliqueNames")
    if not isinstance(listed, list) or not all(each in cliques for each in map(str, listed)):
        raise Malformed(f"{path}.cliqueNames is {shown(repr(listed))}; a list of names of cliques is allowed")
    replicas = number(written, "replicas", path, 1)
    return _Group(named(written, path), tuple(listed), replicas, number(written, "minAvailable", path, 1))


def _gangs(
    pod_clique_set: Json, base: str, cliques: Mapping[str, _Clique], groups: Sequence[_Group]
) -> dict[str, list[_Member]]:
    """Return the PodCliques of a replica by the names of their PodGangs."""
    grouped = {name for group in groups for name in group.cliques}
    alone = [clique for clique in cliques.values() if clique.name not in grouped]
    found = {base: [_Member(f"{base}-{clique.name}", clique, (pod_clique_set,)) for clique in alone]}
    for group in groups:
        called = f"{base}-{group.name}"
        owners = (stored(_VERSION, "PodCliqueScalingGroup", called, above=pod_clique_set), pod_clique_set)
        for index in range(group.replicas):
            gang = base if index < group.guaranteed else f"{called}-{index - group.guaranteed}"
            members = [_Member(f"{called}-{index}-{name}", cliques[name], owners) for name in group.cliques]
            found.setdefault(gang, []).extend(members)
    return found


def _pods(pod_clique_set: Json, gang: str, members: Sequence[_Member], priority: object) -> Iterator[Placed]:
    members = [member for member in members if member.clique.replicas]
    groups = [{"name": member.name, "minReplicas": member.clique.minimum} for member in members]
    spec: dict[str, Any] = {"podgroups": groups, "priorityClassName": priority}
    meta = pod_clique_set["metadata"]
    like = {"metadata": {"namespace": meta.get("namespace"), **marks((meta, "metadata"))}, "spec": spec}
    pod_gang = stored("scheduler.grove.io/v1alpha1", "PodGang", gang, above=pod_clique_set, like=like)
    for member in members:
        owners = [stored(_VERSION, "PodClique", member.name, above=member.owners[0]), *member.owners]
        labels = {gangs.GROVE_POD_GANG: gang, gangs.GROVE_POD_CLIQUE: member.name}
        for _ in range(member.clique.replicas):
            made = placed(owners, member.clique.template, generate_name=f"{member.name}-", labels=labels)
            yield msgspec.structs.replace(made, beside=(pod_gang,))
