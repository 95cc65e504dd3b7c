from __future__ import annotations

import pytest

from gpu import node_resources


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("nvidia.com/mig-1c.3g.20gb", True),
        ("nvidia.com/mig-1g.10gb.me", True),
        ("nvidia.com/gpu.shared", False),
        ("nvidia.com/mig-1g", False),
        ("nvidia.com/mig-1g.10gb ", False),
        ("nvidia.com/mig-\N{ARABIC-INDIC DIGIT ONE}g.10gb", False),
        ("cpu", False),
    ],
)
def test_what_nvidias_plugin_hands_out(name: str, is_one: bool) -> None:
    assert node_resources.is_device_resource(name) is is_one


@pytest.mark.parametrize(
    ("product", "profile"),
    [
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "1g.5gb"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb+me", "1g.5gb.me"),
        ("NVIDIA-A100-SXM4-40GB", ""),
        ("NVIDIA-A100-SXM4-40GB-MIG-INVALID", ""),
        ("", ""),
    ],
)
def test_the_product_names_the_profile_where_slices_are_called_gpus(product: str, profile: str) -> None:
    assert node_resources.single_profile(product) == profile


def test_a_plus_in_a_profile_is_a_dot_in_its_resource() -> None:
    assert node_resources.slice_resource("1g.10gb+me") == "nvidia.com/mig-1g.10gb.me"
