"""On which nodes a pod may be at all: readiness, taints, selectors, node affinity, volumes, cards, enforcement.

The judgement of one class on one node is a small number, so that a class's judgements are one row of an array, cached
by the hash of its constraints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from scheduler.core.model.records import Constraints, NodeRecord, Requirement, Term, VolumeRule
from wire import names
from wire.core import Taint, Toleration
from wire.goint import parse_int

OK = 0
NOT_READY = 1
CORDONED = 2
TAINT = 3
SELECTOR = 4
AFFINITY = 5
#: A row of the table that stands for no node.
NO_NODE = 6
CARDS = 7
ENFORCEMENT = 8
PLACE = 9
VOLUME_ZONE = 10
VOLUME_AFFINITY = 11
OTHERS = 12

#: Kinds of NodeReason by judgement.
KINDS = {
    NOT_READY: "not-ready",
    CORDONED: "cordoned",
    TAINT: "taint",
    SELECTOR: "selector",
    AFFINITY: "affinity",
    CARDS: "cards",
    ENFORCEMENT: "enforcement",
    PLACE: "place",
    VOLUME_ZONE: "volume-zone",
    VOLUME_AFFINITY: "volume-affinity",
    OTHERS: "others-anti-affinity",
}

#: Label of a zone or a region -> the one that has replaced it.
NEW_LABELS = {names.OLD_ZONE_LABEL: names.ZONE_LABEL, names.OLD_REGION_LABEL: names.REGION_LABEL}
ZONE_LABELS = frozenset({*NEW_LABELS, *NEW_LABELS.values()})

#: A list of values is gone through so much faster than all else.
_VALUES_PER_COMPARISON = 32

_BARRING = {"NoSchedule", "NoExecute"}
_CORDON = Taint(key=names.UNSCHEDULABLE_TAINT, effect="NoSchedule")


def judge(node: NodeRecord, constraints: Constraints) -> int:
    """Say whether a pod with these constraints may be on ``node``, else the first reason why not."""
    if not node.is_ready:
        return NOT_READY
    if node.is_cordoned and not tolerates(constraints.tolerations, _CORDON):
        return CORDONED
    if not all(tolerates(constraints.tolerations, t) for t in node.taints if t.effect in _BARRING):
        return TAINT
    if any(node.labels.get(key) != value for key, value in constraints.selector):
        return SELECTOR
    if constraints.terms is not None and not any(_holds(term, node) for term in constraints.terms):
        return AFFINITY
    return _judge_volumes(node, constraints.volumes) or _judge_gpus(node, constraints)


def _judge_volumes(node: NodeRecord, rules: Sequence[VolumeRule]) -> int:
    """Zones come first, as at kube-scheduler. A node without any label of a zone or a region is in all of them."""
    if rules and not ZONE_LABELS.isdisjoint(node.labels):
        for key, values in (zone for rule in rules for zone in rule.zones):
            if node.labels.get(key, node.labels.get(NEW_LABELS.get(key, key))) not in values:
                return VOLUME_ZONE
    for rule in rules:
        if rule.terms is not None and not any(_holds(term, node) for term in rule.terms):
            return VOLUME_AFFINITY
    return OK


def _judge_gpus(node: NodeRecord, constraints: Constraints) -> int:
    if not _has_cards(node, constraints):
        return CARDS
    if not {*constraints.enforced} <= {*node.enforces}:
        return ENFORCEMENT
    return OK if constraints.place is None or constraints.place.holds(node.labels) else PLACE


def effort(constraints: Constraints) -> int:
    """How much there is to look at for one node, in comparisons or so: what ``judge`` takes for it grows with this."""
    of_volumes = (rule.terms or () for rule in constraints.volumes)
    terms = (*(constraints.terms or ()), *chain.from_iterable(of_volumes))
    asked = sum(1 + sum(map(_effort_of, (*term.labels, *term.fields))) for term in terms)
    asked += sum(1 + len(rule.zones) for rule in constraints.volumes)
    cards = len(constraints.products) + len(constraints.not_products)
    place = constraints.place
    labels = 0 if place is None else len(place.labels) + sum(map(len, place.other_than))
    return 1 + len(constraints.selector) + asked + len(constraints.tolerations) + cards + labels


def _effort_of(requirement: Requirement) -> int:
    return 1 + len(requirement.values) // _VALUES_PER_COMPARISON


def _has_cards(node: NodeRecord, constraints: Constraints) -> bool:
    """Whether the node's cards are of a product that will do. Blanks and hyphens are one: labels can't hold blanks."""
    if not (constraints.products or constraints.not_products):
        return True
    product = _plain(node.labels.get(names.NODE_GPU_PRODUCT, ""))
    is_wanted = not constraints.products or any(_plain(part) in product for part in constraints.products)
    return bool(product) and is_wanted and not any(_plain(part) in product for part in constraints.not_products)


def _plain(product: str) -> str:
    return product.lower().replace(" ", "-")


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations matches the taint (core/v1 Toleration)."""
    return any(_matches(toleration, taint) for toleration in tolerations)


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in {"", "Equal"} and toleration.value == taint.value


def _holds(term: Term, node: NodeRecord) -> bool:
    if not term.labels and not term.fields:
        return False
    fields = {"metadata.name": node.name}
    return all(meets(r, node.labels) for r in term.labels) and all(meets(r, fields) for r in term.fields)


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Judge one expression; an operator that is not known holds nowhere."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    actual, bound = parse_int(value), parse_int(requirement.values[0])
    if actual is None or bound is None:
        return False
    return actual > bound if requirement.operator == "Gt" else actual < bound
