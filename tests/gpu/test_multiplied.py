from __future__ import annotations

import pytest

from gpu.node_resources import multiplied, slices_are

COUNT = "nvidia.com/gpu.count"
REPLICAS = "nvidia.com/gpu.replicas"
STRATEGY = "nvidia.com/gpu.sharing-strategy"
REGISTER = "hami.io/node-nvidia-register"
TWO_CARDS = "GPU-03f6,10,32768,100,NVIDIA-A100,0,true:GPU-7a1c,10,32768,100,NVIDIA-A100,0,true:"
TWO_CARDS_NEWER = '[{"id":"GPU-03f6","count":10,"devmem":32768},{"id":"GPU-7a1c","count":10,"devmem":32768}]'


@pytest.mark.parametrize(
    ("labels", "annotations", "offered", "expected"),
    [
        ({}, {}, 8, ""),
        ({COUNT: "8", REPLICAS: "1", STRATEGY: "none"}, {}, 8, ""),
        ({COUNT: "8"}, {}, 7, ""),
        ({COUNT: "2", REPLICAS: "4", STRATEGY: "time-slicing"}, {}, 8, f"8 nvidia.com/gpu of 2 by label {COUNT}"),
        ({COUNT: "2"}, {}, 3, f"3 nvidia.com/gpu of 2 by label {COUNT}"),
        # Labels of a plugin that has gone, which nobody took off.
        ({COUNT: "2", REPLICAS: "4", STRATEGY: "mps"}, {}, 2, ""),
        # Replicas under another name, and none under the vendor's own.
        ({COUNT: "2", REPLICAS: "4", STRATEGY: "time-slicing"}, {}, 0, ""),
        # Without a number of cards.
        ({REPLICAS: "2"}, {}, 8, f"label {REPLICAS}=2"),
        ({REPLICAS: "1", STRATEGY: "mps"}, {}, 8, ""),
        ({STRATEGY: "mps"}, {}, 8, f"label {STRATEGY}=mps"),
        ({STRATEGY: "none"}, {}, 8, ""),
        ({COUNT: "many", REPLICAS: "4"}, {}, 8, f"label {REPLICAS}=4"),
        ({REPLICAS: "-2"}, {}, 8, ""),
        ({REPLICAS: "999999999"}, {}, 8, f"label {REPLICAS}=999999999"),
        ({REPLICAS: "1000000000"}, {}, 8, ""),
        # HAMi, in both of its formats; left behind when NVIDIA's plugin is back.
        ({}, {REGISTER: TWO_CARDS}, 20, f"20 nvidia.com/gpu of 2 by annotation {REGISTER}"),
        ({}, {REGISTER: TWO_CARDS_NEWER}, 20, f"20 nvidia.com/gpu of 2 by annotation {REGISTER}"),
        ({}, {REGISTER: TWO_CARDS}, 2, ""),
        ({}, {REGISTER: "nothing that can be read"}, 20, ""),
        ({COUNT: "2"}, {REGISTER: "GPU-03f6"}, 2, ""),
        # Slices of MIG are refused for another reason.
        ({COUNT: "1", "nvidia.com/mig.strategy": "single"}, {}, 7, ""),
    ],
)
def test_a_node_whose_gpus_are_offered_several_times_is_known(
    labels: dict[str, str], annotations: dict[str, str], offered: int, expected: str
) -> None:
    assert multiplied(labels, annotations, offered) == expected


@pytest.mark.parametrize(("text", "are"), [("2", True), ("1", False), ("0", False), ("", False), ("many", False)])
def test_slices_that_are_offered_several_times_are_known_by_their_own_label(text: str, are: bool) -> None:
    resource = "nvidia.com/mig-1g.10gb"
    assert slices_are({f"{resource}.replicas": text} if text else {}, resource) is are
    assert not slices_are({f"{resource}.replicas": text}, "nvidia.com/mig-3g.40gb")
