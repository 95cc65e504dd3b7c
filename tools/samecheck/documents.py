"""The documents of a manifest that both sides can take, and why others are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from simulator.controllers.pods import child
from simulator.manifests import admitted_by_kueue
from simulator.nodes.containers import RUN_S
from wire import names

Json = Mapping[str, Any]


#: Of metadata: what simulate takes out, since it is true only where the object is stored.
_STORED: Final = frozenset({"ownerReferences", "resourceVersion", "uid"})


def items(documents: Iterable[object]) -> Iterator[Json]:
    """Yield the objects of documents, those of Lists one by one; containers that end do so after a second."""
    for document in documents:
        if isinstance(document, Mapping):
            yield from items(document.get("items") or ()) if document.get("kind") == "List" else (_brief(document),)


def _brief(value: Any) -> Any:
    """Return a value with "1" as the time that simulated containers run: a cluster really takes that time."""
    if isinstance(value, Mapping):
        return {key: "1" if key == RUN_S else _brief(each) for key, each in value.items()}
    return [*map(_brief, value)] if isinstance(value, list) else value


def adopted(value: Any) -> Any:
    """Return an object whose pods name Moorage's scheduler, as ``simulate --adopt-all`` takes those without a node."""
    if not isinstance(value, Mapping):
        return [*map(adopted, value)] if isinstance(value, list) else value
    made = {key: adopted(each) for key, each in value.items()}
    is_spec = isinstance(made.get("containers"), list) and not made.get("nodeName")
    return {**made, "schedulerName": names.SCHEDULER_NAME} if is_spec else made


def left_out(document: Json, serves: Callable[[Json], bool]) -> str:
    """Return why neither side gets an object, "" for one that both get."""
    kind, meta = document.get("kind"), document.get("metadata")
    if not kind or not isinstance(meta, Mapping):
        return "no object of Kubernetes"
    is_scheduled = kind == "CronJob" and not child(document.get("spec"), "suspend")
    is_held_back = admitted_by_kueue(document) is not document
    reasons = (
        (not serves(document), f"of {document.get('apiVersion')}: this control plane does not serve it"),
        (kind in {"CustomResourceDefinition", "Node"}, "is part of a cluster, not of a workload"),
        (is_scheduled, "makes pods at its time, and simulate at once"),
        (is_held_back, "of a Kueue queue: Kueue does not run here, and simulate takes it as admitted"),
        (not _STORED.isdisjoint(meta), "with an owner or version: simulate creates it as new, and a cluster does not"),
    )
    return next((f"{kind} {why}" for is_so, why in reasons if is_so), "")
