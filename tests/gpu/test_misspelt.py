"""Keys that look like a request and have no effect."""

from __future__ import annotations

import pytest

from gpu.manifests import ignored_keys
from wire.core import ObjectMeta, Pod, PodSpec


@pytest.mark.parametrize(
    ("annotations", "labels", "expected"),
    [
        ({"gpu-fraction": "0.5"}, {"clearml-injector/fraction": "0.500"}, []),
        ({"GPU_Fraction": "0.5"}, {}, [("misspelt", "GPU_Fraction")]),
        ({"team.example/fraction": "0.5"}, {}, []),
        ({}, {"gpu-memory": "9"}, [("wrong-place", "gpu-memory")]),
        ({"clearml-injector/fraction": "0.500"}, {}, [("wrong-place", "clearml-injector/fraction")]),
    ],
)
def test_a_key_is_ignored_if_it_is_misspelt_or_in_the_wrong_place(
    annotations: dict[str, str], labels: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    pod = Pod(metadata=ObjectMeta(name="p", annotations=annotations, labels=labels), spec=PodSpec(containers=[]))
    assert [(each.code, each.key) for each in ignored_keys(pod)] == expected
