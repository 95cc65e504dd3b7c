"""Whose ConfigMap it is that is there already: the container must see what the attempt that binds has written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from binder.core.configmaps import Standing, manifests, standing
from gpu.grant import DeviceGrant, Grant
from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk
from wire import names
from wire.core import ConfigMap

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-1"}
DATA = {names.ENV_VISIBLE_DEVICES: "GPU-0"}


def _config_map(
    *, rv: str = "10", data: dict[str, str] | None = None, owner: str = "pod-1", immutable: bool = True
) -> dict[str, Any]:
    annotations = {names.POD_VERSION: rv} if rv else {}
    metadata = {"name": "maps-0", "annotations": annotations, "ownerReferences": [{**OWNER, "uid": owner}]}
    return {"metadata": metadata, "data": DATA if data is None else data, "immutable": immutable}


OTHER = {names.ENV_VISIBLE_DEVICES: "GPU-1"}


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (_config_map(), Standing.OURS),
        (_config_map(data=OTHER), Standing.RIVAL),
        (_config_map(immutable=False), Standing.RIVAL),
        (_config_map(rv="9"), Standing.OLDER),
        (_config_map(rv="9", data=OTHER), Standing.OLDER),
        (_config_map(rv="11"), Standing.NEWER),
        (_config_map(rv="100", data=OTHER), Standing.NEWER),
        (_config_map(rv=""), Standing.OLDER),
        (_config_map(rv="", data=OTHER), Standing.OLDER),
        (_config_map(owner="pod-0"), Standing.FOREIGN),
        (_config_map(rv="9", owner="pod-0"), Standing.FOREIGN),
        ({"metadata": {"name": "maps-0"}, "data": DATA, "immutable": True}, Standing.FOREIGN),
    ],
)
def test_only_what_an_attempt_wrote_that_can_not_bind_any_more_is_replaced(
    there: dict[str, Any], expected: Standing
) -> None:
    assert standing(msgspec.convert(there, ConfigMap), _config_map()) is expected


@pytest.mark.parametrize(("ask", "portion"), [(FractionAsk(132_371_435), "0.13"), (MemoryAsk(2000), "0.14")])
def test_what_memory_comes_to_is_rounded_up_as_kai_counts_it(ask: Ask, portion: str) -> None:
    request = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), (ask,)),))
    grant = Grant("attempt", (DeviceGrant("g", "R-g", "GPU-0", 132_371_435),))
    made, direct = manifests(prefix="maps", pod_name="p", pod_uid="pod-1", rv="10", grant=grant, request=request)
    assert made["immutable"] is direct["immutable"] is True
    assert made["data"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-0", "RUNAI_NUM_OF_GPUS": portion, "GPU_PORTION": portion}
