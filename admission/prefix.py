"""A ConfigMap prefix for a pod, as KAI makes it (kai-contract 1.3 step 2), valid for every pod that can come.

KAI takes the first owner's name or the pod's, cuts it and adds seven random characters. A pod made with generateName
has no name yet when it is admitted (erratum 9), and an owner may be of a kind whose names are not DNS names, so here
the name is first made one.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpu.configmaps import container_suffix
from gpu.request import ContainerRef

_RANDOM_LENGTH: Final = 7
_MARK: Final = "shared-gpu"
_ALPHABET: Final = string.ascii_lowercase + string.digits
_UNNAMED: Final = "pod"


def new_prefix(metadata: Mapping[str, Any], containers: Iterable[ContainerRef], rng: random.Random) -> str:
    """Return ``<base>-<7 random>-shared-gpu`` for a pod whose shares go to these containers, of which there is one."""
    longest = max(len(container_suffix(container)) for container in containers)
    tail = "".join(rng.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))
    return f"{_base(_source_name(metadata), longest)}-{tail}-{_MARK}"


def _source_name(metadata: Mapping[str, Any]) -> str:
    owners = metadata.get("ownerReferences") or [{}]
    candidates = (owners[0].get("name"), metadata.get("name"), metadata.get("generateName"))
    return next((name for name in candidates if name), "")


def _base(name: str, suffix_length: int) -> str:
    """Make a DNS name of any text, short enough for the volume's name, a label of 63 characters.

    The budget is KAI's, so a name that it leaves whole stays whole here: beside the base there are 13 characters of
    other suffixes, 10 of "shared-gpu", the container's suffix, and dashes.
    """
    budget = 63 - 13 - len(_MARK) - suffix_length - 1 - 5
    text = re.sub(r"[^a-z0-9.-]+", "-", name.lower())
    text = re.sub(r"[.-]*\.[.-]*", ".", text).strip(".-")
    return text[:budget].rstrip(".-") or _UNNAMED
