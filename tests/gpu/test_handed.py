"""Memory as Kubernetes writes it."""

from __future__ import annotations

import pytest

from gpu.container_devices import quantity_text


@pytest.mark.parametrize(
    ("mem_mib", "text"),
    [
        (0, "0"),
        (1, "1Mi"),
        (1023, "1023Mi"),
        (1024, "1Gi"),
        (1536, "1536Mi"),
        (1024**2, "1Ti"),
        (3 * 1024**3, "3Pi"),
        (1024**4, "1Ei"),
        (1024**5, "1024Ei"),
        (1024**6, "1048576Ei"),
    ],
)
def test_memory_is_written_with_the_largest_suffix_that_leaves_a_whole_number(mem_mib: int, text: str) -> None:
    assert quantity_text(mem_mib) == text
