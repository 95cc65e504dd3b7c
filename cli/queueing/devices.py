"""What ResourceClaims get, as it was read once: claims, devices, classes, and rules that taint devices. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from scheduler.core.cluster import Cluster
from scheduler.core.convert.devices import device_class_record, slice_record, taint_rule_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.model.devices import DeviceClassRecord, ResourceClaimRecord, SliceRecord, TaintRuleRecord
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """Records of each kind. A kind that the cluster does not have has none.

    ``rules``: None where there may be some that were not read. ``serves_rules``: the cluster knows DeviceTaintRules.
    """

    classes: Sequence[DeviceClassRecord] = ()
    slices: Sequence[SliceRecord] = ()
    claims: Sequence[ResourceClaimRecord] = ()
    rules: Sequence[TaintRuleRecord] | None = ()
    serves_rules: bool = True

    def put(self, cluster: Cluster, *, follows_taint_rules: bool) -> None:
        """Let a cluster have read them. ``follows_taint_rules``: the rules count.

        A scheduler that follows rules of which its cluster does not know lets claims wait, as one that can't read them.
        """
        inventory = cluster.claims.inventory
        inventory.classes.replace(self.classes)
        if follows_taint_rules and not self.serves_rules:
            inventory.rules.expect()
        elif follows_taint_rules:
            inventory.rules.replace(self.rules or ())
        inventory.slices.replace(self.slices)
        # A list does not say in which order devices were allocated.
        with cluster.claims.order.listing():
            cluster.claims.claims.replace(self.claims)


def recorded(
    *,
    classes: Iterable[DeviceClass],
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    rules: Iterable[DeviceTaintRule] | None,
) -> Devices:
    """Return records of objects that were read already. ``rules``: None where there are some that were not read."""
    return Devices(
        classes=list(map(device_class_record, classes)),
        slices=list(map(slice_record, slices)),
        claims=list(map(resource_claim_record, claims)),
        rules=None if rules is None else list(map(taint_rule_record, rules)),
    )
