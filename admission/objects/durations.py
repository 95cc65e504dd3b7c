"""Durations in specs of Queues and PodGroups: what Go can't read, KAI's webhooks can't decode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from admission.objects.findings import Finding, Rule
from wire import goduration, names


def broken_durations(**said: str | None) -> Iterator[Finding]:
    """Yield each that can't be read, by the name of its field below ``spec``; None: it is absent."""
    for field, value in said.items():
        if value is not None and not _is_duration(value):
            yield Finding(rule=Rule.DURATION, field=f"spec.{field}", value=value)


def broken_patience(annotations: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the patience of a Queue, if it is there and can't be read: the scheduler would go by its own."""
    value = annotations.get(names.PATIENCE)
    if value is not None and not _is_duration(value):
        yield Finding(rule=Rule.DURATION, field=f"metadata.annotations[{names.PATIENCE}]", value=value)


def _is_duration(text: str) -> bool:
    try:
        goduration.parse_ns(text)
    except goduration.MalformedDuration:
        return False
    return True
