"""How large a pod of ours may be, and that nothing larger is read."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from admission.review import PodAdmission
from admission.settings import Settings
from tests.admission.pods import Raw, half, pod, review
from tests.calls import calls
from wire import names

EXPRESSION = {"key": "k", "operator": "Exists"}


def _admission() -> PodAdmission:
    return PodAdmission(Settings(), rng=random.Random(1))


def _terms(count: int) -> Raw:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [EXPRESSION] * count}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def _containers(count: int) -> list[Raw]:
    return [{"name": f"x{number}", "image": "cuda"} for number in range(count)]


def _asking(count: int, *, each: int = 1) -> list[Raw]:
    """Containers with other resources each."""
    return [
        {"name": f"x{number}", "resources": {field: {f"example.com/{number}-{n}": "1" for n in range(each)}}}
        for number, field in zip(range(count), ("limits", "requests") * count, strict=False)
    ]


def _env(count: int) -> Raw:
    return {"name": "main", "env": [{"name": f"V{number}"} for number in range(count)]}


#: A pod of this many, the field that is named, and how many there may be.
LARGE: dict[str, tuple[Callable[[int], Raw], str, int]] = {
    "containers": (lambda n: half(*_containers(n)), "spec.containers", 512),
    "init containers": (lambda n: half(initContainers=_containers(n - 1)), "spec.containers", 512),
    "ephemeral containers": (lambda n: half(ephemeralContainers=_containers(n - 1)), "spec.containers", 512),
    "resources": (lambda n: half(*_asking(1, each=n)), "resources of containers", 100),
    "resources of each container": (lambda n: half(*_asking(n)), "resources of containers", 100),
    "resources of the pod": (
        lambda n: half(resources={"requests": {f"example.com/{number}": "1" for number in range(n)}}),
        "resources of containers",
        100,
    ),
    "variables": (lambda n: half(_env(n)), "spec.containers", 5_000),
    "annotations": (lambda n: half(annotations={f"a{m}": "" for m in range(n)}), "metadata.annotations", 10_000),
    "labels": (lambda n: half(labels={f"a{m}": "" for m in range(n)}), "metadata.labels", 10_000),
    "volumes": (lambda n: half(volumes=[{"name": f"v{m}"} for m in range(n)]), "spec.volumes", 5_000),
    "expressions": (lambda n: half(affinity=_terms(n)), "spec.affinity", 3_333),
    "unknown fields": (lambda n: half(unknown=[[] for _ in range(n)]), "spec.unknown", 10_000),
}
SIZES = [pytest.param(*case, id=name) for name, case in LARGE.items()]


@pytest.mark.parametrize(("large", "field", "most"), SIZES)
def test_a_pod_with_more_than_a_bound_is_refused_by_field_value_and_what_is_allowed(
    large: Callable[[int], Raw], field: str, most: int
) -> None:
    for judge in (_admission().mutating, _admission().validating):
        answer = judge(review(large(most + 1)))["response"]
        assert answer["allowed"] is False
        assert f'({field} is "' in answer["status"]["message"]
        assert "; allowed: " in answer["status"]["message"]


@pytest.mark.parametrize(("large", "field", "most"), SIZES)
def test_a_pod_that_keeps_the_bounds_is_not_refused_for_its_size(
    large: Callable[[int], Raw], field: str, most: int
) -> None:
    answer = _admission().mutating(review(large(most - 50)))["response"]
    assert "too large" not in answer.get("status", {}).get("message", "")


@pytest.mark.parametrize(("large", "field", "most"), SIZES)
def test_what_is_too_large_is_refused_before_it_is_read(large: Callable[[int], Raw], field: str, most: int) -> None:
    """Calls do not grow with the pod."""
    for judge in (_admission().mutating, _admission().validating):
        small, huge = (review(large(times * (most + 50))) for times in (1, 8))
        assert calls(lambda: judge(huge)) <= 1.1 * calls(lambda: judge(small)) + 100  # noqa: B023 - called at once


def test_a_pod_of_another_scheduler_is_let_through_unread_however_large() -> None:
    foreign = pod({"name": "main", "env": [1]}, *_containers(20_000), scheduler="default-scheduler")
    for judge in (_admission().mutating, _admission().validating):
        assert judge(review(foreign))["response"] == {"uid": review(foreign)["request"]["uid"], "allowed": True}
        assert calls(lambda: judge(review(foreign))) < 100  # noqa: B023 - called at once


GPUS: dict[str, dict[str, Any]] = {
    "an annotation": {"annotations": {names.GPU_FRACTION: "0.5"}},
    "a record": {"annotations": {names.GPU_RECORD: "anything"}},
    "a label of ClearML": {"labels": {"clearml-injector/fraction": "0.500"}},
    "a resource": {"initContainers": [{"name": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    "a resource of HAMi": {"initContainers": [{"name": "i", "resources": {"limits": {"nvidia.com/gpumem": "1"}}}]},
}


@pytest.mark.parametrize("asks", GPUS.values(), ids=GPUS)
def test_a_pod_that_is_too_large_and_names_gpus_is_adopted_and_so_refused(asks: dict[str, Any]) -> None:
    large = pod(*_containers(600), scheduler="default-scheduler", **asks)
    assert "patch" in _admission().adopting(review(large))["response"]


def test_a_pod_that_is_too_large_and_names_no_gpu_stays_with_its_scheduler() -> None:
    large = pod(*_containers(600), *_asking(200), scheduler="default-scheduler", annotations={"a": "b"})
    assert "patch" not in _admission().adopting(review(large))["response"]


def test_a_pod_that_is_too_large_is_looked_at_for_gpus_in_bounded_work() -> None:
    small, huge = (
        review(pod(*_asking(count), scheduler="default-scheduler", labels={f"a{n}": "" for n in range(count)}))
        for count in (20_000, 40_000)
    )
    admission = _admission()
    assert calls(lambda: admission.adopting(huge)) <= 1.1 * calls(lambda: admission.adopting(small)) + 100


def test_a_pod_that_came_before_there_was_a_bound_may_be_changed_but_does_not_grow() -> None:
    gated = half(*_containers(600), schedulingGates=[{"name": "later"}])
    changes = {
        "freed of its gate": (half(*_containers(600)), True),
        "with another gate": (half(*_containers(600), schedulingGates=[{"name": "later"}, {"name": "more"}]), False),
        "with a label": (half(*_containers(600), schedulingGates=[{"name": "later"}], labels={"a": "b"}), False),
    }
    for name, (after, is_allowed) in changes.items():
        answer = _admission().validating(review(after, operation="UPDATE", old=gated))["response"]
        assert answer["allowed"] is is_allowed, name


def test_what_the_api_server_writes_of_its_own_does_not_count() -> None:
    managed = [{"manager": "kubectl", "fieldsV1": {f"f:{number}": {} for number in range(20_000)}}]
    owned = half(metadata={"name": "p", "namespace": "t", "managedFields": managed})
    assert _admission().mutating(review(owned))["response"]["allowed"] is True
