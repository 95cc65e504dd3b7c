"""Selectors in CEL, as Kubernetes evaluates them on devices."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from scheduler.core.claims import cel
from scheduler.core.claims.cel import MISSING, MIXED, compile_selector
from scheduler.core.claims.selectors import SelectorFailed
from scheduler.core.model.devices import DeviceKind
from tests.quick import few_rows
from tests.scheduler.core.device_objects import DRIVER, device, devices

_ROOT = Path(__file__).parents[4]
_A = f'device.attributes["{DRIVER}"]'
_C = f'device.capacity["{DRIVER}"]'


def _kind() -> DeviceKind:
    attributes = {
        "model": "H100",
        "index": 3,
        "nvlink": True,
        "driverVersion": "v12.4.1",
        "other.io/numa": 1,
        f"{DRIVER}/family": "hopper",
    }
    capacity = {"memory": {"value": "80Gi"}, "other.io/links": {"value": "4"}}
    return devices("n1", device("a", attributes=attributes, capacity=capacity)).devices[0].kind


@pytest.mark.parametrize(
    ("expression", "is_taken"),
    [
        ("true", True),
        ("device.driver == 'gpu.example.com'", True),
        ("device.allowMultipleAllocations", False),
        (f'{_A}.model == "H100"', True),
        (f'{_A}["model"] == "A100"', False),
        (f'{_A}.family == "hopper"', True),
        (f"{_A}.index < 3", False),
        (f"{_A}.nvlink", True),
        ('device.attributes["other.io"].numa == 1', True),
        (f'{_A}.driverVersion.isGreaterThan(semver("12.0.0"))', True),
        (f'{_A}.driverVersion.compareTo(semver("12.4.1")) == 0', True),
        (f"{_A}.driverVersion.major() == 12 && {_A}.driverVersion.minor() == 4", True),
        (f'{_A}.driverVersion.isLessThan(semver("v12.5", true))', True),
        ('isSemver("1.0") || isSemver("v1.0", true)', True),
        (f'{_C}.memory.compareTo(quantity("40Gi")) >= 0', True),
        (f'{_C}.memory.isGreaterThan(quantity("80Gi"))', False),
        (f'{_C}.memory == quantity("81920Mi")', True),
        (f'{_C}.memory.sub(quantity("79Gi")).asInteger() == 1073741824', True),
        (f'sign({_C}.memory.add(1)) == 1 && {_C}.memory.isInteger() && isQuantity("1")', True),
        ('device.capacity["other.io"].links.isLessThan(quantity("5"))', True),
        # Shorter ways to write it.
        (f'cel.bind(own, {_A}, own.model == "H100" && own.index == 3)', True),
        (f'{_A}.model.lowerAscii().startsWith("h")', True),
        (f'{_A}.model.matches("^[AH]100$")', True),
        (f'{_A}.model in ["A100", "H100"]', True),
        # A domain that a device lacks is an empty map, but for those who look for it.
        ("has(device.attributes['none.io'].model)", False),
        ("has(device.attributes['none.io'].model) && device.attributes['none.io'].model == 'x'", False),
        ("'none.io' in device.attributes", False),
        ("'other.io' in device.attributes && device.attributes['other.io'].numa == 1", True),
        ("'none.io' in device.attributes && device.attributes['none.io'].numa == 1", False),
        (f"device.attributes[?'none.io'].?model.orValue('x') == 'x' && has({_A}.model)", True),
        ("size(device.attributes) == 2", True),
    ],
)
def test_an_expression_takes_a_device(expression: str, *, is_taken: bool) -> None:
    assert compile_selector(expression).matches(_kind()) is is_taken


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (f'{_A}.missing == "x"', 'Key not found in map : "missing"'),
        ("device.attributes['none.io'].model == 'x'", 'Key not found in map : "model"'),
        (f'{_A}.model.isGreaterThan(semver("1.0.0"))', "No matching overloads"),
        (f'{_A}.index.compareTo(quantity("1")) == 0', "No matching overloads"),
        (f'quantity({_A}.model) == quantity("1")', "quantity 'H100' is not a number"),
        (f"semver({_A}.model).major() == 1", "'H100' is no semantic version"),
        (f"{_A}.model", "is neither true nor false"),
        ("1 / 0 == 1", "divide by zero"),
    ],
)
def test_an_expression_that_has_no_answer_fails_with_its_text(expression: str, text: str) -> None:
    matcher = compile_selector(expression)
    with pytest.raises(SelectorFailed) as failed:
        matcher.matches(_kind())
    assert text in str(failed.value)
    assert str(failed.value).startswith("selector ")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("device.", "Syntax error"),
        ("unknown(1)", "undeclared reference to 'unknown'"),
        ("'a' + 1 == 2", "no matching overload"),
        ("1 + 1", "is of type INT, and has to be true or false"),
        # Of what Kubernetes has besides.
        ("[1, 2].isSorted()", "undeclared reference to 'isSorted'"),
        ("ip('10.0.0.1').family() == 4", "undeclared reference to 'ip'"),
        # Which the library answers wrongly.
        (f"{_A}.exists(n, n == 'index') && cel.bind(x, {_A}.index, x == 3)", MIXED),
        ("[1, 2].all(n, n > 0) && optional.of(1).optMap(x, x == 1).orValue(false)", MIXED),
    ],
)
def test_an_expression_that_is_none_fails_when_it_is_compiled(expression: str, text: str) -> None:
    with pytest.raises(SelectorFailed) as failed:
        compile_selector(expression)
    assert text in str(failed.value)


def test_a_value_that_is_not_supported_or_no_version_fails() -> None:
    listed = devices("n1", {"name": "a", "attributes": {"models": {"strings": ["x"]}}}).devices[0].kind
    with pytest.raises(SelectorFailed, match="attribute models: its value is of a kind that is not supported"):
        compile_selector("true").matches(listed)
    wrong = devices("n1", {"name": "a", "attributes": {"driver": {"version": "1"}}}).devices[0].kind
    with pytest.raises(SelectorFailed, match="attribute driver: '1' is no semantic version"):
        compile_selector("true").matches(wrong)


def test_what_is_told_of_an_expression_is_bounded() -> None:
    with pytest.raises(SelectorFailed) as failed:
        compile_selector(f"'{'x' * 9000}' + 1")
    assert len(str(failed.value)) < 500


def test_an_expression_that_does_much_is_refused_at_once() -> None:
    expression = "true"
    for name in "abcdefghi":
        expression = f"[1, 2, 3, 4, 5, 6, 7, 8, 9, 0].all({name}, {expression})"
    before = time.process_time()
    with pytest.raises(SelectorFailed, match="it may take more than 5,000 microseconds for a device"):
        compile_selector(expression)
    # A billion steps would take minutes.
    assert time.process_time() - before < 5


_PROBE = """
import sys
{before}
import scheduler.app
from scheduler.core.claims.cel import compile_selector
from scheduler.core.claims.selectors import SelectorFailed
print("cel_expr_python" in sys.modules and sys.modules["cel_expr_python"] is not None)
try:
    print(compile_selector("true"))
except SelectorFailed as failed:
    print(failed)
print("cel_expr_python" in sys.modules)
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    few_rows(
        [
            ("", ["False", "scheduler.core.claims.cel.CelMatcher", "True"]),
            ("sys.modules['cel_expr_python'] = None", ["False", MISSING, "True"]),
        ],
        2,
    ),
)
def test_the_library_is_loaded_with_the_first_selector_and_may_be_missing(before: str, expected: list[str]) -> None:
    program = _PROBE.format(before=before)
    done = subprocess.run([sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, check=True)
    printed = done.stdout.splitlines()
    assert [said in line for said, line in zip(expected, printed, strict=True)] == [True] * 3, printed


# Quantities and versions as expressions compare and change them (Kubernetes' CEL libraries).


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
    left, right = cel.quantity(one), cel.quantity(other)
    assert (cel.compare(left, right), cel.compare(right, left), left == right) == (order, -order, order == 0)


def test_what_can_not_be_read_is_no_quantity() -> None:
    assert cel.is_quantity("1Gi")
    assert not cel.is_quantity("much")
    with pytest.raises(ValueError, match="quantity 'much' is not a number"):
        cel.quantity("much")


@pytest.mark.parametrize(
    ("written", "sign", "whole"), [("-3", -1, -3), ("0", 0, 0), ("2Ki", 1, 2048), ("500m", 1, None), ("9Ei", 1, None)]
)
def test_a_quantity_has_a_sign_and_may_be_whole(written: str, sign: int, whole: int | None) -> None:
    value = cel.add(cel.quantity(written), 0) if written != "9Ei" else cel.add(cel.quantity("7Ei"), 2**62)
    assert (cel.sign(value), cel.is_integer(value)) == (sign, whole is not None)
    if whole is None:
        with pytest.raises(ValueError, match="cannot convert value to integer"):
            cel.as_integer(value)
    else:
        assert cel.as_integer(value) == whole
    assert cel.as_float(cel.quantity("1500m")) == 1.5


def test_quantities_are_added_and_subtracted() -> None:
    assert cel.add(cel.quantity("1500m"), cel.quantity("500m")) == cel.quantity("2")
    assert cel.sub(cel.quantity("2"), cel.quantity("500m")) == cel.quantity("1500m")
    assert cel.add(cel.quantity("1Ki"), 24) == cel.quantity("1048")
    assert cel.sub(cel.quantity("1Ki"), 24) == cel.quantity("1000")


def test_versions_are_ordered_as_semver_org_does() -> None:
    before = "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1"
    released = "1.0.0 1.2.0 1.10.0 2.0.0"
    for lower, upper in pairwise(map(cel.version, f"{before} {released}".split())):
        assert (cel.compare_versions(lower, upper), cel.compare_versions(upper, lower)) == (-1, 1)
    assert cel.compare_versions(cel.version("1.0.0+a"), cel.version("1.0.0+b")) == 0
    assert cel.version("1.0.0+a") == cel.version("1.0.0+b")
    assert [cel.part(cel.version("1.20.3-x"), number) for number in (1, 2, 3)] == [1, 20, 3]


@pytest.mark.parametrize(
    "text", ["1", "1.0", "v1.0.0", "01.0.0", "1.0.0-01", "1.0.0-", "1.0.0-a..b", "", "1.0.0 ", "٣.0.0"]
)
def test_what_is_no_version_is_refused(text: str) -> None:
    assert not cel.is_version(text)
    with pytest.raises(ValueError, match="is no semantic version"):
        cel.version(text)


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
    assert cel.is_normalized_version(text, is_normalized=True) == (expected is not None)
    if expected is not None:
        assert cel.normalized(text, is_normalized=True) == cel.version(expected)
    assert not cel.is_normalized_version("v1", is_normalized=False)


def test_a_list_that_somebody_wrote_is_no_version() -> None:
    with pytest.raises(ValueError, match="no semantic version"):
        cel.compare_versions(["1", "2"], cel.version("1.0.0"))
