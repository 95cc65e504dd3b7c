"""What reviewing a pod costs grows no faster than the pod, and its limits come before the work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from admission.raw_pod import Bounds
from admission.review import PodAdmission
from admission.settings import Settings
from tests.calls import calls
from tests.quick import few
from wire import names

Manifest = dict[str, Any]
#: So that what is done within the bounds is seen to grow no faster than the pod.
_UNBOUNDED: Final = Settings(bounds=Bounds(containers=10**6, resources=10**6, entries=10**7))


def _pod(*limits: dict[str, str]) -> Manifest:
    containers = [{"name": f"c{n}", "image": "x", "resources": {"limits": each}} for n, each in enumerate(limits)]
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "t"}, "spec": spec}


def _review(pod: Manifest) -> Manifest:
    request = {"uid": "1", "operation": "CREATE", "namespace": "t", "object": pod}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


#: Pods that are let in or refused, by how many containers or resources they have.
_WIDE: Final[dict[str, Callable[[int], Manifest]]] = {
    "ClearML, one container with all indexes": lambda n: _pod({f"nvidia.com/gpu-{i}": "1" for i in range(n)}),
    "ClearML, an index in each container": lambda n: _pod(*({f"nvidia.com/gpu-{i}": "1"} for i in range(n))),
    "ClearML, one index in all containers": lambda n: _pod(*({"nvidia.com/gpu-1": "1"} for _ in range(n))),
    "ClearML, nothing of one index": lambda n: _pod(*({"nvidia.com/gpu-1": "0"} for _ in range(n))),
    "HAMi, memory": lambda n: _pod(*({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10"} for _ in range(n))),
    "HAMi, two slices with compute in each container": lambda n: _pod(
        *({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "10", "nvidia.com/gpucores": "30"} for _ in range(n))
    ),
    "HAMi, priorities beside one slice": lambda n: _pod(
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10"}, *({"nvidia.com/priority": "1"} for _ in range(n))
    ),
    "whole GPUs": lambda n: _pod(*({"nvidia.com/gpu": "1"} for _ in range(n))),
    "resources that nobody knows": lambda n: _pod({f"example.com/r{i}": "1" for i in range(n)}),
}


def _calls(pod: Manifest) -> int:
    """Python functions entered and C functions called to judge the pod."""
    admission = PodAdmission(_UNBOUNDED, rng=random.Random(1))
    review = _review(pod)
    return calls(lambda: (admission.mutating(review), admission.validating(review)))


@pytest.mark.parametrize("wide", _WIDE.values(), ids=_WIDE)
@pytest.mark.parametrize("least", few([48, 400], 2))
def test_twice_the_pod_takes_no_more_than_twice_the_calls(wide: Callable[[int], Manifest], least: int) -> None:
    small, double, fourfold = (_calls(wide(least * factor)) for factor in (1, 2, 4))

    assert double <= 2.6 * small + 2000
    assert fourfold <= 2.6 * double + 2000


@pytest.mark.parametrize("wide", few(_WIDE.values(), 3), ids=_WIDE)
def test_a_wide_pod_costs_little_more_than_to_read_it(wide: Callable[[int], Manifest]) -> None:
    """Calls don't tell what a call into C costs. Margins are wide: 3 to 44 times were seen."""
    admission = PodAdmission(_UNBOUNDED, rng=random.Random(1))
    body = msgspec.json.encode(_review(wide(6000)))

    began = time.process_time_ns()
    review = msgspec.json.decode(body)
    reading = time.process_time_ns() - began
    began = time.process_time_ns()
    admission.mutating(review)
    judging = time.process_time_ns() - began

    assert judging < 200 * reading + 100_000_000


@pytest.mark.thorough
def test_eight_times_the_containers_with_slices_take_no_more_than_16_times_the_time() -> None:
    """Looked up in C, so no calls tell. 8 times were seen, and 38 where each container is sought among all."""
    admission = PodAdmission(_UNBOUNDED, rng=random.Random(1))

    def least_ns(containers: int) -> int:
        review = _review(_WIDE["HAMi, memory"](containers))
        took = []
        for _ in range(3):
            began = time.process_time_ns()
            admission.validating(review)
            took.append(time.process_time_ns() - began)
        return min(took)

    assert least_ns(12_000) < 16 * least_ns(1500)


def test_indexes_of_a_pod_are_counted_before_they_are_put_on_seats() -> None:
    answer = PodAdmission(_UNBOUNDED, rng=random.Random(1)).mutating(
        _review(_pod(*({f"nvidia.com/gpu-{i}": "1"} for i in range(385))))
    )

    assert "385 devices together, by nvidia.com/gpu-N" in answer["response"]["status"]["message"]
