"""From a gang of another scheduler to the shape of its PodGroup here."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from gpu.refusal import shown
from wire import names
from workloads.core import fields
from workloads.core.case import Case, Kind
from workloads.core.foreign import koordinator, words
from workloads.core.foreign.words import Gang
from workloads.core.rules import alone
from workloads.core.values import Code, Json, Refusal, Refused, Shape
from workloads.core.walk import named

_LONGEST_NAME: Final = 253
_DIGEST_BYTES: Final = 8


def has_own(kind: Kind, top: Json) -> bool:
    """Whether a workload itself says how many of its pods start together: that counts, as with KAI."""
    own = kind.rule not in {None, alone.shape}
    return own or fields.annotated_count(top, names.BATCH_MIN_MEMBER) is not None


def shape(gang: Gang, case: Case) -> Shape:
    """Return the shape that all pods of a gang have in common, and the part of this one. Raises Refused."""
    if gang.least is not None:
        koordinator.check(case.pod, gang.name)
        found = Shape(minimum=gang.least)
    else:
        group = _object(gang, case)
        found = msgspec.structs.replace(gang.form.rule(group, case), owner=group)
    return msgspec.structs.replace(found, name=name_of(gang))


def names_own(pod: Json) -> bool:
    """Whether the PodGroup that a pod names is that of its gang, which is made again when it was deleted."""
    try:
        gang = words.gang_of(pod)
    except Refused:
        return False
    return gang is not None and fields.annotations_of(pod).get(names.POD_GROUP_NAME) == name_of(gang)


def name_of(gang: Gang) -> str:
    """Return the name of the PodGroup: it follows from the gang's alone, so that all pods find the same one."""
    name = f"pg-{gang.form.system}-{gang.name}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{name[: _LONGEST_NAME - len(digest) - 1].rstrip('.-')}-{digest}"


def _object(gang: Gang, case: Case) -> Json:
    group = named(case.read, gang.form.api_group, "PodGroup", gang.name, version=gang.form.version)
    if group is None:
        raise Refused(
            Refusal(code=Code.NOT_FOUND, about=f"PodGroup {shown(gang.name)} of {gang.form.api_group}, {gang.field},")
        )
    return {**group, "apiVersion": f"{gang.form.api_group}/{gang.form.version}", "kind": "PodGroup"}
