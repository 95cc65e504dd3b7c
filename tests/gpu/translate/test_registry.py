from __future__ import annotations

import pytest

from gpu.translate import registry
from tests.gpu.dialects.pods import asking
from wire.core import Pod


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (asking({"aliyun.com/gpu-mem": 5}), True),
        (asking({}, labels={"clearml-injector/fraction": "0.5"}), True),
        (asking({}, annotations={"gpu-fraction": "0.5"}), False),
        (asking({"nvidia.com/gpu": 1}), False),
        (asking({}), False),
    ],
)
def test_only_the_words_of_others_need_a_record(pod: Pod, expected: bool) -> None:
    assert registry.is_spoken(pod) is expected
