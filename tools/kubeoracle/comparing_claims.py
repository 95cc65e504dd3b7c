"""Devices for claims as Moorage allocates them, beside kube-scheduler's allocator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from scheduler.core.claims.allocation import allocate
from scheduler.core.claims.cel import compile_selector
from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.claims.inventory import Inventory
from scheduler.core.convert.devices import device_class_record, slice_record, taint_rule_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.model.devices import DeviceRefusal
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import NodeRecord
from tools.kubeoracle.drawing_claims import FEATURES, draw
from tools.kubeoracle.program import Answer, Oracle, Question
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

#: kube-scheduler ends its attempt where devices asked for with ``All`` break a constraint; other ways are tried here.
_ENDS_ATTEMPT: Final = "because a claim constraint would not be satisfied"
_AT_ONCE: Final = 16


@dataclass(slots=True)
class FoundClaims:
    """What was compared: nodes with and without devices, in all and by feature; and in what the answers differ."""

    let_in: Counter[str] = field(default_factory=Counter)
    kept_out: Counter[str] = field(default_factory=Counter)
    #: Nodes where kube-scheduler ended its attempt and a way was found here.
    went_on: int = 0
    differences: list[str] = field(default_factory=list)

    def one_sided(self) -> list[str]:
        """Features with which every node had devices, or none."""
        return [each for each in FEATURES if not self.let_in[each] or not self.kept_out[each]]


def ours(question: Question) -> dict[str, str]:
    """Of each node why it has no devices, "" if it has."""
    asked = question["devices"]
    inventory = Inventory(lambda _: None, read_changed=lambda: None, compiler=compile_selector)
    inventory.rules.replace(
        taint_rule_record(each) for each in msgspec.convert(asked.get("rules", []), list[DeviceTaintRule])
    )
    inventory.slices.replace(slice_record(each) for each in msgspec.convert(asked["slices"], list[ResourceSlice]))
    classes = msgspec.convert(asked["classes"], list[DeviceClass])
    inventory.classes.replace(device_class_record(each) for each in classes)
    taken = Taken()
    for claim in msgspec.convert(asked["allocated"], list[ResourceClaim]):
        record = resource_claim_record(claim)
        taken.put(record.uid, record.allocation.results if record.allocation is not None else ())
    records = [resource_claim_record(each) for each in msgspec.convert(asked["claims"], list[ResourceClaim])]
    needs = [record.need for record in records if record.need is not None]
    if len(needs) < len(records):
        return dict.fromkeys((each["metadata"]["name"] for each in question["nodes"]), "not read")
    found = {}
    for node in map(_node, question["nodes"]):
        answer = allocate(needs, node, inventory.view(), taken)
        found[node.name] = f"{answer.code.name} {answer.detail}" if isinstance(answer, DeviceRefusal) else ""
    return found


def _node(written: dict[str, Any]) -> NodeRecord:
    return NodeRecord(
        name=written["metadata"]["name"],
        uid="",
        labels=written["metadata"]["labels"],
        taints=(),
        is_ready=True,
        is_cordoned=False,
        capacity=Demand(),
        pods=110,
    )


def run(oracle: Oracle, seeds: Iterable[int], *, answer: Callable[[Question], dict[str, str]] = ours) -> FoundClaims:
    """Compare the snapshots of these seeds."""
    found, numbers = FoundClaims(), list(seeds)
    for start in range(0, len(numbers), _AT_ONCE):
        batch = [(seed, *draw(seed)) for seed in numbers[start : start + _AT_ONCE]]
        for (seed, question, features), theirs in zip(batch, oracle.ask([q for _, q, _ in batch]), strict=True):
            _compare(found, seed, answer(question), theirs)
            for name in answer(question):
                side = found.let_in if name in (theirs.feasible or ()) else found.kept_out
                side.update(["", *features])
    return found


def _compare(found: FoundClaims, seed: int, mine: dict[str, str], theirs: Answer) -> None:
    for name, why in mine.items():
        is_in = name in (theirs.feasible or ())
        if is_in == (not why):
            continue
        reason = (theirs.why or {}).get(name)
        texts = " ".join((reason.reasons if reason is not None else None) or ())
        if not why and _ENDS_ATTEMPT in texts:
            found.went_on += 1
        else:
            found.differences.append(f"snapshot {seed}, node {name}: here {why or 'in'}, there {texts or 'in'}")
