"""The part of a device that a ResourceClaim gives a pod: what is written on the pod, and its reading back.

It is written in the same write as the claim in the status of the pod (KEP-5004), which maps the extended resource of
shares to it. It counts only beside such a status, so what is left of a claim that was given back says nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpu.dialects import combine
from gpu.drivercaps import env_key
from gpu.request import GpuRequest, MemoryAsk, MigAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE, portion_text
from gpu.translation import GivenDevice, Translation
from wire import names
from wire.core import Pod

#: What containers read in place of UUIDs: the driver hands out the device, and the runtime adds none.
_BY_DRIVER: Final = "void"


class ClaimedShare(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """A part of one device. ``nano``: what queues count. ``mem_mib``: the memory of the device, in MiB.

    ``uuid``: as the driver publishes it, "" if it does not.
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


def read(pod: Pod) -> ClaimedShare | None:
    """Read the part of a device that a claim gives a pod; None without one, or if it can't be read."""
    text = (pod.metadata.annotations or {}).get(names.CLAIMED_SHARE)
    if not text or not is_mapped(pod):
        return None
    try:
        share = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return share if 0 < share.nano <= NANO_PER_DEVICE and share.mem_mib > 0 else None


def metadata(share: ClaimedShare, taken: Translation, *, node: str, at_ns: int) -> dict[str, str]:
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
