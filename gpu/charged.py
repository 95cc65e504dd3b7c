"""What a bound pod counts for in its queue, as it was when the pod was placed (docs/design/queues.md).

The Binding writes it in one annotation (``moorage.dev/charged``), which an admission policy guards from then on. Labels
of the pod and its PodGroup are a tenant's to change: they change what is placed later, and nothing that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Final

import msgspec

from wire import names

#: Texts and values that are kept: pods of one queue have the same.
_KEPT: Final = 1024
#: The longest text that one of ours can have: a queue and a node pool, each with the longest name of an object.
_LONGEST: Final = 1024


class Charged(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The queue, whether the pod may be preempted, and the node pool whose queue it is, "" for the one without a name.

    ``pool`` None: the cluster was not divided, so labels say of which one the pod is if it is divided later. The
    priority is not repeated: the API server lets nobody change that of a pod.
    """

    queue: str
    is_preemptible: bool = msgspec.field(name="preemptible")
    pool: str | None = None


_decoder: Final = msgspec.json.Decoder(Charged)


@lru_cache(maxsize=_KEPT)
def charged(queue: str, pool: str | None, *, is_preemptible: bool) -> Charged:
    """Return the one value of these fields."""
    return Charged(intern(queue), is_preemptible, pool)


def written(what: Charged | None) -> dict[str, str]:
    """Return the annotation of a pod that was placed for this."""
    return {} if what is None else {names.CHARGED: msgspec.json.encode(what).decode()}


def read(annotations: Mapping[str, str] | None) -> Charged | None:
    """Read what a bound pod was placed for; None without it, or if it can't be read: then the pod's labels count."""
    text = annotations.get(names.CHARGED) if annotations else None
    return _parsed(text) if text and len(text) <= _LONGEST else None


@lru_cache(maxsize=_KEPT)
def _parsed(text: str) -> Charged | None:
    try:
        found = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return charged(found.queue, found.pool, is_preemptible=found.is_preemptible) if found.queue else None
