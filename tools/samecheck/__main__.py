"""Compare ``moorage simulate`` with a cluster: ``python -m tools.samecheck examples --made 100 --seed 7``.

Each file is a manifest of its own; ``FILE+FILE`` are created together. Pods, PodGroups, GPUs in use and reasons are
compared, on a real control plane with Moorage's components and simulated nodes. The exit code says whether all agree.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from simulator.nodes import shape
from tools.samecheck import drawing
from tools.samecheck.cluster import Cluster
from tools.samecheck.comparing import Side, differences
from tools.samecheck.simulated import adopted, items, left_out, simulate


def main(arguments: Sequence[str]) -> int:
    """Compare all manifests; print what differs, and counts at the end."""
    parser = argparse.ArgumentParser(prog="python -m tools.samecheck", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="a manifest, several joined by +, or a folder of them")
    parser.add_argument("--nodes", action="append", metavar="NxGxMEM", help="the nodes of all (default 4x8x80GiB)")
    parser.add_argument("--made", type=int, default=0, metavar="COUNT", help="number of random manifests")
    parser.add_argument("--seed", type=int, default=1, help="the first random manifest (default 1)")
    parser.add_argument("--adopt-all", action="store_true", help="give all pods of files to Moorage")
    asked = parser.parse_args(arguments)
    nodes = asked.nodes or ["4x8x80GiB"]
    shapes = shape.parse(nodes)
    dress = drawing.dress(shapes) if asked.made else {}
    manifests = [*_of_files(asked.files), *_made(asked.seed, asked.made, len(shapes))]
    left: Counter[str] = Counter()
    checked = pods = wrong = 0
    with Cluster(nodes, dress) as cluster:
        for name, documents in manifests:
            objects = [adopted(each) if asked.adopt_all else each for each in items(documents)]
            whys = [(each, left_out(each, cluster.serves)) for each in objects]
            left.update(filter(None, (why for _, why in whys)))
            kept = [each for each, why in whys if not why]
            if not kept:
                continue
            mine = simulate(kept, shapes, dress)

            def agrees(found: Side, foretold: Side = mine.side) -> bool:
                return not any(differences(foretold, found))

            theirs = cluster.run(kept, mine.accounts, agrees=agrees)
            found = [*(f"simulate: {each}" for each in mine.broken), *differences(mine.side, theirs)]
            checked, pods, wrong = checked + 1, pods + theirs.count, wrong + bool(found)
            print(f"{name}: {theirs.count} pods, {len(found)} differences", flush=True)
            for line in found:
                print(f"  {line}", flush=True)
    for why, count in sorted(left.items()):
        print(f"left out: {count} x {why}")
    print(f"{checked} manifests with {pods} pods compared, {wrong} differ")
    return 1 if wrong else 0


def _of_files(given: Sequence[str]) -> Iterator[tuple[str, list[object]]]:
    for name in given:
        paths = [Path(each) for each in name.split("+")]
        within = sorted(found for each in paths if each.is_dir() for found in each.rglob("*.yaml"))
        for together in [[each] for each in within] or [paths]:
            documents = [each for path in together for each in yaml.safe_load_all(path.read_text())]
            yield "+".join(map(str, together)), documents


def _made(seed: int, count: int, nodes: int) -> Iterator[tuple[str, list[object]]]:
    for number in range(seed, seed + count):
        yield f"made {number}", [*drawing.draw(number, nodes)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
