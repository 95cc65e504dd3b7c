"""Selectors in CEL, as Kubernetes evaluates them on devices."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from scheduler.core.claims.cel import MISSING, MIXED, compile_selector
from scheduler.core.claims.selectors import SelectorFailed
from scheduler.core.model.devices import DeviceKind
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
    [
        ("", ["False", "scheduler.core.claims.cel.CelMatcher", "True"]),
        ("sys.modules['cel_expr_python'] = None", ["False", MISSING, "True"]),
    ],
)
def test_the_library_is_loaded_with_the_first_selector_and_may_be_missing(before: str, expected: list[str]) -> None:
    program = _PROBE.format(before=before)
    done = subprocess.run([sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, check=True)
    printed = done.stdout.splitlines()
    assert [said in line for said, line in zip(expected, printed, strict=True)] == [True] * 3, printed
