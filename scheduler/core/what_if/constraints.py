"""Family 4: the group without one of its constraints, or with one taint tolerated. One at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from scheduler.core.decide.changes import AnotherAsk, Change
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.filters.taints import tolerates
from scheduler.core.model.pod_class import PodClass
from scheduler.core.what_if.asking import Finding, about
from scheduler.core.what_if.edit import Family, NotPossible
from scheduler.core.what_if.subject import Subject
from scheduler.core.what_if.trying import Trying
from wire.core import Taint, Toleration

#: Keys of a selector, and taints, that are tried singly.
_MOST_KEYS: Final = 16
_MOST_TAINTS: Final = 8
_BARRING: Final = frozenset({"NoSchedule", "NoExecute"})
_SELECTOR: Final = "nodeSelector"


class Without(msgspec.Struct, frozen=True):
    """The pods lack this field of their spec. ``key``: of a nodeSelector, "" for all of it."""

    field: str
    key: str = ""

    @property
    def family(self) -> Family:
        """Family 4."""
        return Family.WITHOUT_CONSTRAINT

    @property
    def is_own(self) -> bool:
        """It concerns the group alone."""
        return True

    def spelled(self) -> str:
        """``without nodeSelector zone``."""
        return f"without {self.field} {self.key}".rstrip()

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put the pods that have it with another class. Raises NotPossible if none has it."""
        del snapshot
        found = [
            AnotherAsk(uids, other)
            for cls, uids in subject.classes().items()
            if (other := _without(cls, self.field, self.key)) != cls
        ]
        if not found:
            there = sorted({edit.spelled() for cls in subject.classes() for edit in _constraints(cls)})
            allowed = f"allowed: {'; '.join(there)}" if there else "it has no constraint that can be left out"
            raise NotPossible(f"{self.spelled()}: {subject.namespace}/{subject.name} has no such constraint; {allowed}")
        return tuple(found)


class Tolerating(msgspec.Struct, frozen=True):
    """The pods tolerate a taint of nodes."""

    taint: Taint

    @property
    def family(self) -> Family:
        """Family 4."""
        return Family.WITHOUT_CONSTRAINT

    @property
    def is_own(self) -> bool:
        """It concerns the group alone."""
        return True

    def spelled(self) -> str:
        """``tolerate dedicated=ml:NoSchedule``."""
        value = f"={self.taint.value}" if self.taint.value else ""
        return f"tolerate {self.taint.key}{value}:{self.taint.effect}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put all pods with another class."""
        del snapshot
        taint = self.taint
        tolerated = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        found = []
        for cls, uids in subject.classes().items():
            constraints = msgspec.structs.replace(
                cls.constraints, tolerations=(*cls.constraints.tolerations, tolerated)
            )
            found.append(AnotherAsk(uids, msgspec.structs.replace(cls, constraints=constraints)))
        return tuple(found)


def candidates(trying: Trying) -> Finding:
    """Find edits that help."""
    there = dict.fromkeys(edit for cls in trying.subject.classes() for edit in _constraints(cls))
    tried: list[Without | Tolerating] = [*there, *_taints(trying.snapshot, trying.subject)]
    for edit in tried:
        if (yield about(trying, edit)):
            yield edit


# --- what there is ---------------------------------------------------------------------------------------------------
def _constraints(cls: PodClass) -> Iterator[Without]:
    for key, _ in cls.constraints.selector[:_MOST_KEYS]:
        yield Without(_SELECTOR, key)
    if len(cls.constraints.selector) > 1:
        yield Without(_SELECTOR)
    for field, drop in _DROPS.items():
        if drop(cls) != cls:
            yield Without(field)


def _without(cls: PodClass, field: str, key: str) -> PodClass:
    if field == _SELECTOR:
        kept = tuple(pair for pair in cls.constraints.selector if key and pair[0] != key)
        return _constrained(cls, selector=kept)
    if field not in _DROPS or key:
        raise NotPossible(f"without {field} {key}".rstrip() + f": allowed: {', '.join(FIELDS)}, nodeSelector KEY")
    return _DROPS[field](cls)


def _constrained(cls: PodClass, **fields: object) -> PodClass:
    return msgspec.structs.replace(cls, constraints=msgspec.structs.replace(cls.constraints, **fields))


def _ruled(cls: PodClass, **fields: object) -> PodClass:
    if cls.rules is None:
        return cls
    rules = msgspec.structs.replace(cls.rules, **fields)
    is_left = rules.affinity or rules.anti_affinity or rules.spread or rules.ports
    return msgspec.structs.replace(cls, rules=rules if is_left else None)


_DROPS: Final[dict[str, Callable[[PodClass], PodClass]]] = {
    "nodeAffinity": lambda cls: _constrained(cls, terms=None),
    "podAffinity": lambda cls: _ruled(cls, affinity=()),
    "podAntiAffinity": lambda cls: _ruled(cls, anti_affinity=()),
    "topologySpreadConstraints": lambda cls: _ruled(cls, spread=()),
    "hostPorts": lambda cls: _ruled(cls, ports=()),
    "gpuProducts": lambda cls: _constrained(cls, products=(), not_products=()),
    "gpuUUIDs": lambda cls: msgspec.structs.replace(cls, uuids=(), not_uuids=()),
}
#: What can be left out.
FIELDS: Final = (_SELECTOR, *_DROPS)


def _taints(snapshot: Snapshot, subject: Subject) -> list[Tolerating]:
    """The taints that most nodes have and a pod of the group does not tolerate."""
    classes = subject.classes()
    found: Counter[Taint] = Counter()
    for node in snapshot.ledger.nodes:
        for taint in () if node is None else node.taints:
            if taint.effect in _BARRING and not all(tolerates(cls.constraints.tolerations, taint) for cls in classes):
                found[taint] += 1
    order = sorted(found.items(), key=lambda item: (-item[1], item[0].key, item[0].value, item[0].effect))
    return [Tolerating(taint) for taint, _ in order[:_MOST_TAINTS]]
