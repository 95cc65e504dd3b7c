"""All preferences, one line each."""

from __future__ import annotations

from typing import Final, TypeAlias

from scheduler.core.scores.preferences.images import Images
from scheduler.core.scores.preferences.node_affinity import NodeAffinity
from scheduler.core.scores.preferences.pod_affinity import PodAffinity
from scheduler.core.scores.preferences.prefer_no_schedule import PreferNoSchedule
from scheduler.core.scores.preferences.preference import Preference
from scheduler.core.scores.preferences.soft_spread import SoftSpread

Preferences: TypeAlias = "tuple[Preference, ...]"

PREFERENCES: Final[Preferences] = (PreferNoSchedule(), NodeAffinity(), PodAffinity(), SoftSpread(), Images())
