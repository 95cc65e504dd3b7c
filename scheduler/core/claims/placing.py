"""Nodes on which an allocated claim can be used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler.core.model.device_record import DevicePlace
from scheduler.core.model.pod_class import Requirement, Term

_NAME: Final = "metadata.name"


def terms_of(places: Iterable[DevicePlace]) -> tuple[Term, ...] | None:
    """Where all devices with these places can be used, as node terms; None: everywhere.

    A device of one node decides alone. Selectors of others are joined; each has one term (resource/v1).
    """
    labels: dict[Requirement, None] = {}
    fields: dict[Requirement, None] = {}
    for place in places:
        if place.node:
            return (Term((), (Requirement(_NAME, "In", (place.node,)),)),)
        for term in place.terms or ():
            labels.update(dict.fromkeys(term.labels))
            fields.update(dict.fromkeys(term.fields))
    return (Term(tuple(labels), tuple(fields)),) if labels or fields else None
