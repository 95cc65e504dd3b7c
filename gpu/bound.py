"""All that a Binding writes into its pod: what KAI's tools read, our grant, and what apps of the pod's dialect read.

The scheduler's direct commits and the binder post the same, so it is made here, of values that both of them have.
Variables of containers are known only now, when the spec is fixed: they are written as annotations, which the env that
admission put into the containers reads (``env.moorage.dev/c0.NAME``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpu import drivercaps
from gpu.dialects import combine
from gpu.drivercaps import env_key
from gpu.grant import BoundMetadata, Grant, shared_metadata, whole_metadata
from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE
from gpu.translation import GivenDevice, Translation

#: What the API server takes as the part of a key behind the slash. A Binding's keys it merges unseen, and refuses every
#: later write of a pod that has a wrong one.
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)

_NOTHING_ELSE: Final = BoundMetadata({}, {})
#: Stands in for a device that is not known yet.
_STAND_IN: Final = GivenDevice(uuid="", index=0, mem_mib=0, nano=NANO_PER_DEVICE)


def given(grant: Grant, held: Sequence[Reservation]) -> tuple[GivenDevice, ...]:
    """The devices of a grant, of which ``held`` are the reservations in the same order."""
    return tuple(
        GivenDevice(device.uuid, holder.index, holder.mem_mib, device.nano)
        for device, holder in zip(grant.devices, held, strict=True)
    )


def metadata(
    taken: Translation,
    grant: Grant,
    devices: Sequence[GivenDevice],
    *,
    node: str,
    at_ns: int,
    cdi: bool = False,
    also: BoundMetadata = _NOTHING_ELSE,
    beside: Sequence[str] = (),
) -> BoundMetadata:
    """Labels and annotations of a pod that is bound to ``node`` at ``at_ns`` (Unix time).

    ``taken.request`` is the alternative that was taken; the grant has no devices where that is whole devices or none,
    which kubelet hands out after the Binding. Of one key, KAI's part and the grant win.

    ``cdi``: containers are told their devices by CDI names. ``also``: what is written beside these, such as the node
    pool and the queue. ``beside``: as in shared_metadata.
    """
    ours = (
        shared_metadata(grant, taken.request, cdi=cdi, beside=beside)
        if grant.devices
        else whole_metadata(taken.request)
    )
    written = combine.written_back(taken, devices, node=node, at_ns=at_ns, cdi=cdi)
    caps = drivercaps.env(taken.request, devices) if taken.driver_caps else {}
    given_env = {**_of_env(written.env), **_of_env(caps)}
    annotations = {**_sound(written.annotations), **given_env, **also.annotations, **ours.annotations}
    return BoundMetadata({**_sound(written.labels), **also.labels, **ours.labels}, annotations)


def env_names(translation: Translation) -> dict[str, tuple[str, ...]]:
    """Variables that a Binding may say, by container key: of whichever alternative will be taken, sorted.

    Found by writing to devices that stand in for those to come: which variables there are hangs on what is asked alone.
    """
    found: dict[str, set[str]] = {}
    if translation.driver_caps:
        found.update((key, set(drivercaps.VARIABLES)) for key in drivercaps.capped(translation))
    for request in (translation.request, *translation.alternatives):
        # One unit a device: how many there are makes long values, and no further names.
        asked = msgspec.structs.replace(translation, request=request, unit=1)
        devices = [_STAND_IN] * len(request.shared)
        for key, variables in combine.written_back(asked, devices, node="", at_ns=0).env.items():
            found.setdefault(key, set()).update(variables)
    return {key: tuple(sorted(variables)) for key, variables in sorted(found.items())}


def _of_env(env: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {env_key(key, name): value for key, variables in env.items() for name, value in variables.items()}


def _sound(texts: Mapping[str, str]) -> dict[str, str]:
    """Leave out keys that can't be, such as those of NvFractions with the name of a container that is too long."""
    return {key: value for key, value in texts.items() if _NAME.fullmatch(key.rpartition("/")[2])}
