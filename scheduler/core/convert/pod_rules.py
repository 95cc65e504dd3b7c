"""Reading what a pod asks of the pods around it.

With the disks that pods name in their volumes without a claim, of the kinds that two pods on a node can't share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from scheduler.core.convert import bounds
from scheduler.core.convert.selectors import can_be_read, pod_term, requirements
from scheduler.core.model.pod_class import AntiTerm, HostPort, InlineDisk, PodRules, Requirement, Spread
from wire.core import Container, Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint, Volume

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


def excessive(rules: PodRules) -> str:
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
