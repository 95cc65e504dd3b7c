"""Quantities and versions as expressions compare and change them (Kubernetes' CEL libraries)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scheduler.core.claims import cel_values as values


@pytest.mark.parametrize(
    ("one", "other", "order"),
    [
        ("1Gi", "1024Mi", 0),
        ("1500m", "1.5", 0),
        ("1G", "1Gi", -1),
        ("80Gi", "40Gi", 1),
        ("1n", "0", 1),
        # More than a float tells apart.
        ("9007199254740993", "9007199254740992", 1),
    ],
)
def test_quantities_are_compared_exactly(one: str, other: str, order: int) -> None:
    left, right = values.quantity(one), values.quantity(other)
    assert (values.compare(left, right), values.compare(right, left), left == right) == (order, -order, order == 0)


def test_what_can_not_be_read_is_no_quantity() -> None:
    assert values.is_quantity("1Gi")
    assert not values.is_quantity("much")
    with pytest.raises(ValueError, match="quantity 'much' is not a number"):
        values.quantity("much")


@pytest.mark.parametrize(
    ("written", "sign", "whole"), [("-3", -1, -3), ("0", 0, 0), ("2Ki", 1, 2048), ("500m", 1, None), ("9Ei", 1, None)]
)
def test_a_quantity_has_a_sign_and_may_be_whole(written: str, sign: int, whole: int | None) -> None:
    value = values.add(values.quantity(written), 0) if written != "9Ei" else values.add(values.quantity("7Ei"), 2**62)
    assert (values.sign(value), values.is_integer(value)) == (sign, whole is not None)
    if whole is None:
        with pytest.raises(ValueError, match="cannot convert value to integer"):
            values.as_integer(value)
    else:
        assert values.as_integer(value) == whole
    assert values.as_float(values.quantity("1500m")) == 1.5


def test_quantities_are_added_and_subtracted() -> None:
    assert values.add(values.quantity("1500m"), values.quantity("500m")) == values.quantity("2")
    assert values.sub(values.quantity("2"), values.quantity("500m")) == values.quantity("1500m")
    assert values.add(values.quantity("1Ki"), 24) == values.quantity("1048")
    assert values.sub(values.quantity("1Ki"), 24) == values.quantity("1000")


def test_versions_are_ordered_as_semver_org_does() -> None:
    before = "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1"
    released = "1.0.0 1.2.0 1.10.0 2.0.0"
    for lower, upper in pairwise(map(values.version, f"{before} {released}".split())):
        assert (values.compare_versions(lower, upper), values.compare_versions(upper, lower)) == (-1, 1)
    assert values.compare_versions(values.version("1.0.0+a"), values.version("1.0.0+b")) == 0
    assert values.version("1.0.0+a") == values.version("1.0.0+b")
    assert [values.part(values.version("1.20.3-x"), number) for number in (1, 2, 3)] == [1, 20, 3]


@pytest.mark.parametrize(
    "text", ["1", "1.0", "v1.0.0", "01.0.0", "1.0.0-01", "1.0.0-", "1.0.0-a..b", "", "1.0.0 ", "٣.0.0"]
)
def test_what_is_no_version_is_refused(text: str) -> None:
    assert not values.is_version(text)
    with pytest.raises(ValueError, match="is no semantic version"):
        values.version(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v1", "1.0.0"),
        ("1.2", "1.2.0"),
        ("01.02.03", "1.2.3"),
        ("v1.00.0-rc.1", "1.0.0-rc.1"),
        ("1.2-rc", None),
        ("a.b.c", None),
        ("", None),
    ],
)
def test_a_version_can_be_normalized(text: str, expected: str | None) -> None:
    assert values.is_normalized_version(text, is_normalized=True) == (expected is not None)
    if expected is not None:
        assert values.normalized(text, is_normalized=True) == values.version(expected)
    assert not values.is_normalized_version("v1", is_normalized=False)


def test_a_list_that_somebody_wrote_is_no_version() -> None:
    with pytest.raises(ValueError, match="no semantic version"):
        values.compare_versions(["1", "2"], values.version("1.0.0"))
