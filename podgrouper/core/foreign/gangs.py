"""Gangs that pods ask for in the words of another scheduler, and the PodGroup each becomes here (docs/grouping.md).

A gang is a PodGroup of that scheduler, named by the pod, or is defined by its pods, which say the minimum themselves.
Words that are not translated are refused: a pod that asks for a gang is never started alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gpu.translation import shown
from podgrouper.core import fields
from podgrouper.core.answers import Code, Json, Refusal, Refused, Shape
from podgrouper.core.foreign import coscheduling, koordinator, upstream, volcano
from podgrouper.core.owner_chain import named
from podgrouper.core.rule_input import Case, Kind
from podgrouper.core.rules import alone
from wire import names
from wire.gangs import (
    ALL,
    COSCHEDULING_GROUP,
    KOORDINATOR_LEAST,
    KOORDINATOR_NAME,
    SIGS_GROUP,
    SIGS_LEAST,
    SIGS_NAME,
    VOLCANO_GROUP,
    VOLCANO_LEAST,
    VOLCANO_OWN_GROUP,
)

#: What Kubernetes takes as the name of an object.
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST_NAME: Final = 253

LABEL, ANNOTATION, SPEC = "metadata.labels", "metadata.annotations", "spec"
#: Place, and name; in the spec a path.
Word = tuple[str, str]
_UPSTREAM: Final[Word] = (SPEC, "schedulingGroup.podGroupName")
#: Kubernetes 1.35, where the Workload has the group.
_UPSTREAM_BEFORE: Final[Word] = (SPEC, "workloadRef.name")
Written = Mapping[Word, str]
_ALL: Final = frozenset(ALL)
#: Reads the PodGroup of the other scheduler, for one pod of it.
Rule = Callable[[Json, Case], Shape]


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How one system asks. ``names``: words that name the gang. ``least``: those that state the minimum on the pod.

    ``api_group``, ``version``: those of the system's PodGroup. ``beside``: words that mean nothing beside these.
    """

    system: str
    names: tuple[Word, ...]
    api_group: str
    version: str
    rule: Rule
    least: tuple[Word, ...] = ()
    beside: tuple[Word, ...] = ()


class Gang(msgspec.Struct, frozen=True):
    """The gang of a pod. ``field``: where the pod names it. ``least``: the minimum, if the pod states it."""

    form: Form
    name: str
    field: str
    least: int | None = None
    least_field: str = ""


FORMS: Final[tuple[Form, ...]] = (
    Form(
        system="kubernetes",
        names=(_UPSTREAM,),
        api_group="scheduling.k8s.io",
        version="v1alpha2",
        rule=upstream.shape,
    ),
    Form(
        system="coscheduling",
        names=((LABEL, COSCHEDULING_GROUP),),
        api_group="scheduling.x-k8s.io",
        version="v1alpha1",
        rule=coscheduling.shape,
    ),
    Form(
        system="volcano",
        names=((ANNOTATION, VOLCANO_GROUP), (ANNOTATION, VOLCANO_OWN_GROUP)),
        api_group="scheduling.volcano.sh",
        version="v1beta1",
        rule=volcano.shape,
        # Volcano reads it on owners, and only for pods that name no PodGroup.
        beside=((ANNOTATION, VOLCANO_LEAST),),
    ),
    Form(
        system="koordinator",
        names=(
            (ANNOTATION, KOORDINATOR_NAME),
            (LABEL, SIGS_GROUP),
            (LABEL, SIGS_NAME),
        ),
        api_group="scheduling.sigs.k8s.io",
        version="v1alpha1",
        rule=koordinator.shape,
        least=((LABEL, SIGS_LEAST), (ANNOTATION, KOORDINATOR_LEAST)),
    ),
)
_SYSTEMS: Final = ", ".join(form.system for form in FORMS)
#: API version and kind of what rules read.
OBJECTS: Final = frozenset({(f"{form.api_group}/{form.version}", "PodGroup") for form in FORMS})


def gang_of(pod: Json) -> Gang | None:
    """Return the gang that a pod asks for; None if for none. Raises Refused for what is not translated."""
    written = _written(pod)
    if not written:
        return None
    gangs = list(_gangs(pod, written))
    known = {word for gang in gangs[:1] for word in (*gang.form.names, *gang.form.least, *gang.form.beside)}
    # Of several systems, the word that names the other gang is among those that are left.
    for word, text in written.items():
        if word not in known:
            raise fields.not_carried_out(pod, _field(word), text, f"one gang, in words of one of {_SYSTEMS}")
    return gangs[0] if gangs else None


def asks(pod: Json) -> bool:
    """Whether a pod asks for a gang in such words, translated or not."""
    return bool(_written(pod))


def key_of(pod: Json) -> str:
    """Return what pods of one gang of a namespace have in common; "" for no gang, and for what is refused."""
    try:
        gang = gang_of(pod)
    except Refused:
        return ""
    return f"{gang.form.system} {gang.name}" if gang else ""


def _gangs(pod: Json, written: Written) -> Iterator[Gang]:
    for form in FORMS:
        found = [(word, written[word]) for word in form.names if word in written]
        if not found:
            continue
        (word, name), *more = found
        for other, text in more:
            if text != name:
                raise fields.malformed(pod, _field(other), text, f"{shown(name)}, as {_field(word)} says")
        if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
            raise fields.malformed(pod, _field(word), name, f"the name of an object, up to {_LONGEST_NAME} characters")
        least = next((each for each in form.least if each in written), None)
        if least is None:
            yield Gang(form, name, _field(word))
        else:
            number = fields.read_count(pod, _field(least), written[least])
            yield Gang(form, name, _field(word), number, _field(least))


def _written(pod: Json) -> Written:
    """Return the words of a pod, in the order in which a refusal names them. Every pod of the cluster comes by here."""
    found: dict[Word, str] = {}
    for place in (LABEL, ANNOTATION):
        texts = fields.at(pod, place)
        if isinstance(texts, Mapping) and not _ALL.isdisjoint(texts):
            found |= {(place, name): texts[name] for name in ALL if isinstance(texts.get(name), str)}
    upstream_words = {word: fields.text(pod, f"{SPEC}.{word[1]}") for word in (_UPSTREAM, _UPSTREAM_BEFORE)}
    if any(upstream_words.values()) and fields.annotations_of(pod).get(names.IGNORE_WORKLOAD_API) != "true":
        found |= upstream_words
    return {word: text for word, text in found.items() if text}


def _field(word: Word) -> str:
    place, name = word
    return f"{place}.{name}" if place == SPEC else f"{place}[{name}]"


_LEAST, _QUEUE, _PRIORITY = "minimum", "queue", "priorityClass"


def said(gang: Gang, *, queue: str, priority: str) -> str:
    """Return what a pod says of its gang, as text that is equal for pods that agree."""
    found = {"name": gang.name, _LEAST: gang.least, _QUEUE: queue, _PRIORITY: priority}
    return json.dumps({key: value for key, value in found.items() if value not in {None, ""}}, sort_keys=True)


def difference(pod: Json, own: str, first: str) -> Refusal | None:
    """Return why a pod that says ``own`` is not of the gang that says ``first``; None if it is.

    What the first pod of a gang says is kept on its PodGroup (annotation ``moorage.dev/foreign-gang``) until the
    PodGroup is deleted. A pod that says something else is refused: it neither joins nor changes the gang. Only what
    pods and their owners say is compared; the PodGroup of the other scheduler is one for all of them.
    """
    if own == first:
        return None
    mine, theirs = _read(own), _read(first)
    for key in (_LEAST, _QUEUE, _PRIORITY):
        if mine.get(key) != theirs.get(key):
            return _refusal(pod, _said_field(pod, key), mine.get(key), theirs.get(key))
    return _refusal(pod, names.FOREIGN_GANG, own, first)


def _said_field(pod: Json, key: str) -> str:
    gang = gang_of(pod) if key == _LEAST else None
    return gang.least_field if gang is not None and gang.least_field else key


def _refusal(pod: Json, field: str, value: object, first: object) -> Refusal:
    allowed = f"{_shown(first)}, as the gang's first pod says"
    about = fields.about(pod)
    return Refusal(code=Code.GANG_DIFFERS, about=about, field=field, value=_shown(value), allowed=allowed)


def _read(text: str) -> Mapping[str, Any]:
    """Read such a text; of one that somebody has spoilt nothing."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _shown(value: object) -> str:
    return "absent" if value is None else shown(str(value))


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
        gang = gang_of(pod)
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
