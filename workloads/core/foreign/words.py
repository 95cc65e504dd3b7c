"""Which gang a pod asks for in the words of another scheduler (docs/grouping.md).

A gang is a PodGroup of that scheduler, named by the pod, or is defined by its pods, which say the minimum themselves.
Words that are not translated are refused: a pod that asks for a gang is never started alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from gpu.refusal import shown
from wire import gangwords, names
from workloads.core import fields
from workloads.core.case import Case
from workloads.core.foreign import coscheduling, koordinator, upstream, volcano
from workloads.core.values import Json, Refused, Shape

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
_ALL: Final = frozenset(gangwords.ALL)
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
        names=((LABEL, gangwords.COSCHEDULING_GROUP),),
        api_group="scheduling.x-k8s.io",
        version="v1alpha1",
        rule=coscheduling.shape,
    ),
    Form(
        system="volcano",
        names=((ANNOTATION, gangwords.VOLCANO_GROUP), (ANNOTATION, gangwords.VOLCANO_OWN_GROUP)),
        api_group="scheduling.volcano.sh",
        version="v1beta1",
        rule=volcano.shape,
        # Volcano reads it on owners, and only for pods that name no PodGroup.
        beside=((ANNOTATION, gangwords.VOLCANO_LEAST),),
    ),
    Form(
        system="koordinator",
        names=(
            (ANNOTATION, gangwords.KOORDINATOR_NAME),
            (LABEL, gangwords.SIGS_GROUP),
            (LABEL, gangwords.SIGS_NAME),
        ),
        api_group="scheduling.sigs.k8s.io",
        version="v1alpha1",
        rule=koordinator.shape,
        least=((LABEL, gangwords.SIGS_LEAST), (ANNOTATION, gangwords.KOORDINATOR_LEAST)),
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
            found |= {(place, name): texts[name] for name in gangwords.ALL if isinstance(texts.get(name), str)}
    upstream_words = {word: fields.text(pod, f"{SPEC}.{word[1]}") for word in (_UPSTREAM, _UPSTREAM_BEFORE)}
    if any(upstream_words.values()) and fields.annotations_of(pod).get(names.IGNORE_WORKLOAD_API) != "true":
        found |= upstream_words
    return {word: text for word, text in found.items() if text}


def _field(word: Word) -> str:
    place, name = word
    return f"{place}.{name}" if place == SPEC else f"{place}[{name}]"
