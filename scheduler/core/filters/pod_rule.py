"""What a rule about pods on nodes is: a filter whose answer for a node changes with each pod that comes or goes.

Such a filter asks nothing of a node's record. It answers for all nodes at once, from counts of pods (``Counts``), which
a decision keeps up to date with its own placements. So it may be asked as often as something is placed. Several rules
close a node or a domain as soon as one pod of some is there: they share the parts at the end. Which pods are taken is
said by label selectors, and by terms of affinity and anti-affinity (core/v1 PodAffinityTerm).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.node_affinity import effort_of_all, keys_of, meets
from scheduler.core.model.pod_class import AntiTerm, Constraints, PodClass, Requirement, WeightedTerm
from scheduler.core.model.records import NodeRecord, PodRecord

Labels: TypeAlias = Mapping[str, str]
#: The labels of a namespace; None while nobody knows them.
LabelsOf: TypeAlias = Callable[[str], Labels | None]

_NO_KEY: Final = ""


def takes(selector: tuple[Requirement, ...] | None, labels: Labels) -> bool:
    """Whether a selector takes these labels. None takes nothing; one without requirements takes everything."""
    if selector is None:
        return False
    for requirement in selector:  # noqa: SIM110 - asked for each pod; a generator takes twice as long
        if not meets(requirement, labels):
            return False
    return True


def takes_in_doubt(selector: tuple[Requirement, ...] | None, pod: PodRecord, *, unknown: bool) -> bool:
    """Whether a selector takes a pod. ``unknown``: whether it takes one whose labels are too many to be kept."""
    if pod.are_labels_cut and selector:
        return unknown
    return takes(selector, pod.labels)


def takes_pod(term: AntiTerm, namespace: str, labels: Labels, labels_of: LabelsOf, *, unknown: bool) -> bool:
    """Whether a term takes a pod. ``unknown``: whether it means a namespace whose labels nobody knows."""
    if namespace not in term.namespaces and not _selects(term, namespace, labels_of, unknown=unknown):
        return False
    return takes(term.selector, labels)


def _selects(term: AntiTerm, namespace: str, labels_of: LabelsOf, *, unknown: bool) -> bool:
    """Whether a term means a namespace by its labels."""
    if term.namespace_selector is None:
        return False
    labels = labels_of(namespace)
    return unknown if labels is None else takes(term.namespace_selector, labels)


class TakenByAll(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods that each of some terms takes. ``unknown``: as above, of labels of namespaces and of pods."""

    terms: tuple[AntiTerm, ...]
    unknown: bool

    @property
    def reads(self) -> tuple[str, ...]:
        """The labels of all selectors."""
        return keys_of(requirement for term in self.terms for requirement in term.selector or ())

    def effort(self) -> int:
        """What it takes to look at one pod, in comparisons or so."""
        return sum(map(effort_of_term, self.terms))

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod is one of them."""
        for term in self.terms:
            if pod.namespace not in term.namespaces and not _selects(
                term, pod.namespace, labels_of, unknown=self.unknown
            ):
                return False
            if not takes_in_doubt(term.selector, pod, unknown=self.unknown):
                return False
        return True


class Owning(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods that have a term of required anti-affinity, which may be written more narrowly than it counts.

    If it is widened, only pods without a node: those with one have terms that may take nobody, and are compared by
    them (nodes/inter_pod_affinity.py). Else a crowd of pods that wait would close all nodes of others' pods with terms.
    """

    term: AntiTerm

    @property
    def reads(self) -> None:
        """Terms alone."""
        return

    def effort(self) -> int:
        """What it takes to look at one pod: terms are compared by their hashes."""
        return 1

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod is one of them."""
        del labels_of
        if not self.term.is_widened:
            return self.term in pod.keeps_off
        return not pod.node and any(self.term in wider(term) for term in pod.keeps_off)


class Drawing(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods that have a term by which others are scored."""

    term: WeightedTerm

    @property
    def reads(self) -> None:
        """Terms alone."""
        return

    def effort(self) -> int:
        """What it takes to look at one pod: terms are compared by their hashes."""
        return 1

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod is one of them."""
        del labels_of
        return self.term in pod.draws


def owned_term(matcher: object) -> AntiTerm | WeightedTerm | None:
    """The term that each pod has which a matcher takes; None: it takes pods by something else."""
    if isinstance(matcher, Drawing):
        return matcher.term
    return matcher.term if isinstance(matcher, Owning) and not matcher.term.is_widened else None


def effort_of_term(term: AntiTerm) -> int:
    """What it takes to compare a pod with a term, in comparisons or so."""
    return 1 + effort_of_all(term.selector or ()) + effort_of_all(term.namespace_selector or ())


def wider(term: AntiTerm) -> tuple[AntiTerm, ...]:
    """A term, all pods of its namespaces, and all pods; where it names no namespaces nobody in place of all."""
    last = msgspec.structs.replace(term, selector=None) if term.is_own else everybody(term.key)
    wide = (msgspec.structs.replace(term, selector=()), last)
    return term, *(msgspec.structs.replace(each, is_widened=True) for each in wide)


def everybody(topology_key: str) -> AntiTerm:
    """A term that takes all pods of all namespaces."""
    return AntiTerm(topology_key, selector=(), namespaces=frozenset(), namespace_selector=())


def without_key(term: AntiTerm) -> AntiTerm:
    """What a term takes, wherever: terms that differ in their key alone count the same pods."""
    return msgspec.structs.replace(term, key=_NO_KEY)


if TYPE_CHECKING:  # commands that only read what pods ask of filters don't load NumPy
    import numpy as np
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Bools: TypeAlias = "NDArray[np.bool_]"


def all_of(columns: Sequence[Bools]) -> Bools:
    """Nodes that are in all of these. There is one at least."""
    return reduce(and_, columns)


class Matcher(Protocol):
    """Pods that are counted. Equal ones are counted once."""

    @property
    def reads(self) -> tuple[str, ...] | None:
        """The labels that it looks at, beside a pod's namespace and whether it goes.

        None: it looks at nothing but what few pods have (ports, disks, terms), and takes none without.
        """
        ...

    def effort(self) -> int:
        """What it takes to look at one pod, in comparisons or so."""
        ...

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod counts."""
        ...


class Domains(msgspec.Struct, frozen=True):
    """Nodes by the value of a label: the number of the value by position, NO_DOMAIN without one; how many there are."""

    of: Ints
    count: int

    def sums(self, amounts: Ints) -> Ints:
        """What nodes have, added up by domain."""
        import numpy as np  # noqa: PLC0415 - lazily, as above

        is_in = self.of >= 0
        added = np.bincount(self.of[is_in], weights=amounts[is_in], minlength=self.count)
        return added.astype(np.int64)

    def at_nodes(self, of_domains: Ints) -> Ints:
        """What each node's domain has; 0 on nodes that are in none."""
        import numpy as np  # noqa: PLC0415 - lazily, as above

        found: Ints = np.append(of_domains, 0)[self.of]  # NO_DOMAIN is the last one
        return found

    @property
    def is_known(self) -> Bools:
        """Nodes that have the label."""
        known: Bools = self.of >= 0
        return known


NO_DOMAIN = -1
#: A look at a pod by a matcher is counted in comparisons; this many are an operation of about a microsecond.
COMPARISONS_PER_OPERATION: Final = 12
#: More pods than there are anywhere.
NO_LIMIT: Final = 1 << 60


class Counted(Protocol):
    """Nodes on which pods count for a rule, by what nodes are. Equal ones are found once."""

    def nodes(self, counts: Counts) -> Bools:
        """These nodes."""
        ...


class There(NamedTuple):
    """Some domains of a label: which they are, by number, and how many."""

    are: Bools
    domains: int


class Tally(Protocol):
    """How many pods are in each domain of a label, or on each node, as a decision has placed them so far."""

    @property
    def numbers(self) -> Ints:
        """By number of the domain, or by position. Not to be written."""
        ...

    @property
    def total(self) -> int:
        """In all of them."""
        ...

    @property
    def taken(self) -> int:
        """How many moves of its pods are counted: another number whenever one of them has come or gone."""
        ...

    @property
    def changed(self) -> Sequence[int]:
        """Domains in which a pod has come or gone so far, in order."""
        ...

    def catch_up(self) -> None:
        """Count what was moved since it was asked for."""
        ...

    def fewest(self, there: Bools) -> int:
        """The fewest in one of some domains, at least one, which are the same each time."""
        ...


class Counts(Protocol):
    """Pods on nodes, as a decision has placed them so far. Arrays are by position, and not to be written."""

    def tally(self, matcher: Matcher, key: str | None, counted: Counted | None = None) -> Tally:
        """How many pods of those that a matcher takes are in each domain of a label, on nodes that count.

        Without a label: on each node.
        """
        ...

    def domains(self, key: str) -> Domains:
        """The nodes by a label."""
        ...

    def members(self, key: str, domain: int) -> Ints:
        """Positions of the nodes in a domain of a label."""
        ...

    def are_there(self, key: str, counted: Counted) -> There:
        """Domains of a label that have a node that counts."""
        ...

    def admitted(self, filters: tuple[Filter, ...], constraints: Constraints) -> Bools:
        """Nodes that these filters admit."""
        ...

    def spend(self, operations: int) -> None:
        """Asking by these counts has cost this."""
        ...

    @property
    def of_pool(self) -> Bools:
        """Nodes of the scheduler's own node pool."""
        ...

    @property
    def labels_of(self) -> LabelsOf:
        """Labels of namespaces."""
        ...


class Watched(msgspec.Struct, frozen=True):
    """Pods whose coming (``comes``) or going (``goes``) may open a node for a class that a rule keeps off."""

    matcher: Matcher
    comes: bool = True
    goes: bool = True


class Asked(NamedTuple):
    """Pods that a matcher takes, by domain of a label or by node, on nodes that count; None: on all."""

    matcher: Matcher
    key: str | None
    counted: Counted | None = None


class Limits(NamedTuple):
    """A domain is out if it has fewer pods than ``least``, or more than ``most``."""

    least: int
    most: int


class Part(Protocol):
    """One term, constraint or set of a rule, as a class asks it: it closes domains of a label, or single nodes.

    ``key``: the label; None: each node alone. ``closes_others``: whether nodes without the label are out.
    """

    @property
    def key(self) -> str | None:
        """The label."""
        ...

    @property
    def closes_others(self) -> bool:
        """Whether nodes without the label are out."""
        ...

    @property
    def watched(self) -> Watched | None:
        """What may open a node, beside changes of nodes; None: nothing."""
        ...

    @property
    def counts(self) -> Asked | None:
        """The pods by which it closes domains, or single nodes; None: it closes none."""
        ...

    def limits(self, counts: Counts, tally: Tally) -> Limits:
        """Which numbers of them close one now. They change only when one of these pods comes or goes."""
        ...


class PodRule(Filter):
    """A filter about other pods."""

    def parts(self, cls: PodClass) -> tuple[Part, ...]:
        """What a class asks; a node is out if any part closes it."""
        raise NotImplementedError

    @override
    def asked(self, constraints: Constraints) -> None:
        """Nothing of a node alone."""
        del constraints

    @override
    def reads(self, node: NodeRecord) -> object:
        """The labels: they say in which domain a node is."""
        return node.labels


_NOBODY: Final = Limits(0, 0)


class AnyInDomain(msgspec.Struct, frozen=True):
    """Domains of a label with a pod that a matcher takes."""

    key: str
    matcher: Matcher

    @property
    def closes_others(self) -> bool:
        """A node without the label is in no domain."""
        return False

    @property
    def watched(self) -> Watched:
        """Such a pod that goes."""
        return Watched(self.matcher, comes=False)

    @property
    def counts(self) -> Asked:
        """Such pods."""
        return Asked(self.matcher, self.key)

    def limits(self, counts: Counts, tally: Tally) -> Limits:
        """One is too many."""
        del counts, tally
        return _NOBODY


class AnyOnNode(msgspec.Struct, frozen=True):
    """Nodes with a pod that a matcher takes."""

    matcher: Matcher

    @property
    def key(self) -> None:
        """Each node is judged alone."""
        return

    @property
    def closes_others(self) -> bool:
        """There are none."""
        return False

    @property
    def watched(self) -> Watched:
        """Such a pod that goes."""
        return Watched(self.matcher, comes=False)

    @property
    def counts(self) -> Asked:
        """Such pods."""
        return Asked(self.matcher, None)

    def limits(self, counts: Counts, tally: Tally) -> Limits:
        """One is too many."""
        del counts, tally
        return _NOBODY
