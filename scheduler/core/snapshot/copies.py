"""What a decision charges beside nodes: volumes, those of unbound claims, devices of ResourceClaims, NUMA nodes."""

from __future__ import annotations

from typing import Final, NamedTuple

from scheduler.core.model.claim_choice import ClaimChoice
from scheduler.core.model.volume_need import VolumeChoice
from scheduler.core.nodes.claim_statement import ClaimStatement
from scheduler.core.nodes.numa_statement import NumaStatement
from scheduler.core.nodes.volume_limits import AttachStatement
from scheduler.core.nodes.volume_statement import VolumeStatement


class Copies(NamedTuple):
    """Working copies, by position of nodes in the statement."""

    #: Volumes that CSI drivers attach.
    attaching: AttachStatement
    #: Volumes of claims that are bound with their pods' placements.
    binding: VolumeStatement
    #: Devices of ResourceClaims that are allocated with their pods' placements.
    allocating: ClaimStatement
    #: What is free on NUMA nodes.
    aligning: NumaStatement


class Chosen(NamedTuple):
    """What was chosen for a pod's claims, to be written before it is bound."""

    volumes: tuple[VolumeChoice, ...] = ()
    claims: tuple[ClaimChoice, ...] = ()


NOTHING_CHOSEN: Final = Chosen()
