"""Pods as large as the API server stores them: every row of the translation table, grown in every way a user can."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from admission import raw_pod
from admission.raw_pod import Bounds
from tests.admission.pods import Raw
from tests.gpu.dialects.everyrow import Case
from wire import names

#: A way to grow a pod: takes a pod and a number of repetitions, and returns a new pod.
Grow = Callable[[Raw, int], Raw]

#: Resources that dialects read by a pattern.
_PATTERNS = (
    "nvidia.com/gpu-{}",
    "nvidia.com/mig-{}g.{}gb",
    "nvidia.com/mig-1g.{}gb.shared",
    "clear.ml/fraction-{}",
    "example.com/resource-{}",
)
_SEPARATORS = ("", ",", ";", ":", "|", " ")
#: What a pod of ours may have, and what of it the API server stores: etcd takes 1.5 MiB, of which the rest needs some.
_ADMITTED: Final = Bounds()
_MOST_BYTES: Final = 2**20


def _containers(pod: Raw, times: int) -> Raw:
    return _repeated(pod, "containers", "containers", times)


def _init_containers(pod: Raw, times: int) -> Raw:
    return _repeated(pod, "containers", "initContainers", times)


def _sidecars(pod: Raw, times: int) -> Raw:
    grown = _repeated(pod, "containers", "initContainers", times)
    for container in grown["spec"]["initContainers"]:
        container["restartPolicy"] = "Always"
    return grown


def _repeated(pod: Raw, source: str, target: str, times: int) -> Raw:
    grown = copy.deepcopy(pod)
    one = grown["spec"][source][0]
    grown["spec"][target] = [*(grown["spec"].get(target) or []), *(copy.deepcopy(one) for _ in range(times))]
    for number, container in enumerate(grown["spec"][target]):
        container["name"] = f"{target[:1]}{number}"
    return grown


def _variables(pod: Raw, times: int) -> Raw:
    grown = copy.deepcopy(pod)
    for container in grown["spec"]["containers"]:
        container["env"] = [{"name": f"V{number}", "value": "all"} for number in range(times)]
    return grown


def _many_resources(pattern: str) -> Grow:
    def grow(pod: Raw, times: int) -> Raw:
        grown = copy.deepcopy(pod)
        limits = {pattern.format(number, number): "1" for number in range(times)}
        resources = grown["spec"]["containers"][0].setdefault("resources", {})
        resources["limits"] = {**(resources.get("limits") or {}), **limits}
        return grown

    return grow


def _spread_resources(pattern: str) -> Grow:
    """One resource in each of many containers."""

    def grow(pod: Raw, times: int) -> Raw:
        grown = copy.deepcopy(pod)
        extra = [
            {"name": f"x{number}", "resources": {"limits": {pattern.format(number % 1000, number % 1000): "1"}}}
            for number in range(times)
        ]
        grown["spec"]["containers"] = [*grown["spec"]["containers"], *extra]
        return grown

    return grow


def _long_text(kind: str, key: str, separator: str) -> Grow:
    def grow(pod: Raw, times: int) -> Raw:
        grown = copy.deepcopy(pod)
        texts = grown["metadata"][kind]
        texts[key] = separator.join([texts[key]] * times)
        return grown

    return grow


def _many_digits(kind: str, key: str) -> Grow:
    def grow(pod: Raw, times: int) -> Raw:
        grown = copy.deepcopy(pod)
        grown["metadata"][kind][key] = "9" * (10 * times)
        return grown

    return grow


def _long_amount(resource: str) -> Grow:
    def grow(pod: Raw, times: int) -> Raw:
        grown = copy.deepcopy(pod)
        for container in grown["spec"]["containers"]:
            limits: dict[str, Any] = (container.get("resources") or {}).get("limits") or {}
            if resource in limits:
                limits[resource] = "1" * (10 * times)
        return grown

    return grow


def _many_annotations(pod: Raw, times: int) -> Raw:
    grown = copy.deepcopy(pod)
    texts = grown["metadata"].get("annotations") or {}
    grown["metadata"]["annotations"] = {**texts, **{f"{names.GPU_FRACTION}-{n}": "0.5" for n in range(times)}}
    return grown


def ways(pod: Raw) -> Iterator[tuple[str, Grow]]:
    """Every way to grow this pod, by name."""
    yield from structures()
    yield from texts(pod)


def structures() -> Iterator[tuple[str, Grow]]:
    """More of the parts of a pod: containers, variables, resources, annotations."""
    yield "containers", _containers
    yield "init containers", _init_containers
    yield "sidecars", _sidecars
    yield "variables", _variables
    yield "annotations", _many_annotations
    for pattern in _PATTERNS:
        yield f"resources {pattern}", _many_resources(pattern)
        yield f"containers with {pattern}", _spread_resources(pattern)


def largest(pod: Raw) -> Raw:
    """As many containers, and then annotations that look like requests, as a pod of this kind may have."""
    more = _ADMITTED.containers - raw_pod.containers(pod)
    each = _entries(_halves(pod, 2)) - _entries(_halves(pod, 1))
    grown = _halves(pod, min(more, (_ADMITTED.entries - _entries(pod)) // each - 1))
    return _many_annotations(grown, _ADMITTED.entries - _entries(_many_annotations(grown, 0)))


def _entries(pod: Raw) -> int:
    _, count = raw_pod.entries(pod, 10**9)
    return count


def longest(pod: Raw) -> Iterator[tuple[str, Raw]]:
    """Pods of 1 MiB, by which value of theirs is long."""
    for name, grow in texts(pod):
        per_time = len(msgspec.json.encode(grow(pod, 101))) - len(msgspec.json.encode(grow(pod, 1)))
        if per_time:
            yield name, grow(pod, 100 * _MOST_BYTES // per_time)


def _halves(pod: Raw, times: int) -> Raw:
    """Containers and sidecars in turn, each with what the first container asks."""
    return _sidecars(_containers(pod, times - times // 2), times // 2)


def texts(pod: Raw) -> Iterator[tuple[str, Grow]]:
    """Longer values of what the pod says already."""
    for kind in ("annotations", "labels"):
        values: Mapping[str, str] = pod["metadata"].get(kind) or {}
        for key in values:
            yield f"digits of {key}", _many_digits(kind, key)
            for separator in _SEPARATORS:
                yield f"{key} repeated with {separator!r}", _long_text(kind, key, separator)
    resources = {name for c in pod["spec"]["containers"] for name in ((c.get("resources") or {}).get("limits") or {})}
    for resource in sorted(resources):
        yield f"digits of {resource}", _long_amount(resource)


def families(cases: list[Case]) -> list[Case]:
    """One case a row of the table, so that each form of each dialect is there once."""
    return list({case.row: case for case in cases}.values())
