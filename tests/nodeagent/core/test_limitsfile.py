from __future__ import annotations

import json

from nodeagent.core.edits import Edits
from nodeagent.core.limitsfile import content

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"


def test_each_pod_is_a_device_with_its_own_edits() -> None:
    said = json.loads(content({POD: Edits(env={"A": "1"}), OTHER: Edits(env={"A": "2"})}))
    assert said == {
        "cdiVersion": "0.5.0",
        "kind": "moorage.dev/limits",
        "devices": [
            {"name": OTHER, "containerEdits": {"env": ["A=2"]}},
            {"name": POD, "containerEdits": {"env": ["A=1"]}},
        ],
    }


def test_the_same_is_the_same_file() -> None:
    one, two = Edits(env={"A": "1"}), Edits(env={"A": "2"})
    assert content({POD: one, OTHER: two}) == content({OTHER: two, POD: one})
