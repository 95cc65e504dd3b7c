"""``tools.samecheck``: what ``moorage simulate`` says of manifests is what a real control plane makes of them.

``make nightly`` compares all examples and a hundred random manifests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulator.nodes import shape
from tests.e2e.cluster import share
from tools.samecheck.__main__ import main
from tools.samecheck.cluster import Cluster
from tools.samecheck.comparing import differences
from tools.samecheck.simulated import simulate

pytestmark = pytest.mark.cluster
_NODES = "2x2x80GiB"


def test_examples_and_random_manifests_come_out_alike(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["examples/06-gang.yaml", "examples/08-too-large.yaml", "examples/migrating/kueue/job.yaml"]
    assert main([*files, "--nodes", "4x8x80GiB", "--made", "3", "--seed", "1"]) == 0
    said = capsys.readouterr().out
    assert "examples/06-gang.yaml: 4 pods, 0 differences" in said
    assert "left out: 1 x Job of a Kueue queue" in said
    assert said.splitlines()[-1].startswith("5 manifests with ")
    assert said.splitlines()[-1].endswith(" 0 differ")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster([_NODES], {}) as made:
        yield made


def test_a_pod_that_asks_for_more_than_was_simulated_is_found(cluster: Cluster) -> None:
    foretold = simulate([share("a", "0.5"), share("b", "0.5")], shape.parse([_NODES]), {})
    real = cluster.run([share("a", "0.5"), share("b", "0.6")], foretold.accounts, agrees=lambda _: True)
    assert list(differences(foretold.side, real)) == [
        "default: b: only in simulate: 1 x Running; GPUs 0.5",
        "default: b: only on the cluster: 1 x Running; GPUs 0.6",
    ]


def test_a_refused_pod_is_refused_on_both_sides_and_nothing_is_left_of_the_one_before(cluster: Cluster) -> None:
    wanted = [share("a", "2.5")]
    foretold = simulate(wanted, shape.parse([_NODES]), {})
    real = cluster.run(wanted, foretold.accounts, agrees=lambda _: True)
    assert foretold.side.refused
    assert foretold.side.refused == real.refused
    assert (real.count, list(differences(foretold.side, real))) == (0, [])
