"""Products of GPUs that a pod takes, and does not take."""

from __future__ import annotations

import pytest

from scheduler.core.model.pod_class import Constraints
from tests.scheduler.core.filters.judging import reason_of
from tests.scheduler.core.objects import node
from wire import names


@pytest.mark.parametrize(
    ("wanted", "unwanted", "product", "is_out"),
    [
        ((), (), "", False),
        (("a100",), (), "NVIDIA-A100-SXM4-80GB", False),
        (("A100 SXM4",), (), "NVIDIA-A100-SXM4-80GB", False),
        (("h100", "a100"), (), "NVIDIA-A100-SXM4-80GB", False),
        (("h100",), (), "NVIDIA-A100-SXM4-80GB", True),
        (("a100",), (), "", True),
        ((), ("a100",), "NVIDIA-A100-SXM4-80GB", True),
        ((), ("a100",), "NVIDIA-H100", False),
        ((), ("a100",), "", True),
        (("nvidia",), ("t4",), "NVIDIA-T4", True),
    ],
)
def test_a_node_is_out_whose_gpus_are_of_another_product(
    wanted: tuple[str, ...], unwanted: tuple[str, ...], product: str, is_out: bool
) -> None:
    asked = Constraints(products=wanted, not_products=unwanted)
    labels = {names.NODE_GPU_PRODUCT: product} if product else {}
    assert reason_of(asked, node(labels=labels)) == ("cards" if is_out else "")
