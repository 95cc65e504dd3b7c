"""Foreign gangs of pods in files, with the PodGroups of other schedulers beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from podgrouper.core import fields
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
    of_owner = {**fields.mapping(owner, "metadata"), "namespace": namespace, "uid": "owner"}
    of_owner.pop("ownerReferences", None)
    api_version, kind = fields.text(owner, "apiVersion"), fields.text(owner, "kind")
    reference = {"apiVersion": api_version, "kind": kind, "name": fields.text(owner, "metadata.name"), "uid": "owner"}
    meta = {**meta, "ownerReferences": [reference]}
    return {**pod, "kind": "Pod", "metadata": meta}, {"owner": {**owner, "metadata": of_owner}}
