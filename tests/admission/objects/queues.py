"""Queues for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from admission.objects.queue import Others
from tests.admission.pods import review
from wire.crds.queue import Queue

Raw = dict[str, Any]
API_VERSION = "scheduling.run.ai/v2"


def raw(name: str, parent: str = "", *, resources: Any = None, **spec: Any) -> Raw:
    """A Queue as it is written; ``resources``: {} if not given."""
    named = {"parentQueue": parent} if parent else {}
    about: Raw = {"name": name}
    said = {**named, "resources": {} if resources is None else resources, **spec}
    return {"apiVersion": API_VERSION, "kind": "Queue", "metadata": about, "spec": said}


def queue(
    name: str, parent: str = "", *, is_leaving: bool = False, annotations: Raw | None = None, **spec: Any
) -> Queue:
    """The same, decoded."""
    made = raw(name, parent, **spec)
    made["metadata"]["annotations"] = annotations
    if is_leaving:
        made["metadata"]["deletionTimestamp"] = "2026-11-24T00:00:00Z"
    return msgspec.convert(made, Queue)


def beside(*queues: Queue) -> Others:
    return Others(queues)


def gpus(quota: float = 0, limit: float = -1) -> Raw:
    """What a queue may have of GPUs."""
    return {"gpu": {"quota": quota, "limit": limit}}


def raw_group(*parts: Raw, **spec: Any) -> Raw:
    """A PodGroup as it is written."""
    about: Raw = {"name": "g", "namespace": "team-a"}
    said = {**spec, "subGroups": list(parts)}
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": about, "spec": said}


def group_review(obj: Raw | None, *, operation: str = "CREATE", old: Raw | None = None) -> Raw:
    return queue_review(obj, operation=operation, old=old, namespace="team-a")


def queue_review(obj: Raw | None, *, operation: str = "CREATE", old: Raw | None = None, namespace: str = "") -> Raw:
    made = review(obj, operation=operation, old=old, namespace=namespace)
    shown = obj or old or {}
    made["request"]["name"] = (shown.get("metadata") or {}).get("name", "")
    return made
