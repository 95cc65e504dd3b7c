"""Reading what a pod requires of nodes and of the pods around it, what it prefers, and what it can't be judged by.

A constraint that is not implemented is never violated: its pod waits with ``UNSUPPORTED_CONSTRAINT`` (architecture.md).
ResourceClaims are among the constraints: those that a pod names, and those that were made for it from templates. Rules
about other pods include the disks that pods name in their volumes without a claim, of the kinds that two pods on a node
can't share. A preference that can't be read, or that is beyond what a pod may have, does not count: it keeps no pod
waiting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import Final, TypeVar

import msgspec

from gpu.translation import ANY_CARD, MOST_NAMED, Cards, shown
from scheduler.core.convert import bounds
from scheduler.core.convert.selectors import can_be_read, pod_term, requirements
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.device_requests import ResourceClaimUse
from scheduler.core.model.pod_class import (
    AntiTerm,
    Constraints,
    HostPort,
    InlineDisk,
    PodClass,
    PodPreferences,
    PodRules,
    Requirement,
    Spread,
    Term,
    WeightedNodeTerm,
    WeightedTerm,
    Weights,
)
from wire import names
from wire.core import (
    Container,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodResourceClaim,
    PodSpec,
    TopologySpreadConstraint,
    Volume,
)

#: Nobody means more, and each costs a look at all nodes.
MOST_DISKS: Final = 100


def inline_disks(pod: Pod) -> tuple[InlineDisk, ...]:
    """The disks of a pod, each once (core/v1 VolumeSource), one more than it may have at most."""
    found = dict.fromkeys(
        islice((disk for volume in pod.spec.volumes or () for disk in _disks(volume)), MOST_DISKS + 1)
    )
    return tuple(msgspec.structs.replace(disk, name=tuple(map(bounds.name, disk.name))) for disk in found)


def _disks(volume: Volume) -> Iterator[InlineDisk]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield InlineDisk("gcePersistentDisk", (gce.pd_name,), gce.read_only)
    if (ebs := volume.aws_elastic_block_store) is not None:
        # Nobody can mount one twice, read-only or not.
        yield InlineDisk("awsElasticBlockStore", (ebs.volume_id,))
    if (iscsi := volume.iscsi) is not None:
        yield InlineDisk("iscsi", (iscsi.iqn,), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        for monitor in rbd.monitors or ():
            yield InlineDisk("rbd", (monitor, rbd.pool, rbd.image), rbd.read_only)


_MUST: Final = "DoNotSchedule"
_ALWAYS: Final = "Always"
_HONOR: Final = "Honor"
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - how Kubernetes writes it
#: Nobody means more, and each costs a look at all nodes.
_MOST_RULES: Final = 32
#: Expressions and values in all selectors, which are compared with pods.
_MOST_WORDS: Final = 1_000
_MOST_PORTS: Final = 100
#: The most ports of a placed pod that count: those of the lowest numbers.
_MOST_PORTS_KEPT: Final = 512


def pod_rules(pod: Pod) -> PodRules | None:
    """What ``pod`` asks of others; None if it asks nothing."""
    affinity, anti_affinity = (_terms(pod, written) for written in (pod_affinity(pod), pod_anti_affinity(pod)))
    spread = tuple(dict.fromkeys(spread_of(pod, written) for written in must_spread(pod)))
    ports, disks = host_ports(pod), inline_disks(pod)
    if not (affinity or anti_affinity or spread or ports or disks):
        return None
    looked_at = _keys([*(term.selector for term in affinity), *(each.selector for each in spread)])
    labels = sorted((key, value) for key, value in (pod.metadata.labels or {}).items() if key in looked_at)
    return PodRules(
        namespace=pod.metadata.namespace,
        labels=tuple(labels),
        affinity=affinity,
        anti_affinity=anti_affinity,
        spread=spread,
        ports=ports,
        disks=disks,
    )


def pod_affinity(pod: Pod) -> list[PodAffinityTerm]:
    """Terms of required affinity."""
    return _required(pod.spec.affinity.pod_affinity if pod.spec.affinity else None)


def pod_anti_affinity(pod: Pod) -> list[PodAffinityTerm]:
    """Terms of required anti-affinity."""
    return _required(pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None)


def must_spread(pod: Pod) -> list[TopologySpreadConstraint]:
    """Spread constraints that have to hold; a word that is not known counts as one."""
    written = pod.spec.topology_spread_constraints or ()
    return [each for each in written if each.when_unsatisfiable != "ScheduleAnyway"]


def _required(rules: PodAffinity | None) -> list[PodAffinityTerm]:
    return list((rules.required_during_scheduling_ignored_during_execution if rules else None) or ())


def _terms(pod: Pod, written: Iterable[PodAffinityTerm]) -> tuple[AntiTerm, ...]:
    return tuple(dict.fromkeys(pod_term(term, pod.metadata.namespace) for term in written))


def spread_of(pod: Pod, written: TopologySpreadConstraint) -> Spread:
    """Read a spread constraint, with the pod's own values of ``matchLabelKeys``."""
    labels, selector = pod.metadata.labels or {}, requirements(written.label_selector)
    own = (Requirement(key, "In", (labels[key],)) for key in written.match_label_keys or () if key in labels)
    return Spread(
        key=written.topology_key,
        most_skew=written.max_skew,
        selector=None if selector is None else tuple(dict.fromkeys((*selector, *own))),
        fewest_domains=1 if written.min_domains is None else written.min_domains,
        honors_affinity=written.node_affinity_policy in {None, _HONOR},
        honors_taints=written.node_taints_policy == _HONOR,
    )


def _keys(selectors: Iterable[tuple[Requirement, ...] | None]) -> set[str]:
    return {requirement.key for selector in selectors for requirement in selector or ()}


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Ports of the host that a pod has while it runs: those of init containers only of sidecars."""
    found = dict.fromkeys(_ports(pod))
    return tuple(sorted(found, key=lambda one: (one.protocol, one.port, one.address))[:_MOST_PORTS_KEPT])


def _ports(pod: Pod) -> Iterator[HostPort]:
    for container in _running(pod):
        for port in container.ports or ():
            # The API server writes this default; a pod may come from elsewhere.
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number:
                address = "" if port.host_ip == _ANY_ADDRESS else port.host_ip
                yield HostPort(port.protocol or "TCP", number, address)


def _running(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers
    yield from (one for one in pod.spec.init_containers or () if one.restart_policy == _ALWAYS)


def unreadable(pod: Pod) -> str:
    """Name what of a pod's rules can't be read, though it has to hold; "" if nothing."""
    terms = {"affinity.podAffinity": pod_affinity(pod), "affinity.podAntiAffinity": pod_anti_affinity(pod)}
    for name, written in terms.items():
        if not all(can_be_read(one) for term in written for one in (term.label_selector, term.namespace_selector)):
            return f"{name} with a selector that can't be read"
    spread = must_spread(pod)
    if not all(can_be_read(each.label_selector) and each.when_unsatisfiable == _MUST for each in spread):
        return "topologySpreadConstraints that can't be read"
    return ""


def excessive_rules(rules: PodRules) -> str:
    """Name the limit that rules exceed; "" if they keep all limits."""
    terms = (*rules.affinity, *rules.anti_affinity)
    if len(terms) + len(rules.spread) > _MOST_RULES:
        return f"more than {_MOST_RULES} terms of pod affinity and spread constraints"
    if len(rules.ports) > _MOST_PORTS:
        return f"more than {_MOST_PORTS} ports of the host"
    if len(rules.disks) > MOST_DISKS:
        return f"more than {MOST_DISKS} disks and Ceph monitors in volumes"
    selectors = [each.selector for each in terms] + [each.selector for each in rules.spread]
    selectors += [each.namespace_selector for each in terms]
    words = sum(1 + len(requirement.values) for selector in selectors for requirement in selector or ())
    words += sum(len(term.namespaces) for term in terms)
    return f"more than {_MOST_WORDS} expressions and values in selectors of pods" if words > _MOST_WORDS else ""


_SOFT: Final = "ScheduleAnyway"
_MOST_WEIGHT: Final = 100
#: Each costs a look at all nodes, as each rule does.
MOST_PREFERENCES: Final = 32
#: Expressions, values and namespaces in all of them.
MOST_WORDS: Final = 1_000
_MOST_KEPT: Final = 10_000

_One = TypeVar("_One", WeightedNodeTerm, WeightedTerm, Spread)


class _Left:
    """What a pod may still have."""

    def __init__(self) -> None:
        self._terms, self._words = MOST_PREFERENCES, MOST_WORDS

    def take(self, found: Iterable[_One]) -> tuple[_One, ...]:
        """The first ones, as far as they are within the bounds; none after the first that is not."""
        taken: list[_One] = []
        for one in found:
            words = _words(one)
            if not self._terms or words > self._words:
                self._terms = 0
                break
            self._terms -= 1
            self._words -= words
            taken.append(one)
        return tuple(taken)


def pod_preferences(pod: Pod, weights: Weights) -> PodPreferences | None:
    """What ``pod`` prefers of what counts; None if that is nothing."""
    left = _Left()
    node_terms = left.take(_node_terms(pod)) if weights.node_affinity else ()
    pod_terms = left.take(_own_terms(pod)) if weights.pod_affinity else ()
    spread = left.take(_soft_spread(pod)) if weights.soft_spread else ()
    images = _images(pod) if weights.images else ()
    if not (node_terms or pod_terms or spread or images):
        return None
    return PodPreferences(
        namespace=pod.metadata.namespace,
        node_terms=node_terms,
        pod_terms=pod_terms,
        spread=spread,
        images=images,
        containers=len(_with_images(pod)) if images else 0,
    )


def drawing_terms(pod: Pod, weights: Weights) -> tuple[WeightedTerm, ...]:
    """Terms of a pod by which others are scored beside it: preferred ones, and required affinity.

    Of equal terms there is one, with the sum of their weights.
    """
    if not weights.pod_affinity:
        return ()
    sums: dict[AntiTerm, int] = {}
    for one in _Left().take((*_weighted(pod, weights.hard_pod_affinity), *_own_terms(pod))):
        sums[one.term] = sums.get(one.term, 0) + one.weight
    return _kept(tuple(WeightedTerm(weight, term) for term, weight in sums.items() if weight))


@lru_cache(maxsize=_MOST_KEPT)
def _kept(terms: tuple[WeightedTerm, ...]) -> tuple[WeightedTerm, ...]:
    """The same value for all pods that are alike: most come from few templates."""
    return terms


def _own_terms(pod: Pod) -> Iterator[WeightedTerm]:
    affinity = pod.spec.affinity
    if affinity is not None:
        yield from _preferred(pod, affinity.pod_affinity, 1)
        yield from _preferred(pod, affinity.pod_anti_affinity, -1)


def _preferred(pod: Pod, rules: PodAffinity | None, sign: int) -> Iterator[WeightedTerm]:
    written = (rules.preferred_during_scheduling_ignored_during_execution if rules is not None else None) or ()
    for each in written:
        if (weight := _weight(each.weight)) and _is_readable(each.pod_affinity_term):
            yield WeightedTerm(sign * weight, pod_term(each.pod_affinity_term, pod.metadata.namespace))


def _weighted(pod: Pod, weight: int) -> Iterator[WeightedTerm]:
    if weight and pod.spec.affinity is not None:
        readable = (term for term in pod_affinity(pod) if _is_readable(term))
        yield from (WeightedTerm(weight, pod_term(term, pod.metadata.namespace)) for term in readable)


def _is_readable(term: PodAffinityTerm) -> bool:
    return can_be_read(term.label_selector) and can_be_read(term.namespace_selector)


def _node_terms(pod: Pod) -> Iterator[WeightedNodeTerm]:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    written = (affinity.preferred_during_scheduling_ignored_during_execution if affinity is not None else None) or ()
    for each in written:
        (term,) = terms(NodeSelector(node_selector_terms=[each.preference]))
        if (weight := _weight(each.weight)) and (term.labels or term.fields):
            yield WeightedNodeTerm(weight, term)


def _weight(written: int) -> int:
    return max(0, min(written, _MOST_WEIGHT))


def _soft_spread(pod: Pod) -> Iterator[Spread]:
    written = pod.spec.topology_spread_constraints or ()
    soft = (each for each in written if each.when_unsatisfiable == _SOFT and can_be_read(each.label_selector))
    return (spread_of(pod, each) for each in soft)


def _images(pod: Pod) -> tuple[str, ...]:
    named = [container.image for container in _with_images(pod)]
    named += [volume.image.reference for volume in pod.spec.volumes or () if volume.image is not None]
    return tuple(sorted(map(image_name, filter(None, named[:MOST_PREFERENCES]))))


def _with_images(pod: Pod) -> list[Container]:
    return [*(pod.spec.init_containers or ()), *pod.spec.containers]


def image_name(written: str) -> str:
    """An image as nodes list it: one without a tag means the latest."""
    return written if written.rfind(":") > written.rfind("/") else f"{written}:latest"


def _words(one: WeightedNodeTerm | WeightedTerm | Spread) -> int:
    if isinstance(one, WeightedNodeTerm):
        return _in((*one.term.labels, *one.term.fields))
    if isinstance(one, Spread):
        return _in(one.selector)
    return _in(one.term.selector) + _in(one.term.namespace_selector) + len(one.term.namespaces)


def _in(selector: Iterable[Requirement] | None) -> int:
    return sum(1 + len(requirement.values) for requirement in selector or ())


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
        unreadable(pod): True,
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
    if cls.rules is not None and (limit := excessive_rules(cls.rules)):
        return limit
    if cls.places and sum(map(filters.effort, cls.all_constraints())) > _MOST_IN_PLACES:
        return f"more than {_MOST_IN_PLACES} expressions and labels in all places of its record"
    return ""


def _containers(spec: PodSpec) -> list[Container]:
    return [*spec.containers, *(spec.init_containers or ())]
