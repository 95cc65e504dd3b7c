from __future__ import annotations

from pathlib import Path

import pytest

from simulator.nodes.device_manager import BadCheckpoint, Checkpoints, DeviceManager, make_devices
from simulator.nodes.shape import NodeShape

CARDS = make_devices(NodeShape(name="node-0", cards_mib=(1024,) * 4), seed=1)


def manager(checkpoints: Checkpoints, *, reverse: bool = False) -> DeviceManager:
    made = DeviceManager(CARDS[::-1] if reverse else CARDS, lambda held: checkpoints.save("node-0", held))
    made.restore(checkpoints.load("node-0", CARDS))
    return made


def test_after_a_restart_a_container_is_given_what_it_had(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "nodes")
    before = manager(checkpoints)
    before.allocate("p", "main", 2)
    before.allocate("q", "main", 1)
    before.free("q")
    after = manager(checkpoints, reverse=True)
    assert after.pods == {"p"}
    assert after.allocate("q", "main", 1) == CARDS[3:]
    assert after.allocate("p", "main", 2) == CARDS[:2]


def test_nodes_do_not_share_what_they_remember(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    manager(checkpoints).allocate("p", "main", 2)
    assert checkpoints.load("node-1", CARDS) == {}


@pytest.mark.parametrize("text", ['{"p/main": [4]}', '{"p/main": [-1]}', '{"p/main": 1}', "{", "[]"])
def test_a_file_that_is_not_of_this_node_is_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "node-0.json").write_text(text)
    with pytest.raises(BadCheckpoint, match=r"node-0\.json: not what a node with 4 GPUs gave out"):
        Checkpoints(tmp_path).load("node-0", CARDS)
