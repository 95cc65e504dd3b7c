from __future__ import annotations

import pytest

from tools.realgpu.mpsnamespaces import NotAsked, is_for_memory, multiprocessors

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("refused cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)", True),
        ("refused cuMemsetD8_v2: CUDA_ERROR_OUT_OF_MEMORY (2)", True),
        ("refused cuInit: CUDA_ERROR_OUT_OF_MEMORY (2)", False),
        ("refused cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY (2)", False),
        ("refused cuInit: CUDA_ERROR_MPS_CONNECTION_FAILED (805)", False),
        ("refused cuMemAlloc_v2: CUDA_ERROR_MPS_CLIENT_TERMINATED (809)", False),
        ("refused libcuda.so.1: no such file", False),
        ("nothing within 20 s", False),
        ("held 5096 of 143771 on 132 SMs", False),
        ("", False),
    ],
)
def test_only_a_refusal_of_memory_shows_a_limit_of_memory(told: str, found: bool) -> None:
    assert is_for_memory(told) is found


def test_multiprocessors_are_those_of_a_client_that_runs() -> None:
    assert multiprocessors("held 256 of 143771 on 33 SMs") == 33
    for told in ("refused cuInit: CUDA_ERROR_MPS_CONNECTION_FAILED (805)", "held 256 of 143771", "nothing within 20 s"):
        with pytest.raises(NotAsked):
            multiprocessors(told)
