"""Foreign gangs of pods in files, with the PodGroups of other schedulers beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from podgrouper.core import fields, owner_chain
from podgrouper.core.answers import Code, Group, Json, Nothing, Refusal
from podgrouper.core.foreign import gangs
from podgrouper.core.grouping import group
from podgrouper.core.owner_chain import Absent, Read
from wire import names
from wire.crds.podgroup import PodGroup

#: A PodGroup of another scheduler, and nothing else, is read for a pod.
_MOST_READS: Final = 2


class Gangs:
    """Gangs of several files. All PodGroups are noted first."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str], Json] = {}
        #: What the first pod of each gang has said, by namespace and PodGroup of ours.
        self._said: dict[tuple[str, str], str] = {}

    def note(self, obj: Json, namespace: str) -> bool:
        """Note an object if it is a PodGroup of another scheduler; return whether it is one."""
        key = (fields.text(obj, "apiVersion"), fields.text(obj, "kind"))
        if key not in gangs.OBJECTS:
            return False
        # What is stored has its namespace.
        meta = {**fields.mapping(obj, "metadata"), "namespace": namespace}
        self._groups[key[0].partition("/")[0], namespace, fields.text(obj, "metadata.name")] = {**obj, "metadata": meta}
        return True

    def answer(self, pod: Json, namespace: str, *, owner: Json | None = None) -> Group | Refusal | None:
        """Return the PodGroup of a pod's gang, or why it has none; None if the pod asks for no gang by such words.

        ``owner``: what makes the pod, where that is known.
        """
        written = fields.annotations_of(pod)
        if written.get(names.POD_GROUP_NAME) or not gangs.asks(pod):
            return None
        stored, owners = _stored(pod, namespace, owner)
        read: dict[tuple[str, str, str], Json | Absent] = {}
        answer = group(stored, Read(owners, read))
        for _ in range(_MOST_READS):
            if not isinstance(answer, Refusal) or answer.code is not Code.NOT_READ or answer.needed is None:
                break
            api_group = answer.needed.api_version.partition("/")[0]
            there = self._groups.get((api_group, namespace, answer.needed.name))
            read[api_group, answer.needed.kind, answer.needed.name] = Absent.NOT_FOUND if there is None else there
            answer = group(stored, Read(owners, read))
        if isinstance(answer, Nothing) or (isinstance(answer, Group) and not said_of(answer.pod_group)):
            # Its workload states how many start together.
            return None
        return self._agreed(stored, answer, namespace) if isinstance(answer, Group) else answer

    def grouped(self, pod: Json, namespace: str, *, owner: Json) -> Group | Nothing | Refusal:
        """Return what becomes of a pod that an owner makes, as far as files tell: its controller adds labels."""
        stored, owners = _stored(pod, namespace, owner)
        return group(stored, Read(owners))

    def _agreed(self, pod: Json, answer: Group, namespace: str) -> Group | Refusal:
        said = said_of(answer.pod_group)
        first = self._said.setdefault((namespace, answer.pod_group.metadata.name), said)
        return gangs.difference(pod, said, first) or answer


def said_of(made: PodGroup) -> str:
    """Return what a pod said of its foreign gang, "" of a PodGroup of another origin."""
    return (made.metadata.annotations or {}).get(names.FOREIGN_GANG, "")


def _stored(pod: Json, namespace: str, owner: Json | None) -> tuple[Json, Mapping[str, Json]]:
    """Return a pod as the API server would have it, and its owner by UID."""
    meta: dict[str, Any] = {**fields.mapping(pod, "metadata"), "namespace": namespace, "uid": "pod"}
    meta["name"] = meta.get("name") or str(meta.get("generateName") or "").rstrip("-") or "pod"
    meta.pop("ownerReferences", None)
    if owner is None:
        return {**pod, "kind": "Pod", "metadata": meta}, {}
    owners = _chain(owner, namespace)
    direct = next(iter(owners.values()))
    reference = msgspec.to_builtins(owner_chain.reference_to(direct))
    return {**pod, "kind": "Pod", "metadata": {**meta, "ownerReferences": [reference]}}, owners


def _chain(owner: Json, namespace: str) -> dict[str, Json]:
    """Return an owner as the API server would have it, by UID; of a CronJob a Job that it makes comes first."""
    written = fields.at(owner, "metadata")
    meta = {**(written if isinstance(written, Mapping) else {}), "namespace": namespace, "uid": "owner"}
    meta.pop("ownerReferences", None)
    stored = {**owner, "metadata": meta}
    if (fields.text(owner, "apiVersion").partition("/")[0], fields.text(owner, "kind")) != ("batch", "CronJob"):
        return {"owner": stored}
    written, spec = (fields.at(owner, f"spec.jobTemplate.{field}") for field in ("metadata", "spec"))
    of_job: dict[str, Any] = {"name": meta.get("name"), "namespace": namespace, "uid": "job"}
    # Of the template's metadata a Job gets no more.
    copied = {field: each for field in ("labels", "annotations") if (each := fields.at(written, field))}
    of_job |= {**copied, "ownerReferences": [msgspec.to_builtins(owner_chain.reference_to(stored))]}
    return {
        "job": {"apiVersion": "batch/v1", "kind": "Job", "metadata": of_job, "spec": spec},
        "owner": stored,
    }
