"""S9: when all work is gone, nothing that was made for it is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator import facts
from simulator.facts import Json
from wire import names


def leftovers(*, pods: Iterable[Json], requests: Iterable[Json], config_maps: Iterable[Json]) -> Iterator[str]:
    """Yield what is ours among the objects that are left."""
    for raw in pods:
        if facts.pod(raw).is_reservation:
            yield f"reservation pod {_place(raw)}"
        elif raw["metadata"].get("namespace") == names.SCALE_ADJUST_NAMESPACE:
            yield f"scaling pod {_place(raw)}"
        elif names.BOOK_FINALIZER in (raw["metadata"].get("finalizers") or ()):
            yield f"our finalizer on pod {_place(raw)}"
    for raw in requests:
        yield f"BindRequest {_place(raw)}"
    for raw in config_maps:
        if facts.is_handover(raw):
            yield f"ConfigMap {_place(raw)}"


def _place(raw: Json) -> str:
    metadata = raw["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
