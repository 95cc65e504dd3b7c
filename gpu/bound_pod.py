"""What is written on a pod when it is bound, with a claim or without one, and whether there is room for it.

The scheduler's direct commits and the binder post the same, so it is made here, of values that both of them have. It is
what KAI's tools read, our grant, and what apps of the pod's dialect read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpu import limits
from gpu.dialects import metagpu
from gpu.grant import BoundMetadata, Grant, shared_metadata, whole_metadata
from gpu.limits import PREFIXES, env_key
from gpu.request import GpuRequest, MemoryAsk, MigAsk, SharedAsk, WholeAsk
from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE, portion_text
from gpu.translate import combine
from gpu.translate.asked import needs_record, taken
from gpu.translation import GivenDevice, Mistake, Refusal, Translation
from wire import names
from wire.core import Pod

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


def bound_metadata(
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
    caps = limits.env(taken.request, devices) if taken.driver_caps else {}
    given_env = {**_of_env(written.env), **_of_env(caps)}
    annotations = {**_sound(written.annotations), **given_env, **also.annotations, **ours.annotations}
    return BoundMetadata({**_sound(written.labels), **also.labels, **ours.labels}, annotations)


def env_names(translation: Translation) -> dict[str, tuple[str, ...]]:
    """Variables that a Binding may say, by container key: of whichever alternative will be taken, sorted.

    Found by writing to devices that stand in for those to come: which variables there are hangs on what is asked alone.

    Their values are known only at the Binding, when the spec is fixed. So they are written as annotations, which the
    env that admission put into the containers reads (``env.moorage.dev/c0.NAME``).
    """
    found: dict[str, set[str]] = {}
    if translation.driver_caps:
        found.update((key, set(limits.VARIABLES)) for key in limits.capped(translation))
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


#: What containers read in place of UUIDs: the driver hands out the device, and the runtime adds none.
_BY_DRIVER: Final = "void"


class ClaimedShare(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """A part of one device. ``nano``: what queues count. ``mem_mib``: the memory of the device, in MiB.

    ``uuid``: as the driver publishes it, "" if it does not.

    It is written in the same write as the claim in the status of the pod (KEP-5004), which maps the extended resource
    of shares to it. It counts only beside such a status, so what is left of a claim that was given back says nothing.
    """

    driver: str
    pool: str
    device: str
    nano: int
    mem_mib: int
    uuid: str = ""

    @property
    def path(self) -> str:
        """The device by its driver, pool and name, as people read it."""
        return f"{self.driver}/{self.pool}/{self.device}"


_decoder: Final = msgspec.json.Decoder(ClaimedShare)


def is_servable(request: GpuRequest) -> bool:
    """Whether a claim can give what is requested of shared devices: a part of any one, without a cap on its compute.

    A claim has no account of compute, of indexes and of MIG profiles, and whole GPUs would need another one.
    """
    shared = request.shared
    if len(shared) != 1 or any(isinstance(ask, WholeAsk | MigAsk) for c in request.containers for ask in c.asks):
        return False
    return shared[0].index < 0 and not (shared[0].profile or shared[0].compute_percent)


def is_mapped(pod: Pod) -> bool:
    """Whether the status of a pod says that a claim gives its containers their share."""
    status = pod.status.extended_resource_claim_status
    mappings = (status.request_mappings if status is not None else None) or ()
    return any(each.resource_name == names.GPU_SHARE_RESOURCE for each in mappings)


def read_claimed(pod: Pod) -> ClaimedShare | None:
    """Read the part of a device that a claim gives a pod; None without one, or if it can't be read."""
    text = (pod.metadata.annotations or {}).get(names.CLAIMED_SHARE)
    if not text or not is_mapped(pod):
        return None
    try:
        share = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return share if 0 < share.nano <= NANO_PER_DEVICE and share.mem_mib > 0 else None


def claimed_metadata(share: ClaimedShare, taken: Translation, *, node: str, at_ns: int) -> dict[str, str]:
    """Annotations of a pod that is to run on ``node`` with this share at ``at_ns`` (Unix time).

    ``taken.request`` is the alternative that was taken, with one shared device. Containers read the same variables as
    with a share of a reserved device, but for the UUID.
    """
    request = taken.request
    given = GivenDevice(uuid=share.uuid, index=0, mem_mib=share.mem_mib, nano=share.nano)
    written = combine.written_back(taken, [given], node=node, at_ns=at_ns)
    variables = {env_key(key, name): value for key, entries in written.env.items() for name, value in entries.items()}
    return {
        **variables,
        **{names.VISIBLE_DEVICES_PREFIX + ref.key: _BY_DRIVER for ref in request.devices()},
        names.GPU_PORTION_ANNOTATION: portion_text(share.nano, of_memory=isinstance(request.shared[0], MemoryAsk)),
        names.CLAIMED_SHARE: msgspec.json.encode(share).decode(),
    }


#: Bytes of all keys and values (TotalAnnotationSizeLimitB of k8s.io/apimachinery).
#: What the API server takes of a pod's annotations. A Binding's it merges without looking: past the limit the pod would
#: be bound and every later write refused, the kubelet's first. So admission refuses a pod without room, and one that
#: came in unseen waits with a reason.
LARGEST: Final = 256 * 1024
#: For a container: the CDI names of what it is given beside its GPUs (gpu/limits.py), each with a UID and a comma.
_PER_CONTAINER_BESIDE: Final = sum(len(prefix) + 37 for prefix in PREFIXES)
#: For keys, the attempt and 8 earlier ones, the portion, the queue with its node pool, and why an attempt failed: 512
#: characters of up to 4 bytes (binder/bind/actions.py).
_FIXED: Final = 4096
#: For a device of a container: its place in the grant with two UUIDs and an id of up to 80 characters, and that id once
#: more under the container's key, as a CDI name where that is on.
_PER_DEVICE: Final = 328 + len(names.CDI_DEVICE_PREFIX)

#: What other dialects write back comes on top of that (gpu/translate/combine.py), each number with up to 9 digits.
#: Once: the node's name, times, and keys.
_FIXED_BACK: Final = 1024
#: For a container: up to five variables with their keys, and keys with its name.
_PER_CONTAINER_BACK: Final = 512
#: For a device of a container: twice with its UUID in HAMi's lists, and a variable with its limit.
_PER_ASK_BACK: Final = 400
#: For a place in HAMi's lists, which have one for each container up to the last that asks.
_PER_PLACE_BACK: Final = 2
#: For a container: two variables with its cap (gpu/limits.py).
_PER_CONTAINER_CAPS: Final = 128
#: For a unit of MetaGPU: its name with the UUID.
_PER_UNIT_BACK: Final = 112

_OURS: Final = frozenset((
    names.RECEIVED_RESOURCE_TYPE, names.GRANT, names.CHARGED, names.FENCED, names.FENCED_BEFORE, names.FENCED_BECAUSE,
    names.GPU_PORTION_ANNOTATION,
))  # fmt: skip


def cramped(annotations: Mapping[str, str] | None, translation: Translation) -> Refusal | None:
    """Say why a pod with these annotations that asks this can't be bound; None if there is room.

    Whichever of its alternatives will be taken.
    """
    ways = [way for number in range(1 + len(translation.alternatives)) if (way := taken(translation, number))]
    is_foreign = needs_record(translation)
    return _cramped(
        annotations, kept=max(_of_ours(way) + (_back(way.request, way) if is_foreign else 0) for way in ways)
    )


def _of_ours(translation: Translation) -> int:
    """Bytes that a Binding and a fence write of any pod. A device on which several containers sit counts for each."""
    shares = _shares(translation.request)
    beside = _PER_CONTAINER_BESIDE * sum(map(bool, shares))
    caps = _PER_CONTAINER_CAPS * len(shares) * translation.driver_caps
    return _FIXED + _PER_DEVICE * sum(map(len, shares)) + beside + caps


def _back(request: GpuRequest, translation: Translation) -> int:
    """Bytes that are written back at most for one alternative."""
    shares = _shares(request)
    places = sum(asking.container.index + 1 for asking in request.containers)
    units = metagpu.most_units(translation, (ask for mine in shares for ask in mine))
    return (
        _FIXED_BACK
        + _PER_CONTAINER_BACK * len(shares)
        + _PER_ASK_BACK * sum(map(len, shares))
        + _PER_PLACE_BACK * places
        + _PER_UNIT_BACK * units
    )


def _shares(request: GpuRequest) -> list[list[SharedAsk]]:
    """What each container asks in part."""
    return [[ask for ask in asking.asks if isinstance(ask, SharedAsk)] for asking in request.containers]


def _cramped(annotations: Mapping[str, str] | None, *, kept: int) -> Refusal | None:
    allowed = LARGEST - kept
    taken = bytes_used(annotations or {})
    if taken <= allowed:
        return None
    return Refusal(
        code=Mistake.TOO_LARGE,
        field="metadata.annotations",
        value=f"{taken} bytes",
        message="the annotations leave no room for what is written when the pod is bound",
        allowed=f"at most {max(allowed, 0)} bytes of keys and values",
    )


def bytes_used(annotations: Mapping[str, str]) -> int:
    """Bytes of the keys and values of everybody else. Each is looked at once; most pods have few and short ones."""
    return sum(_bytes(key) + _bytes(value) for key, value in annotations.items() if not _is_ours(key))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _is_ours(key: str) -> bool:
    return key in _OURS or key.startswith((names.VISIBLE_DEVICES_PREFIX, names.ENV_PREFIX))
