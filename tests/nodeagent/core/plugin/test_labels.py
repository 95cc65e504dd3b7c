from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plugin.labels import Driver, changes, is_ours_to_label, node_labels
from nodeagent.core.plugin.settings import MigStrategy, Offer, PluginSettings, offer
from nodeagent.core.plugin.settings_file import read
from tests.nodeagent.core import files
from tests.nodeagent.core.machine import card, part
from tests.values import of_kind

T4 = [replace(card(index, mem_mib=15_360), product="Tesla T4") for index in range(2)]
DRIVER = Driver(version="535.54.03", cuda="12.2", compute=(7, 5), is_mig_capable=False)


def labels(text: str = "") -> dict[str, str]:
    settings = of_kind(PluginSettings, read(text, {}))
    found = of_kind(Offer, offer(settings, T4, ()))
    return node_labels(T4, found.resources, driver=DRIVER, mig_strategy=settings.mig_strategy)


def test_labels_are_those_of_gpu_feature_discovery() -> None:
    assert labels() == {
        "nvidia.com/cuda.driver-version.full": "535.54.03",
        "nvidia.com/cuda.driver-version.major": "535",
        "nvidia.com/cuda.driver-version.minor": "54",
        "nvidia.com/cuda.driver-version.revision": "03",
        "nvidia.com/cuda.driver.major": "535",
        "nvidia.com/cuda.driver.minor": "54",
        "nvidia.com/cuda.driver.rev": "03",
        "nvidia.com/cuda.runtime-version.full": "12.2",
        "nvidia.com/cuda.runtime-version.major": "12",
        "nvidia.com/cuda.runtime-version.minor": "2",
        "nvidia.com/cuda.runtime.major": "12",
        "nvidia.com/cuda.runtime.minor": "2",
        "nvidia.com/gfd.timestamp": "moorage",
        "nvidia.com/gpu.compute.major": "7",
        "nvidia.com/gpu.compute.minor": "5",
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.family": "turing",
        "nvidia.com/gpu.memory": "15360",
        "nvidia.com/gpu.product": "Tesla-T4",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "false",
    }


@pytest.mark.parametrize(
    ("text", "product", "replicas", "strategy"),
    [
        ("", "Tesla-T4", "1", "none"),
        (files.CLEARML_OLD, "Tesla-T4-SHARED", "8", "time-slicing"),
        (files.NVIDIA_SHARED, "Tesla-T4", "10", "time-slicing"),
        (files.CLEARML, "Tesla-T4", "8", "time-slicing"),
    ],
)
def test_replicas_are_counted_by_card_and_the_product_says_shared_unless_renamed(
    text: str, product: str, replicas: str, strategy: str
) -> None:
    found = labels(text)
    assert found["nvidia.com/gpu.product"] == product
    assert found["nvidia.com/gpu.replicas"] == replicas
    assert found["nvidia.com/gpu.sharing-strategy"] == strategy


def test_cards_in_mig_mode_have_no_replicas_of_their_own() -> None:
    cards, slices = [card(0, has_mig=True)], [part(0, 0, "1g.10gb")]
    found = of_kind(Offer, offer(PluginSettings(mig_strategy=MigStrategy.MIXED), cards, slices))
    result = node_labels(cards, found.resources, driver=Driver(), mig_strategy=MigStrategy.MIXED)
    assert result["nvidia.com/gpu.replicas"] == "0"
    assert result["nvidia.com/mig.strategy"] == "mixed"


def test_a_node_without_gpus_has_no_labels() -> None:
    assert node_labels([], [], driver=DRIVER) == {}


@pytest.mark.parametrize(
    ("present", "ours"),
    [
        ({}, True),
        ({"nvidia.com/gfd.timestamp": "1736000000"}, False),
        ({"nvidia.com/gfd.timestamp": "moorage", "a": "b"}, True),
    ],
)
def test_a_node_that_feature_discovery_labels_is_left_to_it(present: dict[str, str], ours: bool) -> None:
    assert is_ours_to_label(present) is ours


@pytest.mark.parametrize(
    ("present", "found"),
    [
        ({}, {"nvidia.com/gfd.timestamp": "moorage", "nvidia.com/gpu.count": "2"}),
        ({"nvidia.com/gfd.timestamp": "moorage", "nvidia.com/gpu.count": "2", "zone": "a"}, {}),
        ({"nvidia.com/gfd.timestamp": "1764240000", "nvidia.com/gpu.count": "1"}, {}),
        (
            {"nvidia.com/gfd.timestamp": "moorage", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.family": "ampere"},
            {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.family": None},
        ),
        # Without our mark it is somebody else's.
        ({"nvidia.com/gpu.count": "2", "nvidia.com/gpu.family": "ampere"}, {"nvidia.com/gfd.timestamp": "moorage"}),
        (
            {
                "nvidia.com/gfd.timestamp": "moorage",
                "nvidia.com/gpu.count": "2",
                "nvidia.com/cuda.driver.rev": "1",
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.deploy.dcgm": "true",
            },
            {"nvidia.com/cuda.driver.rev": None},
        ),
    ],
)
def test_only_what_differs_is_written_and_only_ours_is_taken_away(
    present: dict[str, str], found: dict[str, str | None]
) -> None:
    assert changes(present, {"nvidia.com/gfd.timestamp": "moorage", "nvidia.com/gpu.count": "2"}) == found


def test_every_label_that_is_written_can_be_taken_away_again() -> None:
    capable = replace(DRIVER, is_mig_capable=True)
    written = node_labels(T4, [], driver=capable, mig_strategy=MigStrategy.MIXED)
    assert changes(written, {}) == dict.fromkeys(written)


@pytest.mark.parametrize(
    ("compute", "family"),
    [((12, 0), "blackwell"), ((9, 0), "hopper"), ((8, 9), "ada-lovelace"), ((8, 6), "ampere"), ((7, 0), "volta")],
)
def test_families_are_told_by_compute_capability(compute: tuple[int, int], family: str) -> None:
    assert node_labels(T4, [], driver=Driver(compute=compute))["nvidia.com/gpu.family"] == family


@given(st.text(max_size=100), st.text(max_size=30), st.text(max_size=30))
def test_every_value_is_one_that_a_label_can_have(product: str, version: str, cuda: str) -> None:
    found = node_labels([replace(T4[0], product=product)], [], driver=Driver(version=version, cuda=cuda))
    for value in found.values():
        assert len(value) <= 63
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", value)
