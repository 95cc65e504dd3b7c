"""Claims that could not be bound, as text beside the record of intents: a new leader knows what the last one knew.

A text of its own, under a key of its own: a scheduler that does not know it reads the intents as before. What can't be
read counts for nothing, and is named for the log. UIDs are written as in the record (written.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from scheduler.core.model.preemption import FailedClaim
from scheduler.core.room.written import long, short

#: The ConfigMap's key that has the text.
KEY: Final = "claims"
#: The most claims that are written, those that failed last. The text takes 45 KiB then.
MOST: Final = 1_000
_MOST_TIMES: Final = 1 << 31
#: Numbers of JSON are exact below.
_MOST_S: Final = 1 << 53
_decoder: Final = msgspec.json.Decoder(dict[str, Any])


def written(claims: Mapping[str, FailedClaim]) -> str:
    """Claims by UID as text, those that failed last at the end; "" for none."""
    last = islice(claims.items(), max(0, len(claims) - MOST), None)
    return msgspec.json.encode({short(uid): tuple(failed) for uid, failed in last}).decode() if claims else ""


def read(text: str) -> tuple[dict[str, FailedClaim], tuple[str, ...]]:
    """What a text says, and what of it could not be read, in words. Nothing in it raises."""
    if not text:
        return {}, ()
    try:
        said = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return {}, (f"claims: nothing can be read: {error}",)
    found, unread = dict[str, FailedClaim](), list[str]()
    for uid, each in islice(said.items(), MOST):
        try:
            found[long(uid)] = _failed(each)
        except ValueError as error:
            unread.append(f"claims: {uid!r:.80}: {error}")
    return found, tuple(unread)


def joined(claims: Iterable[Mapping[str, FailedClaim]]) -> dict[str, FailedClaim]:
    """What several know together: of each claim the last failure, those that failed last at the end."""
    found: dict[str, FailedClaim] = {}
    for known in claims:
        for uid, failed in known.items():
            found[uid] = max(failed, found.get(uid, failed), key=lambda each: (each.last_s, each.times))
    return dict(sorted(found.items(), key=lambda item: item[1].last_s))


def _failed(said: Any) -> FailedClaim:
    is_pair = isinstance(said, list) and len(said) == 2 and all(type(each) is int for each in said)
    if not is_pair or not 1 <= said[0] < _MOST_TIMES or not 0 <= said[1] < _MOST_S:
        raise ValueError(f"{said!r:.80}; allowed: a number of times, 1 and above, and a time in seconds")
    return FailedClaim(*said)
