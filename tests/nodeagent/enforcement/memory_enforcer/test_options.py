from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.enforcement.overuse import Rules
from nodeagent.enforcement.memory_enforcer import main
from nodeagent.enforcement.memory_enforcer.loop import LONGEST_NS, SHORTEST_NS, Pace

SECOND = 10**9


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    main.add_options(parser)
    return parser.parse_args(words)


def test_an_enforcer_that_is_told_nothing_ends_nobody() -> None:
    given = parsed()
    assert main.rules(given) == Rules()
    assert main.rules(given).dry_run
    assert main.pace(given) == Pace()
    assert given.socket == "/run/moorage/memory-enforcer/memory-enforcer.sock"
    assert (given.driver_limits, given.control_groups) == ("false", "/sys/fs/cgroup")


@pytest.mark.parametrize(
    ("written", "interval_ns"),
    [("1", SECOND), ("0.25", SECOND // 4), ("10", 10 * SECOND), ("2.500000001", 2_500_000_001)],
)
def test_an_interval_is_seconds(written: str, interval_ns: int) -> None:
    assert main.pace(parsed("--interval-s", written)).interval_ns == interval_ns


@pytest.mark.parametrize("written", ["", "1s", "-1", "1e0", "0.1", "10.000000001", "1.0000000001", "٣", " 1", "nan"])
def test_what_is_no_interval_is_refused(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--interval-s={written}")
    assert "0.25 to 10 seconds are allowed" in capsys.readouterr().err


def test_what_is_ending_has_its_grace_and_five_seconds_more() -> None:
    rules = main.rules(parsed("--grace-s", "30", "--dry-run", "false", "--tolerance-mib", "0"))
    assert (rules.leaving_ns, rules.dry_run, rules.tolerance_mib) == (35 * SECOND, False, 0)


@given(st.integers(SHORTEST_NS, LONGEST_NS), st.integers(0, 60 * SECOND), st.integers(0, 65_536), st.sampled_from("01"))
def test_options_are_written_as_they_are_read(interval_ns: int, grace_ns: int, tolerance_mib: int, dry: str) -> None:
    given = argparse.Namespace(
        socket="/a b/c.sock",
        interval_s=interval_ns,
        grace_s=grace_ns,
        tolerance_mib=tolerance_mib,
        dry_run="true" if dry == "1" else "false",
        driver_limits="false" if dry == "1" else "true",
        control_groups="/sys/fs/c group",
    )
    assert parsed(*main.written(given)) == given


@pytest.mark.parametrize("written", ["", "sys/fs/cgroup", "/" + "x" * 1024])
def test_control_groups_are_at_a_path_from_the_root_on(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--control-groups={written}")
    assert "a path from / on of at most 1024 signs is allowed" in capsys.readouterr().err
