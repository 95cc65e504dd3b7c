"""``python -m tools.realgpu --out FOLDER``: try on a machine with a real GPU what tests have seen on emulated ones.

It needs Python, nvidia-ml-py and the driver; no Kubernetes, network or CUDA toolkit. Three rows need Moorage's
dependencies as well. Each row runs in a process of its own, so a driver that hangs costs one row. After ``--within``
seconds no further row begins. Nothing of the GPU is changed but a memory limit of a control group of its own. Exit code
1: a row did not end as expected, or did not answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.realgpu.rows import ROWS, Outcome, Row, Tried, Verdict, as_json, as_text, outcome_data, outcome_of

_TAIL: Final = 400


def main(arguments: Sequence[str]) -> int:
    """Try all rows, or those that are named, and write the report."""
    parser = argparse.ArgumentParser(prog="python -m tools.realgpu", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(row.name for row in ROWS))
    parser.add_argument(
        "--out", type=Path, default=Path(), metavar="FOLDER", help="where report.json and report.txt go"
    )
    parser.add_argument("--within", type=float, default=170.0, metavar="S", help="seconds for all rows (default 170)")
    parser.add_argument("--here", metavar="ROW", help=argparse.SUPPRESS)
    wanted = parser.parse_args(arguments)
    by_name = {row.name: row for row in ROWS}
    if unknown := [name for name in (*wanted.rows, *filter(None, [wanted.here])) if name not in by_name]:
        parser.error(f"{unknown[0]}: no such row; there are {', '.join(by_name)}")
    if wanted.here:
        print(json.dumps(outcome_data(by_name[wanted.here].try_it())))
        return 0
    rows = [by_name[name] for name in wanted.rows] or ROWS
    until = time.monotonic() + wanted.within
    tried: list[Tried] = []
    wanted.out.mkdir(parents=True, exist_ok=True)
    for row in rows:
        tried.append(_tried(row, until - time.monotonic()))
        # Written after each row: if this program is killed, what was seen so far is there.
        (wanted.out / "report.json").write_text(as_json(tried))
        (wanted.out / "report.txt").write_text(as_text(tried))
    print(as_text(tried), end="")
    return int(any(one.outcome.verdict in {Verdict.NOT_AS_EXPECTED, Verdict.NO_ANSWER} for one in tried))


def _tried(row: Row, left_s: float) -> Tried:
    began = time.monotonic()
    outcome = _in_a_process(row, min(row.limit_s, left_s)) if left_s > 1 else _silent("no time was left")
    return Tried(row.name, row.expected, outcome, round(time.monotonic() - began, 1))


def _in_a_process(row: Row, limit_s: float) -> Outcome:
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.realgpu", "--here", row.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, said = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return _silent(f"nothing within {limit_s:.0f} s")
    finally:
        # With all that it has started; they are in its session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    try:
        return outcome_of(json.loads(printed.splitlines()[-1]))
    except (ValueError, IndexError, KeyError, TypeError):
        return _silent(f"it ended with {process.returncode}: {(said or printed).strip()[-_TAIL:]}")


def _silent(why: str) -> Outcome:
    return Outcome(Verdict.NO_ANSWER, {}, why)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
