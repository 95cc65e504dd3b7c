"""What ``moorage inspect`` is asked for: kinds of objects with their spellings, formats, outputs, units."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = "cluster"
NODE: Final = "node"
POD: Final = "pod"
GROUP: Final = "podgroup"
QUEUE: Final = "queue"
#: As kubectl's users write them.
SPELLINGS: Final = {
    CLUSTER: CLUSTER,
    **dict.fromkeys((NODE, "nodes", "no"), NODE),
    **dict.fromkeys((POD, "pods", "po"), POD),
    **dict.fromkeys((GROUP, "podgroups", "pg", "group"), GROUP),
    **dict.fromkeys((QUEUE, "queues"), QUEUE),
}
ALIYUN: Final = "aliyun"
FORMATS: Final = ("moorage", ALIYUN)
UNITS_MIB: Final = {"GiB": 1024, "MiB": 1}
