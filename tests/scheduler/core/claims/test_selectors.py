"""Expressions are compiled once, and evaluated once for devices that they can't tell apart."""

from __future__ import annotations

import pytest

from scheduler.core.claims.selectors import SelectorFailed, Selectors, named, named_by_all
from scheduler.core.model.device_record import DeviceKind
from tests.scheduler.core.claims.expressions import Compiler, model
from tests.scheduler.core.device_objects import DRIVER, device, devices


def _kinds(**attributes: object) -> list[DeviceKind]:
    """Three devices that differ in their UUIDs."""
    listed = [device(f"d{n}", attributes={"uuid": f"u{n}", **attributes}) for n in range(3)]
    return [each.kind for each in devices("n1", *listed).devices]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.attributes["d.io"].model == "x"', ({"d.io/model"}, set())),
        ("device.attributes['d.io'].model == 'x'", ({"d.io/model"}, set())),
        ('device.driver == "d" && device.capacity["d"].memory.isGreaterThan(quantity("1"))', (set(), {"d/memory"})),
        ('device.allowMultipleAllocations || device.attributes["d"].a', ({"d/a"}, set())),
        ("true", (set(), set())),
        # What may read more than it names.
        ('cel.bind(d, device.attributes["d"], d.a && d.b)', None),
        ('device.attributes["d"].exists(k, k == "a")', None),
        ('"d" in device.attributes', None),
        ('device.attributes["d"]["a"]', None),
        ("[device].exists(d, d.driver == 'x')", None),
        ('device.attributes["d"] .a', None),
        ('device.attributes["d/e"].a', None),
        ('device.attributes["d"].a == "device"', None),
    ],
)
def test_what_an_expression_reads_is_told_by_its_text(
    expression: str, expected: tuple[set[str], set[str]] | None
) -> None:
    found = named(expression)
    assert (None if found is None else tuple(map(set, found))) == expected


def test_several_expressions_read_what_each_reads() -> None:
    both = ['device.attributes["d"].a', 'device.capacity["d"].b']
    assert named_by_all(both) == (frozenset({"d/a"}), frozenset({"d/b"}))
    assert named_by_all(['device.attributes["d"].a', "device"]) is None
    assert named_by_all([]) == (frozenset(), frozenset())


def test_devices_that_differ_in_what_is_not_read_are_judged_once() -> None:
    compiler = Compiler()
    selectors = Selectors(compiler)
    assert [selectors.take([model("h100")], kind) for kind in _kinds(model="h100")] == [True] * 3
    assert [selectors.take([model("h100")], kind) for kind in _kinds(model="a100")] == [False] * 3
    assert (compiler.compiled[model("h100")], compiler.evaluated[model("h100")]) == (1, 2)


def test_the_domain_of_the_driver_may_be_left_out_by_it() -> None:
    compiler = Compiler()
    selectors = Selectors(compiler)
    (short, *_), (full, *_) = _kinds(model="h100"), _kinds(**{f"{DRIVER}/model": "h100"})
    assert selectors.take([model("h100")], short)
    assert selectors.take([model("h100")], full)


def test_all_expressions_have_to_take_a_device_and_the_first_that_fails_is_told() -> None:
    selectors = Selectors(Compiler())
    kind, *_ = _kinds(model="h100")
    assert not selectors.take([model("a100"), "nonsense"], kind)
    for _ in range(2):
        with pytest.raises(SelectorFailed, match="nonsense: can't be read"):
            selectors.take([model("h100"), "nonsense"], kind)
    for _ in range(2):
        with pytest.raises(SelectorFailed, match="no such key"):
            selectors.take(['device.attributes["x"].y == 1'], kind)


def test_of_many_expressions_the_oldest_are_compiled_again() -> None:
    compiler = Compiler()
    selectors = Selectors(compiler)
    kind, *_ = _kinds(model="h100")
    for number in range(1025):
        selectors.take([model(f"m{number}")], kind)
    selectors.take([model("m1024")], kind)
    selectors.take([model("m0")], kind)
    assert (compiler.compiled[model("m1024")], compiler.compiled[model("m0")]) == (1, 2)


class _TakesAll:
    def matches(self, device: DeviceKind) -> bool:
        return True


def test_only_what_is_compiled_and_evaluated_counts_and_loops_count_most() -> None:
    selectors, efforts = Selectors(lambda _: _TakesAll()), []
    for expression in (model("h100"), model("h100"), "[1].all(x, x > 0)"):
        before = selectors.effort_spent
        assert selectors.take([expression], _kinds(model="h100")[0])
        efforts.append(selectors.effort_spent - before)
    first, again, loop = efforts
    assert (again, 10 * first < loop) == (0, True)
