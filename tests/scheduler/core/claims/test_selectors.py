"""Expressions are compiled once, and evaluated once for devices that they can't tell apart."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest

from scheduler.core.claims.selectors import (
    Asked,
    NotEvaluated,
    SelectorFailed,
    Selectors,
    compiling_effort,
    named,
    named_by_all,
)
from scheduler.core.model.devices import DeviceKind
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
    assert [selectors.take(Asked((model("h100"),)), kind) for kind in _kinds(model="h100")] == [True] * 3
    assert [selectors.take(Asked((model("h100"),)), kind) for kind in _kinds(model="a100")] == [False] * 3
    assert (compiler.compiled[model("h100")], compiler.evaluated[model("h100")]) == (1, 2)


def test_the_domain_of_the_driver_may_be_left_out_by_it() -> None:
    compiler = Compiler()
    selectors = Selectors(compiler)
    (short, *_), (full, *_) = _kinds(model="h100"), _kinds(**{f"{DRIVER}/model": "h100"})
    assert selectors.take(Asked((model("h100"),)), short)
    assert selectors.take(Asked((model("h100"),)), full)


def test_all_expressions_have_to_take_a_device_and_the_first_that_fails_is_told() -> None:
    selectors = Selectors(Compiler())
    kind, *_ = _kinds(model="h100")
    assert not selectors.take(Asked((model("a100"), "nonsense")), kind)
    for _ in range(2):
        with pytest.raises(SelectorFailed, match="nonsense: can't be read"):
            selectors.take(Asked((model("h100"), "nonsense")), kind)
    for _ in range(2):
        with pytest.raises(SelectorFailed, match="no such key"):
            selectors.take(Asked(('device.attributes["x"].y == 1',)), kind)


class _TakesNone:
    effort = 1
    size_bytes = 100

    def matches(self, _: DeviceKind) -> bool:
        raise SelectorFailed("x" * 100)


class _TakesAll:
    effort = 700
    size_bytes = 100

    def matches(self, device: DeviceKind) -> bool:
        return True


def _uuid(name: str) -> str:
    return f'device.attributes["{DRIVER}"].uuid == "{name}"'


def test_compiling_and_evaluating_are_charged_once_and_an_evaluation_what_it_may_take() -> None:
    selectors, efforts = Selectors(lambda _: _TakesAll()), []
    for expression in (model("h100"), model("h100"), "[1].all(x, x > 0)"):
        before = selectors.effort_spent
        assert selectors.take(Asked((expression,)), _kinds(model="h100")[0])
        efforts.append(selectors.effort_spent - before)
    first, again, loop = efforts
    assert first == compiling_effort(model("h100")) + 700 + 4
    assert again == 0
    assert loop == compiling_effort("[1].all(x, x > 0)") + 700


@pytest.mark.parametrize(
    ("expression", "longer"),
    [
        ("a == 1", "a == 1 || a == 2"),
        ("x == 'a'", "x == '" + "a" * 1_000 + "'"),
        ("[1].size() == 1", "[1].all(x, x == 1)"),
        ("'a == b == c' == x", "a == b == c == x == 1"),
        ("'a == b == c' == x", "'a == b == c == x"),
    ],
)
def test_a_longer_expression_costs_more_to_compile(expression: str, longer: str) -> None:
    assert compiling_effort(longer) > compiling_effort(expression)


@pytest.mark.parametrize("part", ["'", '"', "\\'", "'\\", "'a", "'\"", "''", "a'\\''"])
def test_counting_the_words_of_an_expression_takes_a_time_that_grows_with_its_length(part: str) -> None:
    expression = part * (10_000 // len(part))
    before = time.thread_time()
    assert compiling_effort(expression) > 1_000
    assert time.thread_time() - before < 0.1


def test_an_expression_that_takes_too_long_to_compile_is_refused_with_the_reason() -> None:
    compiler, expression = Compiler(), " || ".join(["true"] * 2_000)
    with pytest.raises(SelectorFailed, match=r"compiling it may take [\d,]+ microseconds; 40,000 are allowed"):
        Selectors(compiler).take(Asked((expression,)), _kinds()[0])
    assert not compiler.compiled


def test_nothing_more_is_evaluated_after_what_may_be_spent_and_what_was_is_kept() -> None:
    compiler = Compiler()
    selectors, kinds = Selectors(compiler), _kinds()
    asked = Asked(own=(_uuid("u0"),), namespace="team")
    enough = compiling_effort(asked.own[0]) + 1
    selectors.spend_at_most(enough)
    assert selectors.take(asked, kinds[0])
    with pytest.raises(NotEvaluated):
        selectors.take(asked, kinds[1])
    assert compiler.evaluated[asked.own[0]] == 1
    selectors.spend_at_most(None)
    assert [selectors.take(asked, kind) for kind in kinds] == [True, False, False]
    assert compiler.evaluated[asked.own[0]] == 3


def test_of_the_namespace_that_takes_most_the_oldest_expressions_are_dropped() -> None:
    compiler = Compiler()
    selectors, kind = Selectors(compiler, most_bytes=100_000), _kinds(model="h100")[0]
    quiet = Asked(of_class=(model("h100"),), own=(model("a100"),), namespace="quiet")
    selectors.take(quiet, kind)
    for number in range(200):
        selectors.take(Asked(own=(model(f"m{number}"),), namespace="flood"), kind)
        assert selectors.size_bytes <= 100_000
    selectors.take(quiet, kind)
    assert (compiler.compiled[model("h100")], compiler.compiled[model("a100")]) == (1, 1)
    selectors.take(Asked(own=(model("m199"),), namespace="flood"), kind)
    selectors.take(Asked(own=(model("m0"),), namespace="flood"), kind)
    assert (compiler.compiled[model("m199")], compiler.compiled[model("m0")]) == (1, 2)


def test_of_many_namespaces_those_lose_all_that_asked_least_recently() -> None:
    compiler = Compiler()
    selectors, kind = Selectors(compiler, most_bytes=100_000), _kinds(model="h100")[0]
    used = Asked(own=(model("h100"), model("a100")), namespace="used")
    for number in range(500):
        assert not selectors.take(used, kind)
        selectors.take(Asked(own=(model("x"),), namespace=f"ns-{number}"), kind)
        assert selectors.size_bytes <= 100_000
    assert (compiler.compiled[model("h100")], compiler.compiled[model("a100")]) == (1, 1)
    assert compiler.compiled[model("x")] == 500
    selectors.take(Asked(own=(model("x"),), namespace="ns-499"), kind)
    assert compiler.compiled[model("x")] == 500
    selectors.take(Asked(own=(model("x"),), namespace="ns-0"), kind)
    assert compiler.compiled[model("x")] == 501


def test_a_namespace_never_has_more_than_half() -> None:
    compiler = Compiler()
    selectors, kind = Selectors(compiler, most_bytes=100_000), _kinds(model="h100")[0]
    for number in range(100):
        selectors.take(Asked(own=(model(f"m{number}"),), namespace="flood"), kind)
        assert selectors.size_bytes <= 50_000


def test_texts_about_devices_count_no_more_once_they_are_dropped() -> None:
    selectors = Selectors(lambda _: _TakesNone(), most_bytes=20_000)
    listed = [device(f"d{n}", attributes={"uuid": f"u{n}"}) for n in range(300)]
    kinds = [each.kind for each in devices("n1", *listed).devices]
    sizes = []
    for _ in range(4):
        for kind in kinds:
            with pytest.raises(SelectorFailed):
                selectors.take(Asked(own=(_uuid("x"),), namespace="other"), kind)
        sizes.append(selectors.size_bytes)
    assert max(sizes) <= 10_000
    assert min(sizes) > 2_000


def test_an_expression_whose_answers_alone_are_too_much_gives_the_same_answers() -> None:
    selectors = Selectors(Compiler(), most_bytes=20_000)
    listed = [device(f"d{n}", attributes={"uuid": f"u{n}"}) for n in range(300)]
    kinds = [each.kind for each in devices("n1", *listed).devices]
    for _ in range(2):
        assert [selectors.take(Asked((_uuid("u7"),)), kind) for kind in kinds] == [n == 7 for n in range(300)]
        assert selectors.size_bytes <= 20_000


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_those_of_the_expression_whatever_is_dropped_meanwhile(seed: int) -> None:
    chance = random.Random(seed)
    selectors = Selectors(Compiler(), most_bytes=30_000)
    listed = [device(f"d{n}", attributes={"uuid": f"u{n}", "model": f"m{n % 4}"}) for n in range(60)]
    kinds = [each.kind for each in devices("n1", *listed).devices]
    for _ in range(2_000):
        at, wanted = chance.randrange(60), chance.randrange(8)
        asked, expected = chance.choice(
            [
                (_uuid(f"u{wanted}"), at == wanted),
                (model(f"m{wanted}"), at % 4 == wanted),
                ('device.attributes["x"].y == 1', None),
            ]
        )
        own = Asked(own=(asked,), namespace=chance.choice("abc"))
        if expected is None:
            with pytest.raises(SelectorFailed, match="no such key"):
                selectors.take(own, kinds[at])
        else:
            assert selectors.take(own, kinds[at]) is expected


@pytest.mark.thorough
def test_an_answer_occupies_a_byte_and_a_device_is_kept_once_for_all_expressions() -> None:
    listed = [device(f"d{n}", attributes={"uuid": f"u{n}"}) for n in range(8_000)]
    kinds = [each.kind for each in devices("n1", *listed).devices]
    selectors = Selectors(lambda _: _TakesAll())

    def occupied(numbers: range) -> int:
        before, _ = tracemalloc.get_traced_memory()
        for number in numbers:
            asked = Asked(own=(_uuid(f"u{number}"),), namespace="team")
            for kind in kinds:
                selectors.take(asked, kind)
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    first = occupied(range(1))
    counted = selectors.size_bytes
    more = occupied(range(1, 9))
    tracemalloc.stop()
    assert first < counted < 2 * first
    assert first + 1_024 * more / 8 < 16 << 20
    assert more < selectors.size_bytes - counted
