"""Settings of ``moorage scheduler`` about what pods prefer (docs/design/rules.md)."""

from __future__ import annotations

from typing import Annotated, Final

from cli.settings import kinds
from cli.settings.common import Replica
from cli.settings.declaring import Setting
from scheduler.core.model.pod_class import Weights

_WEIGHTS: Final = Weights()
_WEIGHT: Final = kinds.whole("WEIGHT", least=0, most=100)


class PreferenceOptions(Replica, frozen=True, kw_only=True):
    """What an administrator may choose about preferences."""

    prefer_no_schedule_weight: Annotated[
        int, Setting(help="weight of taints PreferNoSchedule; 0 ignores them", kind=_WEIGHT)
    ] = _WEIGHTS.prefer_no_schedule
    preferred_node_affinity_weight: Annotated[
        int, Setting(help="weight of preferred node affinity; 0 ignores it", kind=_WEIGHT)
    ] = _WEIGHTS.node_affinity
    preferred_pod_affinity_weight: Annotated[
        int, Setting(help="weight of preferred pod affinity; 0 ignores it", kind=_WEIGHT)
    ] = _WEIGHTS.pod_affinity
    soft_spread_weight: Annotated[
        int, Setting(help="weight of spread with ScheduleAnyway; 0 ignores it", kind=_WEIGHT)
    ] = _WEIGHTS.soft_spread
    image_locality_weight: Annotated[
        int, Setting(help="weight of images that a node has; kube-scheduler: 1", kind=_WEIGHT)
    ] = _WEIGHTS.images
    hard_pod_affinity_weight: Annotated[
        int, Setting(help="term weight of other pods' required affinity", kind=_WEIGHT)
    ] = _WEIGHTS.hard_pod_affinity
    ignore_preferred_terms_of_existing_pods: Annotated[
        bool, Setting(help="for pods that have no preferred terms themselves", kind=kinds.SWITCH)
    ] = _WEIGHTS.ignores_others

    def weights(self) -> Weights:
        """What preferences weigh."""
        return Weights(
            prefer_no_schedule=self.prefer_no_schedule_weight,
            node_affinity=self.preferred_node_affinity_weight,
            pod_affinity=self.preferred_pod_affinity_weight,
            soft_spread=self.soft_spread_weight,
            images=self.image_locality_weight,
            hard_pod_affinity=self.hard_pod_affinity_weight,
            ignores_others=self.ignore_preferred_terms_of_existing_pods,
        )
