"""The device book: who holds which share of one physical device. Arithmetic only, no I/O.

The book is the annotation ``moorage.dev/tenants`` of a reservation pod, so that every change of it is one
compare-and-set on that pod's resourceVersion (docs/design/protocol.md, steps Join and Leave). An entry says which
pod, how much, for which attempt, and at which resourceVersion the pod was read: the only one its Binding may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from gpu.share import MOST_TENANTS, NANO_PER_DEVICE, PERCENT_PER_DEVICE
from wire import names


class Entry(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """One tenant's charge, ``nano`` > 0.

    ``since``, whole seconds of the joining process's wall clock, tells people when it joined. Nothing compares it: wall
    clocks may be wrong, so how long an entry has been there counts from when it was first seen
    (binder/collect/book_repair.py).
    """

    nano: int
    attempt: str
    rv: str
    since: int
    #: "namespace/name" of the pod, so that a reader of the book can find it (identity is the UID, the key).
    pod: str
    #: The pod's grace period: how long its containers may outlive it when it vanishes. It can't be changed any more.
    grace_s: int = 30
    #: How it runs on the device (gpu/translation.py, Wishes), "" for any: two modes never meet in a book.
    mode: str = ""
    #: How much of the device's compute it asks, 0 for none: all that is asked is 100 at most.
    compute_percent: int = 0
    #: How much of the device's memory it may use, where that is to be enforced (gpu/limits.py): in MiB, or as a
    #: part of the device. Both 0: no cap. Versions without these fields can't read a book that has them.
    cap_mib: int = 0
    cap_nano: int = 0


class Tenant(msgspec.Struct, frozen=True, gc=False):
    """An entry with its key: the pod's UID.

    ``is_bound``: it is on the device already, so its mode and its compute are facts, and no reason to leave it out.
    ``resource``: of which kind of device it is to have a part.
    """

    pod_uid: str
    entry: Entry
    is_bound: bool = False
    resource: str = names.GPU_RESOURCE


class Book(msgspec.Struct, frozen=True, gc=False):
    """All tenants of one device by pod UID. The sum of ``nano`` is at most one device in every book ever written.

    They are MOST_TENANTS at most: with more, a card could not keep what it promises of its memory (gpu/share.py).
    """

    entries: Mapping[str, Entry] = {}

    @property
    def total_nano(self) -> int:
        """Sum of all charges."""
        return sum(entry.nano for entry in self.entries.values())

    @property
    def free_nano(self) -> int:
        """What is left of the device."""
        return NANO_PER_DEVICE - self.total_nano

    @property
    def free_compute_percent(self) -> int:
        """Compute that nobody asks yet; below 0 where somebody else has put its tenants together."""
        return PERCENT_PER_DEVICE - sum(entry.compute_percent for entry in self.entries.values())

    @property
    def modes(self) -> frozenset[str]:
        """Modes of its tenants, those left out that run in any."""
        return frozenset(entry.mode for entry in self.entries.values() if entry.mode)


EMPTY = Book()


class MalformedBook(ValueError):
    """Raised when the annotation is not a book: the reservation is then treated as foreign, nobody may join it."""


class DeviceFull(msgspec.Struct, frozen=True, gc=False):
    """The join would charge more than the device has, or make more tenants than a book may have."""

    asked_nano: int
    free_nano: int


class OtherAttempt(msgspec.Struct, frozen=True, gc=False):
    """The pod already has an entry under another attempt. It is never overwritten and never adopted."""

    pod_uid: str
    attempt: str


class ModeConflict(msgspec.Struct, frozen=True, gc=False):
    """The tenant would run in another mode than those that are there."""

    asked: str
    there: str


class ComputeTaken(msgspec.Struct, frozen=True, gc=False):
    """The tenant asks for more of the device's compute than is left."""

    asked_percent: int
    free_percent: int


#: Why tenants were not entered.
NotEntered: TypeAlias = DeviceFull | OtherAttempt | ModeConflict | ComputeTaken

_decoder = msgspec.json.Decoder(dict[str, Entry])


def parse(text: str | None) -> Book:
    """Read a book from its annotation; no annotation is an empty book.

    Raises MalformedBook for anything that is not a book, a charge that is not positive or a sum above one device.
    """
    if not text:
        return EMPTY
    try:
        book = Book(_decoder.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedBook(str(error)) from error
    if any(entry.nano <= 0 for entry in book.entries.values()):
        raise MalformedBook("a charge is not positive")
    if any(not 0 <= entry.compute_percent <= PERCENT_PER_DEVICE for entry in book.entries.values()):
        raise MalformedBook(f"compute asked is not 0 to {PERCENT_PER_DEVICE} percent")
    if any(not (entry.cap_mib >= 0 and 0 <= entry.cap_nano <= NANO_PER_DEVICE) for entry in book.entries.values()):
        raise MalformedBook(f"a memory cap is not 0 to {NANO_PER_DEVICE} nano-GPU, or below 0 MiB")
    if book.total_nano > NANO_PER_DEVICE:
        raise MalformedBook(f"charges sum to {book.total_nano} nano-GPU, a device has {NANO_PER_DEVICE}")
    return book


def render(book: Book) -> str:
    """Write the annotation: sorted by pod UID, so that equal books are equal texts."""
    return msgspec.json.encode(dict(sorted(book.entries.items()))).decode()


def join(book: Book, tenants: Iterable[Tenant]) -> Book | NotEntered:
    """Add tenants, all or none. Joining again under the same attempt is idempotent (the entry there is kept)."""
    entries = dict(book.entries)
    modes, free_percent = set(book.modes), book.free_compute_percent
    for tenant in tenants:
        known = entries.get(tenant.pod_uid)
        if known is not None and known.attempt != tenant.entry.attempt:
            return OtherAttempt(tenant.pod_uid, known.attempt)
        if known is not None:
            continue
        asked = tenant.entry
        if asked.mode and not tenant.is_bound and modes - {asked.mode}:
            return ModeConflict(asked.mode, min(modes - {asked.mode}))
        if asked.compute_percent > max(free_percent, 0) and not tenant.is_bound:
            return ComputeTaken(asked.compute_percent, max(free_percent, 0))
        modes.update({asked.mode} - {""})
        free_percent -= asked.compute_percent
        entries[tenant.pod_uid] = asked
    joined = Book(entries)
    is_crowded = len(entries) > max(MOST_TENANTS, len(book.entries))
    if joined.total_nano > NANO_PER_DEVICE or is_crowded:
        added = joined.total_nano - book.total_nano
        return DeviceFull(asked_nano=added, free_nano=book.free_nano)
    return joined


def leave(book: Book, tenants: Iterable[Tenant]) -> Book:
    """Remove exactly these (pod UID, attempt, rv); an entry that differs in either stays."""
    entries = dict(book.entries)
    for tenant in tenants:
        known = entries.get(tenant.pod_uid)
        if known is not None and (known.attempt, known.rv) == (tenant.entry.attempt, tenant.entry.rv):
            del entries[tenant.pod_uid]
    return Book(entries)


def renew(book: Book, tenant: Tenant, rv: str) -> Book | None:
    """Move our own entry from exactly the old ``rv`` to the new one; None when it is not there any more."""
    known = book.entries.get(tenant.pod_uid)
    if known is None or (known.attempt, known.rv) != (tenant.entry.attempt, tenant.entry.rv):
        return None
    return Book({**book.entries, tenant.pod_uid: msgspec.structs.replace(known, rv=rv)})


def lower(book: Book, nano_of: Mapping[str, int]) -> Book:
    """Lower charges, by pod UID, to what the pods are bound with. No charge is ever raised."""
    entries = {
        uid: msgspec.structs.replace(entry, nano=nano_of[uid]) if 0 < nano_of.get(uid, 0) < entry.nano else entry
        for uid, entry in book.entries.items()
    }
    return Book(entries)
