"""Reads what ResourceClaims get from a cluster, with the rights of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kube.client.api import Api
from kube.client.errors import NotFound
from kube.client.resources import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from scheduler.core.convert.devices import device_class_record, slice_record, taint_rule_record
from scheduler.core.convert.resource_claims import resource_claim_record
from ui.inspect.reader import allowed
from ui.queues.count import Devices

_FREE: Final = "which devices ResourceClaims may have"
#: With what each is good for, in the order in which they are read: a claim after what it may name.
_KINDS: Final[tuple[tuple[Resource[Any], Callable[[Any], Any], str], ...]] = (
    (DEVICE_CLASSES, device_class_record, _FREE),
    (DEVICE_TAINT_RULES, taint_rule_record, "which devices are tainted, if the scheduler follows them"),
    (RESOURCE_SLICES, slice_record, _FREE),
    (RESOURCE_CLAIMS, resource_claim_record, "which devices are taken"),
)


async def read(api: Api, unread: list[str]) -> Devices | None:
    """Read all kinds; None where one but the rules may not be read: then nothing true can be said of claims.

    ``unread`` takes what could not be read. Raises ApiError.
    """
    found: dict[str, Sequence[Any] | None] = {}
    for resource, record, what in _KINDS:

        async def read_kind(resource: Resource[Any] = resource, record: Callable[[Any], Any] = record) -> None:
            found[resource.plural] = await _records(api, resource, record, unread)

        await allowed(read_kind, f"{resource.plural} ({what})", unread)
    if not {each.plural for each in (DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS)} <= found.keys():
        return None
    rules = DEVICE_TAINT_RULES.plural
    may_read, serves = rules in found, found.get(rules, ()) is not None
    return Devices(
        classes=found[DEVICE_CLASSES.plural] or (),
        slices=found[RESOURCE_SLICES.plural] or (),
        claims=found[RESOURCE_CLAIMS.plural] or (),
        rules=found[rules] or () if may_read else None,
        serves_rules=serves,
    )


async def _records(
    api: Api, resource: Resource[Any], record: Callable[[Any], Any], unread: list[str]
) -> Sequence[Any] | None:
    """All of a kind; None where the cluster does not know it."""
    try:
        listing = await api.digest(resource, record)
    except NotFound:
        return None
    unread += [f"{resource.kind.lower()} {one.key}: {one.error}" for one in listing.undecoded]
    return listing.items
