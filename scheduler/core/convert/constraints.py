"""Reading a pod's hard constraints: those that filters judge, and the names of those that nobody does yet.

A constraint that is not implemented is never violated: its pod waits with ``UNSUPPORTED_CONSTRAINT`` (architecture.md).
ResourceClaims are among them: those that a pod names, and those that were made for it from templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from gpu.translation import ANY_CARD, MOST_NAMED, Cards, shown
from scheduler.core.convert import bounds, pod_rules
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.device_requests import ResourceClaimUse
from scheduler.core.model.pod_class import Constraints, PodClass, Requirement, Term
from wire import names
from wire.core import Container, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodResourceClaim, PodSpec

#: Devices for all claims are searched for on each node. Nobody means that many.
MOST_CLAIMS: Final = 32


def is_unread(entry: PodResourceClaim) -> bool:
    """Whether a pod names a claim in a way that nothing here reads."""
    return not (entry.resource_claim_name or entry.resource_claim_template_name)


def claim_uses(pod: Pod) -> tuple[ResourceClaimUse, ...]:
    """The claims of a pod, in its order, one more than it may have at most. Those that are not needed are left out."""
    return tuple(islice(_uses(pod), MOST_CLAIMS + 1)) if pod.spec.resource_claims else ()


def _uses(pod: Pod) -> Iterator[ResourceClaimUse]:
    made = {each.name: each for each in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        if entry.resource_claim_name:
            yield ResourceClaimUse(entry.name, entry.resource_claim_name)
        elif is_unread(entry):
            continue
        elif entry.name not in made:
            yield ResourceClaimUse(entry.name, is_own=True)
        elif name := made[entry.name].resource_claim_name:
            yield ResourceClaimUse(entry.name, name, is_own=True, group=_group(pod))


def _group(pod: Pod) -> str:
    """The PodGroup of Kubernetes' Workload API that a pod is in, also if it is grouped by something else here."""
    name = (pod.spec.scheduling_group or {}).get("podGroupName")
    return bounds.name(name) if isinstance(name, str) else ""


_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_NOWHERE: Final = Term((), ())
#: All nodes are compared with a pod's constraints at once. Nobody means that many, and one pod could stop everybody.
_MOST_EFFORT = MOST_NAMED
#: For all places of a record together: 17 that an administrator's settings make, each with as much.
_MOST_IN_PLACES = 10_000
#: Each resource that a pod asks is compared with all nodes, and no node has a hundred of them.
_MOST_RESOURCES = 100


def constraints(
    pod: Pod, cards: Cards = ANY_CARD, enforced: tuple[str, ...] = (), filters: Filters = FILTERS
) -> Constraints:
    """Node selector, required node affinity and tolerations of ``pod``, which products it takes, what is enforced."""
    spec = pod.spec
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    return Constraints(
        selector=tuple(sorted((spec.node_selector or {}).items())),
        terms=None if required is None else terms(required),
        tolerations=tuple(spec.tolerations or ()),
        products=cards.products,
        not_products=cards.not_products,
        enforced=enforced,
        asks=filters.read(pod),
    )


def terms(required: NodeSelector) -> tuple[Term, ...]:
    """Read the terms of which one has to hold."""
    return tuple(map(_term, required.node_selector_terms or ()))


def _term(term: NodeSelectorTerm) -> Term:
    """Read a term. One with a value that no label can have holds nowhere: kube-scheduler can't parse it."""
    labels = _requirements(term.match_expressions)
    if not all(map(_LABEL_VALUE.fullmatch, chain.from_iterable(r.values for r in labels))):
        return _NOWHERE
    return Term(labels, _requirements(term.match_fields))


def _requirements(written: Iterable[NodeSelectorRequirement] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in written or ())


def unsupported(pod: Pod) -> str:
    """Name what ``pod`` asks that is not implemented, hard constraints as the pod spec spells them; "" if nothing."""
    return ", ".join(each_unsupported(pod))


def each_unsupported(pod: Pod) -> list[str]:
    """The same, one by one."""
    found = {
        **_asked_by_annotation(pod),
        pod_rules.unreadable(pod): True,
        "resourceClaims": any(map(is_unread, pod.spec.resource_claims or ())),
    }
    return [name for name, is_there in found.items() if name and is_there]


def _asked_by_annotation(pod: Pod) -> dict[str, bool]:
    asked = legacy_slice(pod)
    return {f"a MIG slice by the annotation {shown(asked)} (ask for it in resources.limits)": True} if asked else {}


def legacy_slice(pod: Pod) -> str:
    """The annotation by which a pod asks for a MIG slice, as KAI once had it; "" if it asks for none, or by resources.

    KAI places no such pod either (contract 14.6).
    """
    asked = [key for key in pod.metadata.annotations or {} if key.startswith(names.MIG_RESOURCE_PREFIX)]
    if not asked or any(_asks_slices(container) for container in _containers(pod.spec)):
        return ""
    return min(asked)


def _asks_slices(container: Container) -> bool:
    resources = {*(container.resources.limits or {}), *(container.resources.requests or {})}
    return any(name.startswith(names.MIG_RESOURCE_PREFIX) for name in resources)


def excessive(cls: PodClass, filters: Filters = FILTERS) -> str:
    """Name the limit that a class exceeds with its constraints or resources; "" if it keeps all limits."""
    if len(cls.demand.extended) > _MOST_RESOURCES:
        return f"more than {_MOST_RESOURCES} extended resources"
    if filters.effort(cls.constraints) + len(cls.uuids) + len(cls.not_uuids) > _MOST_EFFORT:
        return f"more than {_MOST_EFFORT} expressions, labels, tolerations, products and UUIDs in all"
    if cls.rules is not None and (limit := pod_rules.excessive(cls.rules)):
        return limit
    if cls.places and sum(map(filters.effort, cls.all_constraints())) > _MOST_IN_PLACES:
        return f"more than {_MOST_IN_PLACES} expressions and labels in all places of its record"
    return ""


def _containers(spec: PodSpec) -> list[Container]:
    return [*spec.containers, *(spec.init_containers or ())]
