"""Compare Moorage with kube-scheduler's plug-ins: ``python -m tools.kubeoracle --snapshots 1000000 --seed 20260101``.

Snapshots are numbered from the seed on, so that those of another day are others. The exit code says whether they agree.
"""

from __future__ import annotations

import argparse
import sys
import time

from tools.goprogram import Unavailable
from tools.kubeoracle import program
from tools.kubeoracle.asking import Oracle
from tools.kubeoracle.running import run

#: Each seed has so many snapshots of its own.
SNAPSHOTS_OF_A_SEED = 10_000_000


def main() -> int:
    """Compare, and say what was compared."""
    parser = argparse.ArgumentParser(prog="python -m tools.kubeoracle")
    parser.add_argument("--snapshots", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=10, help="differences after which it stops")
    asked = parser.parse_args()
    try:
        oracle = Oracle(program.ensure())
    except Unavailable as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
    first, started, cpu = asked.seed * SNAPSHOTS_OF_A_SEED, time.monotonic(), time.process_time()
    with oracle:
        found = run(oracle, range(first, first + asked.snapshots), most=asked.most)
    for difference in found.differences:
        print(difference)
    seen = found.coverage
    print(
        f"{seen.snapshots} snapshots, {seen.nodes} nodes of which {seen.feasible} are feasible,"
        f" {len(found.differences)} differences; {time.monotonic() - started:.1f} s,"
        f" CPU of ours {time.process_time() - cpu:.1f} s"
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
