"""What pods ask for, and under which constraints.

``PodClass`` is the unit of thought: pods that ask the same under the same constraints are judged once. Classes are
interned, so that one is compared by identity and its hash is computed once. Beside them: what a pod asks of the pods
around it (affinity, anti-affinity, spread, ports of the host, disks), what it would rather have, and what a claim that
waits for its first consumer needs of a volume.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from gpu.request import NO_GPU, GpuRequest
from gpu.translation import Place, Wishes
from scheduler.core.model.device_requests import Backed, DeviceNeed
from scheduler.core.model.numa import NumaAsk
from wire import names
from wire.core import Toleration

#: Access modes in which pods on several nodes mount one volume.
_SHARED_MODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class VolumeNeed(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """What an unbound claim asks of its volume. Claims of several pods that ask the same have equal needs.

    ``selector``: expressions on the volume's labels, which all have to hold. ``node``: where the claim says that it is
    being provisioned (``selected-node``), "" nowhere. ``volume``: the PersistentVolume that names the claim, "" if none
    does. ``claim``: namespace and name, if several pods mount it, since one choice has to serve them all.
    """

    storage_class: str
    size_bytes: int
    access_modes: tuple[str, ...] = ()
    mode: str = "Filesystem"
    attributes_class: str = ""
    selector: tuple[Requirement, ...] = ()
    node: str = ""
    volume: str = ""
    claim: tuple[str, str] | None = None

    @property
    def serves_many_nodes(self) -> bool:
        """Whether pods on several nodes may mount the claim: by its access modes, as volumes have all of them."""
        return not _SHARED_MODES.isdisjoint(self.access_modes)


class VolumeChoice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was chosen for one claim (name and UID): a PersistentVolume, or ``volume`` "" to provision for ``node``.

    ``node``: that of the first pod that mounts the claim. The others of a claim for many nodes may be elsewhere.
    """

    claim: str
    claim_uid: str
    node: str
    need: VolumeNeed
    volume: str = ""


class HostPort(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A port of the host. ``address`` "": of each of its addresses."""

    protocol: str
    port: int
    address: str = ""


class InlineDisk(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A disk that a pod names in its own volumes: pods on a node share it only if each of them reads it only.

    ``name``: what tells disks of one ``type`` (field of core/v1 VolumeSource) apart. An image that several Ceph
    monitors offer is one disk for each of them.
    """

    type: str
    name: tuple[str, ...]
    is_read_only: bool = False


class Spread(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """A spread constraint that has to hold (core/v1 TopologySpreadConstraint, DoNotSchedule).

    ``selector`` as in ``AntiTerm``, with the pod's own values of ``matchLabelKeys``. ``honors_affinity``: only nodes
    count that the pod's selector and node affinity admit; ``honors_taints``: only those whose taints it tolerates.
    """

    key: str
    most_skew: int
    selector: tuple[Requirement, ...] | None
    fewest_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class PodRules(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """All that a pod asks of pods around it, a part of its class.

    ``labels``: its own labels, as far as a selector of its own may look at them: whether it takes itself matters.
    """

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    affinity: tuple[AntiTerm, ...] = ()
    anti_affinity: tuple[AntiTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    ports: tuple[HostPort, ...] = ()
    disks: tuple[InlineDisk, ...] = ()

    @property
    def may_open(self) -> bool:
        """Whether one more pod somewhere can let it in on a node that was out."""
        return bool(self.affinity or self.spread)


class Weights(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the score of each preference, 0 to 100, is multiplied by; 0: it does not count. Kubernetes' defaults.

    ``hard_pod_affinity``: what required affinity of other pods weighs in ``pod_affinity``, 0 to 100.
    ``ignores_others``: preferred terms of other pods count only for pods that have such terms themselves
    (kube-scheduler's ``ignorePreferredTermsOfExistingPods``).
    """

    prefer_no_schedule: int = 3
    node_affinity: int = 2
    pod_affinity: int = 2
    soft_spread: int = 2
    images: int = 0
    hard_pod_affinity: int = 1
    ignores_others: bool = False


class WeightedNodeTerm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A term of preferred node affinity; ``weight`` from 1 to 100."""

    weight: int
    term: Term


class WeightedTerm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A term about other pods that draws towards their domains, or away from them if ``weight`` is below 0."""

    weight: int
    term: AntiTerm


class PodPreferences(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """All that a pod prefers, a part of its class.

    ``spread``: constraints that need not hold. ``images``: of its containers and image volumes, one each, as nodes list
    them; ``containers``: how many it has.
    """

    namespace: str
    node_terms: tuple[WeightedNodeTerm, ...] = ()
    pod_terms: tuple[WeightedTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    images: tuple[str, ...] = ()
    containers: int = 0


class Demand(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """What a pod takes from a node beside parts of devices. One pod slot goes without saying.

    ``gpus`` is the effective request of ``nvidia.com/gpu``: whole devices.
    """

    cpu_milli: int = 0
    mem_mib: int = 0
    ephemeral_mib: int = 0
    gpus: int = 0
    #: Extended resources and huge pages (bytes), sorted by name, zeros left out.
    extended: tuple[tuple[str, int], ...] = ()
    #: Bytes by which ``mem_mib`` exceeds the request: queues count bytes.
    mem_rounding_bytes: int = 0
    #: Extended resources that devices of a claim stand for: queues count them, and nodes don't.
    claimed: tuple[tuple[str, int], ...] = ()
    #: The part of a device that a claim gives: queues count it, and nodes don't.
    claimed_nano: int = 0

    @property
    def has_claimed_gpus(self) -> bool:
        """Whether a claim gives it GPUs that its node's device plugin could offer one day, or a part of one."""
        return bool(self.claimed_nano) or any(name == names.GPU_RESOURCE for name, _ in self.claimed)

    @property
    def mem_bytes(self) -> int:
        """Memory as it is asked."""
        return self.mem_mib * 2**20 - self.mem_rounding_bytes

    def by_claim(self, resources: Collection[str]) -> Demand:
        """The same, with these extended resources from devices of a claim."""
        gpus = ((names.GPU_RESOURCE, self.gpus),) if self.gpus and names.GPU_RESOURCE in resources else ()
        moved = (*gpus, *(each for each in self.extended if each[0] in resources))
        if not moved:
            return self
        return msgspec.structs.replace(
            self,
            gpus=0 if gpus else self.gpus,
            extended=tuple(each for each in self.extended if each[0] not in resources),
            claimed=tuple(sorted((*self.claimed, *moved))),
        )


class Requirement(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """One expression on a node's labels or fields."""

    key: str
    operator: str
    values: tuple[str, ...]


class Term(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """All expressions of one term must hold; a term without any holds nowhere."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]


#: Label keys and values of nodes: domains of a topology.
Domains = frozenset[tuple[str, str]]


class AntiTerm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A term of required anti-affinity: pods that it takes may not be where its owner is, by the node label ``key``.

    It takes pods of ``namespaces``, and of those whose labels ``namespace_selector`` takes. A selector is None if it
    takes nothing, and without requirements if it takes everything.
    """

    key: str
    selector: tuple[Requirement, ...] | None
    namespaces: frozenset[str]
    namespace_selector: tuple[Requirement, ...] | None = None
    #: Its owners have written less: there are too many terms like theirs (nodes/inter_pod_affinity.py).
    is_widened: bool = False
    #: It names no namespaces, so it takes pods of its owners' namespace only, and never others' however many there are:
    #: a quota of scope CrossNamespacePodAffinity lets it pass.
    is_own: bool = False


class VolumeRule(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """On which nodes a volume can be used. ``terms`` as in ``Constraints``.

    ``zones``: values that the node's label of this key may have; the key is a zone's or a region's.
    """

    terms: tuple[Term, ...] | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Constraints(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """On which nodes a pod may be at all. ``terms`` None: no required node affinity; (): it matches nowhere.

    ``products``: one of these has to be part of the product's name of the node's cards, none of ``not_products``
    (gpu/translation.py, Cards). ``enforced``: words that the node has to enforce (gpu/limits.py).
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    products: tuple[str, ...] = ()
    not_products: tuple[str, ...] = ()
    enforced: tuple[str, ...] = ()
    #: Nodes that this request of the pod is for; None: all.
    place: Place | None = None
    #: What its volumes ask of the node, those that are alike once.
    volumes: tuple[VolumeRule, ...] = ()
    #: Where its allocated ResourceClaims can be used: terms of each of which one has to hold.
    allocated: tuple[tuple[Term, ...], ...] = ()
    #: Extended resources, and whether the node's device plugin has to offer them, or must not.
    sources: tuple[tuple[str, bool], ...] = ()
    #: What kubelets align of it on NUMA nodes, where that is read.
    aligned: NumaAsk | None = None
    #: Only nodes that offer each GPU once.
    distinct_gpus: bool = False
    #: What filters have read by themselves, by kind (filters/filter.py).
    asks: tuple[tuple[str, Any], ...] = ()


ANYWHERE = Constraints()
NO_WISHES = Wishes()


class PodClass(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """Everything about a pod that a placement depends on."""

    demand: Demand = Demand()
    request: GpuRequest = NO_GPU
    constraints: Constraints = ANYWHERE
    #: Its containers read KAI's ConfigMaps, which only the binder writes.
    by_config_map: bool = False
    #: Where it goes if the cluster's choice is not its own: ``binpack``, ``spread``, or "".
    strategy: str = ""
    #: UUIDs of devices that alone will do, and of those that won't.
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    #: Whole requests in order of preference, for when ``request`` fits nowhere.
    alternatives: tuple[GpuRequest, ...] = ()
    #: What its node may be unable to enforce.
    wishes: Wishes = NO_WISHES
    #: Its containers read their memory caps for the driver (gpu/limits.py).
    driver_caps: bool = False
    #: Back ends of nodes' agents that can hold it to its caps, or do where it is bound (gpu/limits.py).
    by_agents: tuple[str, ...] = ()
    #: Its mode, if tenants of another one may not be on its devices (gpu/translate/asked.py).
    mode: str = ""

    #: Where ``request`` and each of the alternatives is meant, without units; empty: everywhere.
    places: tuple[Place, ...] = ()
    #: Volumes that count against a limit of nodes, as (driver, handle).
    attached: tuple[tuple[str, str], ...] = ()
    #: What its claims that are bound with its placement need of volumes, smallest first.
    unbound: tuple[VolumeNeed, ...] = ()
    #: What its ResourceClaims that are not allocated ask of devices.
    devices: tuple[DeviceNeed, ...] = ()
    #: How a claim may give it extended resources, on nodes whose device plugins don't offer them.
    backed: tuple[Backed, ...] = ()
    #: Of a way: which of these it is. The last of ``devices`` is its need.
    backing: Backed | None = None
    #: Where pods are that keep this one off (inter_pod_affinity.py).
    avoids: Domains = frozenset()
    #: Terms of pods that wait themselves and would keep this one off (inter_pod_affinity.py).
    taken_by: frozenset[AntiTerm] = frozenset()
    #: What it asks of the pods around it.
    rules: PodRules | None = None
    #: What it would rather have.
    prefers: PodPreferences | None = None
    #: Terms of other pods by which it is scored beside them (inter_pod_affinity.py).
    drawn_by: frozenset[WeightedTerm] = frozenset()
    #: Nodes that are out for it for a while, because an attempt failed there (assumed/attempts.py).
    excluded: frozenset[str] = frozenset()
    #: Seconds after which its kubelet ends it (``activeDeadlineSeconds``), and those that its annotation names; 0: not
    #: known.
    deadline_s: int = 0
    max_runtime_s: int = 0

    def ways(self) -> tuple[PodClass, ...]:
        """A class for each of its requests, best first, with the nodes that this one is for.

        Each of them comes once for each source of its extended resources: device plugins first, then claims.
        """
        ways = self._ways_of_requests()
        if not self.backed:
            return ways
        return tuple(each for way in ways for each in way.ways_by_source())

    def ways_by_source(self) -> Iterator[PodClass]:
        """The same requests, for nodes that offer its extended resources and for those that a claim serves."""
        names_ = dict.fromkeys(name for way in self.backed for name in way.resources)
        for way in (None, *self.backed):
            backing = None if way is None else way.for_request(self.request)
            by_claim = frozenset(() if backing is None else backing.resources)
            yield msgspec.structs.replace(
                self,
                demand=self.demand.by_claim(by_claim),
                request=NO_GPU if backing is not None and backing.is_share else self.request,
                constraints=msgspec.structs.replace(
                    self.constraints, sources=tuple((name, name not in by_claim) for name in names_)
                ),
                devices=self.devices if backing is None else (*self.devices, backing.need),
                backed=(),
                backing=backing,
            )

    def _ways_of_requests(self) -> tuple[PodClass, ...]:
        if not self.places:
            alone = (msgspec.structs.replace(self, request=each, alternatives=()) for each in self.alternatives)
            return (self, *alone)
        return tuple(
            msgspec.structs.replace(
                self,
                request=request,
                alternatives=(),
                places=(),
                constraints=msgspec.structs.replace(self.constraints, place=place),
            )
            for request, place in zip(self.requests(), self.places, strict=True)
        )

    def all_constraints(self) -> tuple[Constraints, ...]:
        """The constraints of all ways, each once."""
        if self.backed:
            return tuple(dict.fromkeys(way.constraints for way in self.ways()))
        if not self.places:
            return (self.constraints,)
        return tuple(dict.fromkeys(msgspec.structs.replace(self.constraints, place=place) for place in self.places))

    def profiles(self) -> set[str]:
        """MIG profiles of which it asks a part, in any way that will do."""
        return {ask.profile for request in self.requests() for ask in request.shared} - {""}

    def requests(self) -> Iterator[GpuRequest]:
        """What will do, best first."""
        yield self.request
        yield from self.alternatives
