"""A long comparison that is stopped goes on where it was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tools.kubeoracle import comparing
from tools.kubeoracle.comparing import Coverage, Found


class _Comparing:
    """Stands in for a comparison: each snapshot has two nodes, one of which fits, and some differ."""

    def __init__(self, *differing: int) -> None:
        self.asked: list[range] = []
        self._differing = differing

    def __call__(self, numbers: range) -> tuple[Found, float]:
        self.asked.append(numbers)
        seen = Coverage(len(numbers), 2 * len(numbers), len(numbers), Counter(taints=1), Counter(taints=2))
        return Found(seen, [f"snapshot {each}" for each in numbers if each in self._differing]), 1.5


def test_what_is_asked_is_cut_into_parts() -> None:
    assert [*comparing.ranges(100, 25, 10)] == [range(100, 110), range(110, 120), range(120, 125)]


def test_a_run_goes_on_after_the_parts_that_are_known(tmp_path: Path) -> None:
    path, first, second = tmp_path / "build" / "parts", _Comparing(), _Comparing()
    comparing.run_parts(path, comparing.ranges(0, 20, 10), first, of_code="a")
    found, cpu_s, known = comparing.run_parts(path, comparing.ranges(0, 40, 10), second, of_code="a")
    assert second.asked == [range(20, 30), range(30, 40)]
    assert (found.coverage.snapshots, found.coverage.nodes, found.coverage.feasible) == (40, 80, 40)
    assert (found.coverage.let_in, found.coverage.kept_out) == (Counter(taints=4), Counter(taints=8))
    assert (cpu_s, known) == (6.0, 20)


def test_parts_of_other_code_or_another_seed_do_not_count(tmp_path: Path) -> None:
    path, again = tmp_path / "parts", _Comparing()
    comparing.run_parts(path, comparing.ranges(0, 20, 10), _Comparing(), of_code="a")
    assert comparing.run_parts(path, comparing.ranges(0, 20, 10), again, of_code="b")[2] == 0
    assert comparing.run_parts(path, comparing.ranges(500, 20, 10), again, of_code="a")[2] == 0
    assert len(again.asked) == 4


def test_a_line_that_was_cut_off_is_compared_again(tmp_path: Path) -> None:
    path, again = tmp_path / "parts", _Comparing()
    comparing.run_parts(path, comparing.ranges(0, 20, 10), _Comparing(), of_code="a")
    path.write_bytes(path.read_bytes()[:-9])
    assert comparing.run_parts(path, comparing.ranges(0, 20, 10), again, of_code="a")[2] == 10
    assert again.asked == [range(10, 20)]
    assert comparing.run_parts(path, comparing.ranges(0, 20, 10), again, of_code="a")[2] == 20


def test_differences_of_known_parts_are_told_again(tmp_path: Path) -> None:
    path = tmp_path / "parts"
    for _ in range(2):
        found, _, _ = comparing.run_parts(path, comparing.ranges(0, 20, 10), _Comparing(3, 14), of_code="a")
        assert found.differences == ["snapshot 3", "snapshot 14"]


def test_a_part_that_stopped_early_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "parts"
    for _ in range(2):
        found, _, known = comparing.run_parts(path, comparing.ranges(0, 30, 10), _Comparing(1, 2), of_code="a", most=2)
        assert (len(found.differences), known) == (2, 0)


def test_another_text_of_the_code_has_another_name(tmp_path: Path) -> None:
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "a.py").write_text("a = 1\n")
    before = comparing.code(tmp_path)
    (tmp_path / "scheduler" / "a.py").write_text("a = 2\n")
    assert comparing.code(tmp_path) != before
    assert comparing.code() == comparing.code()
