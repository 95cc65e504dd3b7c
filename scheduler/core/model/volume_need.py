"""What a claim that waits for its first consumer needs of a volume, and what was chosen for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from scheduler.core.model.pod_class import Requirement

#: Access modes in which pods on several nodes mount one volume.
_SHARED_MODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class VolumeNeed(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """What an unbound claim asks of its volume. Claims of several pods that ask the same have equal needs.

    ``selector``: expressions on the volume's labels, which all have to hold. ``node``: where the claim says that it is
    being provisioned (``selected-node``), "" nowhere. ``volume``: the PersistentVolume that names the claim, "" if none
    does. ``claim``: namespace and name, if several pods mount it, since one choice has to serve them all.
    """

    storage_class: str
    size_bytes: int
    access_modes: tuple[str, ...] = ()
    mode: str = "Filesystem"
    attributes_class: str = ""
    selector: tuple[Requirement, ...] = ()
    node: str = ""
    volume: str = ""
    claim: tuple[str, str] | None = None

    @property
    def serves_many_nodes(self) -> bool:
        """Whether pods on several nodes may mount the claim: by its access modes, as volumes have all of them."""
        return not _SHARED_MODES.isdisjoint(self.access_modes)


class VolumeChoice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was chosen for one claim (name and UID): a PersistentVolume, or ``volume`` "" to provision for ``node``.

    ``node``: that of the first pod that mounts the claim. The others of a claim for many nodes may be elsewhere.
    """

    claim: str
    claim_uid: str
    node: str
    need: VolumeNeed
    volume: str = ""
