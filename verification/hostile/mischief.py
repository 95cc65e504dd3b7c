"""Mischief: what users may do that helps nobody, what they forge, and what administrators do with things not theirs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from verification.hostile.actions import (
    Action,
    ChangePodGroup,
    CreatePod,
    DeleteBindRequest,
    DeletePodGroup,
    DeleteReservation,
    EditPod,
    EvictPod,
)
from wire import names

#: (annotation, value): asks that nobody can grant, or even read.
MALFORMED: Final = (
    (names.GPU_FRACTION, "abc"),
    (names.GPU_FRACTION, "1.5"),
    (names.GPU_FRACTION, "0"),
    (names.GPU_FRACTION, "-0.5"),
    (names.GPU_FRACTION, "NaN"),
    (names.GPU_FRACTION, "0,5"),
    (names.GPU_FRACTION, ""),
    (names.GPU_MEMORY, "0"),
    (names.GPU_MEMORY, "-1"),
    (names.GPU_MEMORY, "10Gi"),
    (names.GPU_MEMORY, "1e3"),
    (names.GPU_FRACTION_NUM_DEVICES, "0"),
    (names.GPU_FRACTION_NUM_DEVICES, "two"),
    (names.GPU_FRACTION_NUM_DEVICES, "99999999999999999999"),
    (names.GPU_FRACTION_CONTAINER_NAME, "nobody"),
)
#: Keys that only the scheduler and the binder write, with values that would help who forged them.
FORGED_ANNOTATIONS: Final = {
    names.GRANT: '{"attempt":"x","devices":[]}',
    names.GPU_PORTION_ANNOTATION: "0.01",
    f"{names.VISIBLE_DEVICES_PREFIX}c0": "all",
    names.RECEIVED_RESOURCE_TYPE: names.RECEIVED_FRACTION,
    names.FENCED: "x",
    names.TENANTS: "{}",
}
FORGED_LABELS: Final = {names.GPU_GROUP_LABEL: "mine", f"{names.MULTI_GPU_GROUP_LABEL_PREFIX}mine": "mine"}
#: Edits after placement that would free on paper what is still used.
SHRINKING: Final = ((names.GPU_FRACTION, "0.01"), (names.GPU_MEMORY, "1"), (names.GPU_FRACTION, None))


def forged(rng: random.Random, pod: CreatePod) -> CreatePod:
    """The same pod with keys that are not its maker's to write."""
    annotations = {**pod.annotations, **_some(rng, FORGED_ANNOTATIONS)}
    return msgspec.structs.replace(pod, annotations=annotations, labels=_some(rng, FORGED_LABELS))


def _some(rng: random.Random, keys: dict[str, str]) -> dict[str, str]:
    return dict(rng.sample(sorted(keys.items()), rng.randrange(1, len(keys) + 1)))


def with_pod(rng: random.Random, pod: CreatePod, *, at_s: float) -> Action:
    """Something that is done with a pod while it is placed, or when it has just been."""
    shrunk, value = rng.choice(SHRINKING)
    key, forged_value = rng.choice(sorted(FORGED_ANNOTATIONS.items()))
    label, labelled = rng.choice(sorted(FORGED_LABELS.items()))
    malformed, text = rng.choice(MALFORMED)
    return rng.choice((
        EditPod(at_s=at_s, name=pod.name, annotations={"example.com/note": str(rng.randrange(100))}),
        EditPod(at_s=at_s, name=pod.name, annotations={shrunk: value}),
        EditPod(at_s=at_s, name=pod.name, annotations={shrunk: value}, when_bound_s=5.0),
        EditPod(at_s=at_s, name=pod.name, annotations={malformed: text}),
        EditPod(at_s=at_s, name=pod.name, annotations={key: forged_value}, when_bound_s=rng.choice((0.0, 5.0))),
        EditPod(at_s=at_s, name=pod.name, annotations={names.GRANT: None}, when_bound_s=5.0),
        EditPod(at_s=at_s, name=pod.name, labels={label: labelled}, when_bound_s=rng.choice((0.0, 5.0))),
        EditPod(at_s=at_s, name=pod.name, labels={names.GPU_GROUP_LABEL: None}, when_bound_s=5.0),
        EvictPod(at_s=at_s, name=pod.name),
        DeleteBindRequest(at_s=pod.at_s, pod=pod.name),
    ))  # fmt: skip


def with_gang(rng: random.Random, name: str, minimum: int, *, at_s: float) -> Action:
    """Something that is done with a PodGroup while its members come."""
    return rng.choice((
        ChangePodGroup(at_s=at_s, name=name, minimum=minimum + rng.choice((-1, 1, 100))),
        ChangePodGroup(at_s=at_s, name=name, annotations={names.PLAN: '{"members":{}}'}),
        DeletePodGroup(at_s=at_s, name=name),
    ))  # fmt: skip


def meddling(rng: random.Random, moment: Callable[[], float], *, nodes: Sequence[str], tenths: int) -> Iterator[Action]:
    """What an administrator does by hand; ``moment`` draws a time, ``tenths`` is how much of it there is."""
    while rng.randrange(10) < tenths:
        at_s, grace_s = moment(), rng.choice((None, None, 0))
        yield DeleteReservation(at_s=at_s, number=rng.randrange(8), grace_s=grace_s)
    if rng.randrange(20) < tenths:
        yield _forged_reservation(moment(), rng.choice(nodes))


def _forged_reservation(at_s: float, node: str) -> CreatePod:
    """A pod that says it is a reservation, with a book that says it is empty."""
    return CreatePod(
        at_s=at_s,
        name=f"{names.RESERVATION_NAME_PREFIX}-forged",
        namespace=names.RESERVATION_NAMESPACE,
        labels={names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "mine"},
        annotations={names.TENANTS: "{}"},
        scheduler="default-scheduler",
        node=node,
    )
