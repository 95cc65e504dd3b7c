from __future__ import annotations

import pytest

from gpu import limits
from gpu.limits import MemoryCaps
from gpu.request import MemoryAsk
from tests.gpu.test_agentlimits import asks

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
VIEW, LIMITS = f"moorage.dev/view={POD}", f"moorage.dev/limits={POD}"


@pytest.mark.parametrize(
    ("enforces", "shows_tenants", "memory_caps", "given"),
    [
        ((), False, MemoryCaps.WISHED, ()),
        ((), True, MemoryCaps.WISHED, (VIEW,)),
        (("memory-cap=hami-core",), False, MemoryCaps.WISHED, (LIMITS,)),
        (("memory-cap=hami-core",), True, MemoryCaps.WISHED, (VIEW, LIMITS)),
        (("memory-cap=hami-core",), True, MemoryCaps.NONE, (VIEW,)),
    ],
)
def test_each_device_is_named_where_its_node_has_it(
    enforces: tuple[str, ...], shows_tenants: bool, memory_caps: MemoryCaps, given: tuple[str, ...]
) -> None:
    pod = asks((MemoryAsk(mem_mib=1024),))
    named = limits.devices(POD, pod, enforces=enforces, shows_tenants=shows_tenants, memory_caps=memory_caps)
    assert named == given
    assert all(each.startswith(limits.PREFIXES) for each in named)
