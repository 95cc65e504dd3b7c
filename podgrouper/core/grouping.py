"""From a pod and its owners to its PodGroup (as in KAI). Pure: what has to be read is asked for by a refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from podgrouper.core import fields, generic, kueue, owner_chain
from podgrouper.core.answers import Group, Json, Nothing, Refusal, Refused, Shape, Why
from podgrouper.core.foreign import gangs
from podgrouper.core.generic import Default, Defaults
from podgrouper.core.kinds import kind_of
from podgrouper.core.owner_chain import Read
from podgrouper.core.projection import LAST_APPLIED
from podgrouper.core.rule_input import Case, Kind, Makes, Name, Top
from podgrouper.core.rules import alone
from wire import names
from wire.core import ObjectMeta, OwnerReference
from wire.crds.podgroup import DEFINITION, PodGroup, PodGroupSpec

_TRUE: Final = "true"
_NO_DEFAULT: Final = Default()
_NO_DEFAULTS: Final = Defaults()


def group(pod: Json, read: Read, defaults: Defaults = _NO_DEFAULTS) -> Group | Nothing | Refusal:
    """Return the PodGroup that ``pod`` belongs to, or why it has none. Nothing is raised for what users write."""
    try:
        return _group(pod, read, defaults)
    except Refused as refused:
        return refused.refusal


def _group(pod: Json, read: Read, defaults: Defaults) -> Group | Nothing:
    chain = owner_chain.chain(pod, read)
    if any(fields.annotations_of(obj).get(names.SKIP_POD_GROUPER) == _TRUE for obj in (pod, *chain)):
        return Nothing(Why.SKIPPED)
    is_by_hand = bool(fields.annotations_of(pod).get(names.POD_GROUP_NAME)) and not gangs.names_own(pod)
    if is_by_hand and not fields.mappings(pod, "metadata.ownerReferences"):
        return Nothing(Why.GROUPED_BY_HAND)
    top, kind = _top(pod, chain)
    if gangs.asks(pod) and not gangs.has_own(kind, top):
        case = Case(pod, top, chain, kind, read)
        return Nothing(Why.GROUPED_BY_HAND) if is_by_hand else _foreign(case, defaults)
    if kind.makes is Makes.WHEN_ASKED and not generic.states_more(top, pod):
        return Nothing(Why.ALONE)
    case = Case(pod, top, chain, kind, read)
    shape = (kind.rule or alone.shape)(case) if kind.name is Name.BY_OWNER else Shape(minimum=1)
    shape = kueue.placed(case, shape)
    fields.check(top, shape.parts)
    return Group(_pod_group(case, shape, defaults), shape.part, shape.knows_own_only)


def _foreign(case: Case, defaults: Defaults) -> Group:
    """Return the PodGroup of the gang that a pod asks for in the words of another scheduler."""
    gang = gangs.gang_of(case.pod)
    if gang is None:
        raise AssertionError("a pod that asks for a gang has one, or is refused")
    # One PodGroup for all of them, of every kind of owner.
    case = msgspec.structs.replace(case, kind=msgspec.structs.replace(case.kind, name=Name.BY_OWNER))
    shape = kueue.placed(case, gangs.shape(gang, case))
    fields.check(shape.owner or case.top, shape.parts)
    made = _pod_group(case, shape, defaults)
    said = gangs.said(
        gang, queue=generic.queue_said(case.top, case.pod), priority=generic.priority_said(case.top, case.pod)
    )
    annotations = {**(made.metadata.annotations or {}), names.FOREIGN_GANG: said}
    meta = msgspec.structs.replace(made.metadata, annotations=annotations)
    if case.top is case.pod:
        # What the first of several pods bears beside is not said of the others.
        own = fields.annotations_of(case.pod)
        rest = {name: text for name, text in annotations.items() if name not in own}
        labels = generic.pool_labels(case.top, case.pod) or None
        meta = msgspec.structs.replace(meta, labels=labels, annotations=rest)
    return Group(msgspec.structs.replace(made, metadata=meta), shape.part)


def _top(pod: Json, chain: Sequence[Json]) -> tuple[Json, Kind]:
    """Return what stands for the workload, and its row. Objects above it that are skipped lend it their metadata."""
    above: list[Json] = []
    for obj in [*reversed(chain), pod]:
        row = _row(obj, pod)
        if row.top is Top.SKIP and obj is not pod:
            above.append(obj)
            continue
        return _with_metadata_of(obj, above), row
    raise AssertionError("a pod is never skipped")


def _row(obj: Json, pod: Json) -> Kind:
    version, kind = fields.text(obj, "apiVersion"), fields.text(obj, "kind")
    rows = kind_of("v1", "Pod") if obj is pod else kind_of(version, kind)
    written = fields.labels_of(pod)
    return next(row for row in rows if all(written.get(label) for label in row.pod_labels))


def _with_metadata_of(obj: Json, above: Sequence[Json]) -> Json:
    """Return an object with the labels and annotations of those above it where it lacks them; the nearest one wins."""
    if not above:
        return obj
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for each in (*above, obj):
        labels |= fields.labels_of(each)
        annotations |= fields.annotations_of(each)
    meta = fields.mapping(obj, "metadata")
    return {**obj, "metadata": {**meta, "labels": labels, "annotations": annotations}}


def _pod_group(case: Case, shape: Shape, defaults: Defaults) -> PodGroup:
    pod, top, kind = case.pod, case.top, case.kind
    owner = pod if kind.name is Name.BY_POD else shape.owner or top
    reference = owner_chain.reference_to({"apiVersion": "v1", "kind": "Pod", **owner} if owner is pod else owner)
    chosen = defaults.kinds.get((kind.api_group, kind.kind), _NO_DEFAULT)
    default = chosen.priority or kind.priority
    priority = generic.priority_of(top, pod, own=shape.priority, defaults=defaults, default=default)
    spec = PodGroupSpec(
        min_member=shape.minimum if shape.min_parts is None else None,
        min_sub_group=shape.min_parts,
        queue=generic.queue_of(top, pod, defaults, own=shape.queue),
        priority_class_name=priority,
        preemptibility=generic.preemptibility_of(top, pod, chosen.preemptibility),
        preemption_delay=generic.duration_of(top, pod, names.PREEMPTION_DELAY),
        staleness_grace_period=generic.duration_of(top, pod, names.STALENESS_GRACE_PERIOD),
        topology_constraint=shape.topology or generic.topology_of(top),
        sub_groups=list(shape.parts) or None,
    )
    meta = ObjectMeta(
        name=_name(case, shape, reference),
        namespace=fields.text(pod, "metadata.namespace"),
        labels={**fields.labels_of(top), **generic.pool_labels(top, pod)} or None,
        annotations=_with_least(_annotations(top, pod, reference), case, shape),
        owner_references=[reference],
    )
    return PodGroup(
        api_version=f"{DEFINITION.group}/{DEFINITION.version}", kind=DEFINITION.kind, metadata=meta, spec=spec
    )


def _name(case: Case, shape: Shape, owner: OwnerReference) -> str:
    if shape.name:
        return shape.name
    if case.kind.name is Name.BY_LABEL:
        return fields.labels_of(case.pod)[case.kind.pod_labels[-1]]
    return f"pg-{owner.name}-{owner.uid}{shape.suffix}"


def _annotations(top: Json, pod: Json, owner: OwnerReference) -> dict[str, str]:
    group, _, version = owner.api_version.rpartition("/")
    said: Mapping[str, str] = {
        "name": owner.name, "uid": owner.uid, "group": group, "version": version, "kind": owner.kind
    }  # fmt: skip
    # Any text in JSON's quotes is text in YAML as well.
    written = "".join(f"{key}: {json.dumps(value)}\n" for key, value in said.items())
    user = fields.labels_of(top).get(names.USER_LABEL) or fields.labels_of(pod).get(names.USER_LABEL, "")
    kept = {key: value for key, value in fields.annotations_of(top).items() if not _is_own(key)}
    return {**kept, names.TOP_OWNER_METADATA: written, **({names.USER_LABEL: user} if user else {})}


def _with_least(annotations: dict[str, str], case: Case, shape: Shape) -> dict[str, str]:
    """Return the annotations of a PodGroup with its own minimum: a larger one of its workload keeps its pods waiting.

    One pod of a Deployment is a group, as in KAI, so what the Deployment says is none of it.
    """
    if case.kind.name is Name.BY_POD:
        return {name: text for name, text in annotations.items() if name != names.BATCH_MIN_MEMBER}
    asked = fields.annotated_count(case.top, names.BATCH_MIN_MEMBER)
    least = shape.minimum if shape.min_parts is None else shape.min_parts
    if asked is None or least is None or asked <= max(1, least):
        return annotations
    return {**annotations, names.BATCH_MIN_MEMBER: str(max(1, least))}


def _is_own(annotation: str) -> bool:
    """Whether an annotation of a workload is none of its PodGroup: kubectl's copy, and what Moorage writes there."""
    return annotation in {LAST_APPLIED, names.STALE_SINCE} or annotation.startswith(names.MOORAGE_PREFIX)
