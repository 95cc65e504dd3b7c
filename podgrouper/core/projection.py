"""What grouping reads of a pod and of its owners. No more than that is kept in memory."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Any, Final

import msgspec

from podgrouper.core import fields, kueue, owner_chain
from podgrouper.core.answers import Json
from podgrouper.core.foreign import gangs as words
from podgrouper.core.kinds import OTHER, kind_of
from podgrouper.core.rules import alone, aml, stateful
from wire import gangs, names
from wire.core import ObjectMeta, OwnerReference, Pod

#: A namespace, and what pods of it have in common.
Key = tuple[str, str]
#: The apiVersion and kind of owners.
FollowedKind = tuple[str, str]
#: kubectl's copy of the whole object, which may have 256 KiB.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_LONGEST_NAME: Final = 253
_META: Final = ("name", "namespace", "uid", "labels", "ownerReferences")


def pod_as_read(pod: Pod) -> dict[str, Any]:
    """Return what the rules read of a pod, as JSON: metadata, fields of the spec, variables that a rule asks for."""
    spec: dict[str, Any] = {
        "priorityClassName": pod.spec.priority_class_name,
        "nodeName": pod.spec.node_name,
        "schedulingGroup": pod.spec.scheduling_group,
        "workloadRef": pod.spec.workload_ref,
    }
    containers = [
        {"env": [{"name": each.name, "value": each.value} for each in found]}
        for container in pod.spec.containers
        if (found := [each for each in container.env or () if each.name == aml.NODE_COUNT])
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(_plain(pod.metadata)),
        "spec": {
            **{key: text for key, text in spec.items() if text},
            **({"containers": containers} if containers else {}),
        },
    }


def fingerprint(pod: Json) -> int:
    """Return a number that changes with what decides on a pod's group. That the pod was bound decides on nothing."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return hash(msgspec.json.encode({**pod, "spec": spec}, order="sorted"))


def key_of(pod: Json) -> Key:
    """Return what pods have in common that are grouped together, in their namespace.

    That is the gang that they name in another scheduler's words, else their owner by all of its identity. A pod of
    several owners, or with a reference that no object can have, is refused, and shares that with no other pod.
    """
    namespace = fields.text(pod, "metadata.namespace")
    if gang := words.key_of(pod):
        return namespace, gang
    if (owner := owner_chain.only_owner(pod)) is None:
        return namespace, f"Pod {fields.text(pod, 'metadata.name')} {fields.text(pod, 'metadata.uid')}"
    return key_below(owner, namespace)


def key_below(owner: OwnerReference, namespace: str) -> Key:
    """Return what the pods of an owner have in common that ask for no gang of another scheduler."""
    group, _, _ = owner.api_version.rpartition("/")
    return namespace, f"{owner.kind}.{group} {owner.name} {owner.uid}"


def followed_kind(api_version: str, kind: str) -> FollowedKind | None:
    """Return a kind of owners that changes are followed of: of the table, and no pod; None for any other one."""
    known = kind_of(api_version, kind)
    is_followed = known != [OTHER] and (api_version, kind) != ("v1", "Pod")
    return (intern(api_version), intern(kind)) if is_followed else None


def owner_kind(pod: Json) -> FollowedKind | None:
    """Return the kind of a pod's owner, if changes of such owners are followed."""
    owner = owner_chain.only_owner(pod)
    return None if owner is None else followed_kind(owner.api_version, owner.kind)


def owner_as_read(obj: Json) -> dict[str, Any]:
    """Return what the rules read of an owner: its metadata, and its spec where the rule of its kind needs that.

    Of the spec of any other kind only what its template asks for in Kueue's annotations is kept, what that needs, and
    how many pods there are at a time; of the status only how many pods of a Job have succeeded.
    """
    api_version, kind = fields.text(obj, "apiVersion"), fields.text(obj, "kind")
    kept: dict[str, Any] = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": _metadata(fields.mapping(obj, "metadata")),
    }
    if needs_spec(api_version, kind) and obj.get("spec") is not None:
        kept["spec"] = obj["spec"]
    elif spec := {**kueue.as_read(fields.at(obj, "spec")), **_policy(obj), **_counts(obj, api_version, kind)}:
        kept["spec"] = spec
    if (api_version, kind) == ("batch/v1", "Job") and (succeeded := fields.at(obj, "status.succeeded")):
        kept["status"] = {"succeeded": succeeded}
    return kept


def _policy(obj: Json) -> dict[str, Any]:
    policy = fields.at(obj, "spec.podManagementPolicy")
    return {} if policy is None else {"podManagementPolicy": policy}


def _counts(obj: Json, api_version: str, kind: str) -> dict[str, Any]:
    """Return the fields of a spec that say how many pods there are at a time: an owner above may ask for a gang."""
    counted = alone.COUNTED.get((api_version, kind), ())
    return {field: found for field in counted if (found := fields.at(obj, f"spec.{field}")) is not None}


def needs_spec(api_version: str, kind: str) -> bool:
    """Whether more than the metadata of an owner of this kind is read: its rule's fields; of a leader pod, its node."""
    rules = {row.rule for row in kind_of(api_version, kind)}
    return bool(rules - {None, alone.shape, stateful.shape}) or (api_version, kind) in _READ_BY_OTHERS


#: Kinds without a rule of their own whose spec the rule of a kind above them, or beside them, reads.
_READ_BY_OTHERS: Final = words.OBJECTS | {("v1", "Pod"), ("scheduler.grove.io/v1alpha1", "PodGang")}


def _plain(meta: ObjectMeta) -> Json:
    plain: Json = msgspec.to_builtins(meta)
    return plain


def _metadata(meta: Json) -> dict[str, Any]:
    kept = {key: meta[key] for key in _META if meta.get(key)}
    annotations = meta.get("annotations")
    if isinstance(annotations, Mapping):
        own = {key: text for key, text in annotations.items() if key != LAST_APPLIED}
        kept |= {"annotations": own} if own else {}
    return kept


def group_of(pod: Json) -> str:
    """Return the name of the PodGroup that a pod names; "" if it names none. Of what is too long to be one, enough."""
    return fields.annotations_of(pod).get(names.POD_GROUP_NAME, "")[: _LONGEST_NAME + 1]


def told_group(pod: Json) -> str:
    """Return the PodGroup that admission names on a pod, which knows nothing of what stands above its owner."""
    owners = fields.mappings(pod, "metadata.ownerReferences")
    return gangs.told_group(owners, fields.labels_of(pod), fields.annotations_of(pod), fields.mapping(pod, "spec"))
