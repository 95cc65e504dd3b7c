"""What NVIDIA's device plugin calls the devices that it hands out (docs/design/slices.md).

``nvidia.com/gpu``, or a MIG profile's own resource. Such a name goes into the pods that we make and comes from objects
that others wrote, so it is checked where it comes in.
"""

from __future__ import annotations

import re
from typing import Final

from wire import names

#: Resources of MIG slices as the device plugin names them: ``mig-1g.5gb``, ``mig-1c.3g.20gb``, ``mig-1g.10gb.me``. A
#: regular expression in the common tongue of Python and CEL.
MIG_RESOURCE: Final = re.escape(names.MIG_RESOURCE_PREFIX) + r"([1-9]c\.)?[1-9]g\.[1-9][0-9]*gb([.-][a-z]+)*"
#: How GPU discovery ends the product's name where all slices of a node are of one profile and called GPUs.
_SINGLE: Final = re.compile(r".*-MIG-(?P<profile>[1-9]g\.[1-9][0-9]*gb([.+-][a-z]+)*)", re.ASCII)


def is_device_resource(name: str) -> bool:
    """Whether the vendor's plugin hands out devices under this name."""
    return name == names.GPU_RESOURCE or re.fullmatch(MIG_RESOURCE, name, re.ASCII) is not None


def slice_resource(profile: str) -> str:
    """The resource of a profile's slices, where the plugin names them apart (its strategy ``mixed``)."""
    return names.MIG_RESOURCE_PREFIX + profile.replace("+", ".")


def single_profile(product: str) -> str:
    """The profile of all slices of a node, as its product label says where they are called GPUs; "" for cards."""
    found = _SINGLE.fullmatch(product)
    return found["profile"].replace("+", ".") if found else ""
