"""Judge suggested changes in many clusters: ``python -m verification.what_if --seeds 1-2000``.

As ``make simulate-suggestions``. The exit code is 1 when a change that was told does not help, one that helps was not
told, or a run broke an invariant.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from verification.hostile.soak import seeds_in
from verification.what_if.judging import Judged, judge


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge, and print what came true, in all and by family."""
    parser = argparse.ArgumentParser(prog="python -m verification.what_if", description=__doc__)
    parser.add_argument("--seeds", type=seeds_in, required=True, metavar="A-B", help="one seed, or the first and last")
    parser.add_argument("--minutes", type=float, default=0.0, help="start no further seed after so long")
    parser.add_argument("--most", type=int, default=2, help="changes tried where nothing is said to help")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args(arguments)
    until_s = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    clusters, all_of_them = 0, Judged()
    with ProcessPoolExecutor(options.workers) as pool:
        for judged in pool.map(partial(_judged, most=options.most, until_s=until_s), options.seeds):
            if judged is None:
                continue
            clusters += 1
            all_of_them.add(judged)
            for wrong in judged.wrong:
                print(wrong, flush=True)
    for line in lines(clusters, all_of_them):
        print(line)
    return 1 if all_of_them.wrong else 0


def _judged(seed: int, *, most: int, until_s: float) -> Judged | None:
    """Judge one cluster; None when the time is over."""
    if time.monotonic() >= until_s:
        return None
    judged = Judged()
    try:
        judge(seed, judged, most=most)
    except Exception as error:  # noqa: BLE001 - the edge of one seed
        judged.wrong.append(f"seed {seed}: {error!r}")
    return judged


def lines(clusters: int, judged: Judged) -> list[str]:
    """Report what was judged."""
    found = [f"{clusters} clusters, {judged.groups} groups that wait; told changes that help:"]
    for family, told in sorted(judged.families.items(), key=lambda item: item[0].value):
        found.append(f"  {family.value:<18} {_rate(judged.helped_families[family], told)}")
    found.append(f"  {'all':<18} {_rate(judged.helped, judged.told)}")
    found.append(f"nothing helps: {judged.silent} groups, {judged.tried} other changes tried, {judged.unsaid} helped")
    return found


def _rate(helped: int, told: int) -> str:
    return f"{helped} of {told}" + (f" ({100 * helped / told:.2f} %)" if told else "")


if __name__ == "__main__":
    raise SystemExit(main())
