"""Compare Moorage with kube-scheduler's plug-ins: ``python -m tools.kubeoracle --snapshots 1000000 --seed 20260101``.

Snapshots are numbered from the seed on, so that those of another day are others. The exit code says whether they agree.
``--parts FILE`` writes down each part of 10,000: the same command goes on after them, also once it was stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tools.goprogram import Unavailable
from tools.kubeoracle import comparing, program
from tools.kubeoracle.comparing import Found, run
from tools.kubeoracle.program import Oracle

#: Each seed has this many snapshots of its own.
SNAPSHOTS_OF_A_SEED = 10_000_000


def main() -> int:
    """Compare, and say what was compared."""
    parser = argparse.ArgumentParser(prog="python -m tools.kubeoracle")
    parser.add_argument("--snapshots", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=10, help="differences after which it stops")
    parser.add_argument("--parts", type=Path, metavar="FILE", help="keep finished parts in FILE, and go on after them")
    asked = parser.parse_args()
    try:
        oracle = Oracle(program.ensure())
    except Unavailable as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
    first, known = asked.seed * SNAPSHOTS_OF_A_SEED, 0

    def compare(numbers: range) -> tuple[Found, float]:
        cpu = time.process_time()
        return run(oracle, numbers, most=asked.most), time.process_time() - cpu

    with oracle:
        if asked.parts is None:
            found, cpu_s = compare(range(first, first + asked.snapshots))
        else:
            wanted = comparing.ranges(first, asked.snapshots)
            found, cpu_s, known = comparing.run_parts(
                asked.parts, wanted, compare, of_code=comparing.code(), most=asked.most
            )
    for difference in found.differences:
        print(difference)
    seen = found.coverage
    print(
        f"{seen.snapshots} snapshots, {seen.nodes} nodes of which {seen.feasible} are feasible,"
        f" {len(found.differences)} differences; {known} compared before; CPU of ours {cpu_s:.1f} s"
    )
    for feature in sorted(seen.let_in):
        print(f"  {feature}: {seen.let_in[feature]} nodes in, {seen.kept_out[feature]} out")
    for plugin in sorted(seen.ranked):
        print(
            f"  {plugin}: ranks {seen.ranked[plugin]} snapshots, some nodes out in {seen.ranked_some[plugin]} of them"
        )
    return 1 if found.differences or seen.one_sided() else 0


if __name__ == "__main__":
    sys.exit(main())
