"""The fields of a Queue, each alone: amounts, weights, priority and durations.

What is refused here closes a queue in the scheduler: it never counts as another value (docs/design, batch 3.1). KAI
refuses none of it, except for durations, which its webhook can't decode.
"""

from __future__ import annotations

from collections.abc import Iterator

from admission.objects.durations import broken_durations, broken_patience
from admission.objects.findings import Finding, Rule, Word
from admission.objects.others import said_of
from wire.crds.queue import TOO_MANY_UNITS, UNITS, UNLIMITED, WEIGHT_UNITS, Queue, QueueResource, counted


def broken_fields(queue: Queue) -> Iterator[Finding]:
    """Yield what is wrong with each field, in the order of the fields in the schema."""
    spec = queue.spec
    for name, units in UNITS.items():
        yield from _broken_resource(name, said_of(queue, name), units)
    if spec.priority is not None and not -(2**63) <= spec.priority < 2**63:
        yield Finding(rule=Rule.PRIORITY, field="spec.priority", value=_digits(spec.priority))
    yield from broken_durations(preemptMinRuntime=spec.preempt_min_runtime, reclaimMinRuntime=spec.reclaim_min_runtime)
    yield from broken_patience(queue.metadata.annotations or {})


def _broken_resource(name: str, said: QueueResource, units: int) -> Iterator[Finding]:
    for field, value in (("quota", said.quota), ("limit", said.limit)):
        if value is not None and value != UNLIMITED and counted(value, units) is None:
            yield _finding(Rule.AMOUNT, f"{name}.{field}", value, units)
    weight = said.over_quota_weight
    if weight is not None and counted(weight, WEIGHT_UNITS) is None:
        yield _finding(Rule.WEIGHT, f"{name}.overQuotaWeight", weight, WEIGHT_UNITS)


def _finding(rule: Rule, field: str, value: float, units: int) -> Finding:
    words: dict[str, Word] = {"name": field.replace(".", " "), "most": (TOO_MANY_UNITS - 1) // units}
    return Finding(rule=rule, field=f"spec.resources.{field}", value=repr(value), words=words)


def _digits(number: int) -> str:
    """The number, if it is not so large that Python refuses to write it."""
    return str(number) if abs(number) < 10**40 else "a number of more than 40 digits"
