"""What admission would say of Queues and PodGroups in manifests; the other queues are those of the same files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from admission.objects.findings import Finding, Judgement, Refused, Rule
from admission.objects.others import Others
from admission.objects.podgroup import MOST_SUB_GROUPS, judge_group, sub_groups, too_many
from admission.objects.queue import judge_written
from admission.objects.reading import read
from admission.objects.texts import told
from cli.podfiles import Placed
from cli.suspicions import Level
from gpu.refusal import shown
from wire.crds.podgroup import DEFINITION as POD_GROUP
from wire.crds.podgroup import PodGroup
from wire.crds.queue import DEFINITION as QUEUE
from wire.crds.queue import Queue

_KINDS: Final = {(f"{each.group}/{each.version}", each.kind): each.type for each in (QUEUE, POD_GROUP)}


class Said(msgspec.Struct, frozen=True):
    """One finding of one object. ``namespace``: "" for a Queue, which has none."""

    placed: Placed
    namespace: str
    name: str
    level: Level
    code: str
    field: str
    text: str


def said_of_objects(objects: Sequence[Placed]) -> Iterator[Said]:
    """Yield the findings of all Queues and PodGroups, in the order of the files."""
    found = [(each, kind, _read(each.item, kind)) for each in objects if (kind := _kind(each.item)) is not None]
    queues = Others(one for _, _, one in found if isinstance(one, Queue))
    for placed, _, one in found:
        yield from _said(placed, _judged(one, queues))


def count(objects: Sequence[Placed]) -> dict[str, int]:
    """Return how many objects of each kind are judged, kinds that are there only."""
    kinds = [kind.__name__ for each in objects if (kind := _kind(each.item)) is not None]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def _kind(item: Mapping[str, Any]) -> type[msgspec.Struct] | None:
    version, kind = item.get("apiVersion"), item.get("kind")
    return _KINDS.get((version, kind)) if isinstance(version, str) and isinstance(kind, str) else None


def _read(item: Mapping[str, Any], kind: type[msgspec.Struct]) -> msgspec.Struct:
    """The name and spec: other fields of a manifest are not judged."""
    if kind is PodGroup and (number := sub_groups(item)) > MOST_SUB_GROUPS:
        return too_many(number)
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return read({"metadata": {} if name is None else {"name": name}, "spec": item.get("spec")}, kind)


def _judged(one: msgspec.Struct, queues: Others) -> Judgement:
    if isinstance(one, Queue):
        return judge_written(one, old=None, others=queues)
    if isinstance(one, PodGroup):
        return judge_group(one, old=None)
    return Refused((one,)) if isinstance(one, Finding) else Refused(())


def _said(placed: Placed, judgement: Judgement) -> Iterator[Said]:
    metadata = placed.item.get("metadata")
    named: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    namespace = str(named.get("namespace") or "default") if placed.item["kind"] == POD_GROUP.kind else ""
    about = (placed, shown(namespace), shown(str(named.get("name") or "(no name)")))
    if isinstance(judgement, Refused):
        for each in judgement.findings:
            yield Said(*about, "error", each.rule.value, each.field, told(each))
    for each in judgement.warnings:
        if each.rule is Rule.PARENT_NOT_FOUND:
            text = f"{each.field} names the Queue {each.words['parent']}, which is in none of the files"
            yield Said(*about, "note", each.rule.value, each.field, text)
        else:
            yield Said(*about, "warning", each.rule.value, each.field, told(each))
