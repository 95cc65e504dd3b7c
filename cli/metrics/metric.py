"""What a metric is before anything is counted: its name, help, unit, labels and buckets, as data.

Metrics, their page (docs/metrics.md), alert rules and dashboard all follow from the declarations, and tests compare
them (tests/cli/metrics, tests/helm). Names follow Prometheus: base units, ``_total`` for counters.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final

import msgspec

_NAME: Final = re.compile(r"(moorage|kai|hami|metagpu)_[a-z][a-z0-9_]*[a-z0-9]")
#: Names of other systems are as they are (cli/metrics/compat.py).
_OWN: Final = ("moorage_", "kai_")
_LABEL: Final = re.compile(r"[a-z][a-z0-9_]*")


class Kind(enum.Enum):
    """Prometheus' kinds that are used. The value is what an exposition calls it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One family of series. ``labels``: what each is about; never a pod's, a user's or a node's name.

    ``name`` of a counter ends in ``_total``. ``buckets``: upper bounds of a histogram, without infinity.
    """

    name: str
    kind: Kind
    help: str
    labels: Mapping[str, str] = {}
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name}: a metric's name is moorage_... or kai_... in snake_case")
        is_own = self.name.startswith(_OWN)
        if (self.kind is Kind.COUNTER) != self.name.endswith("_total") and is_own:
            raise ValueError(f"{self.name}: counters end in _total, and nothing else does")
        if (self.kind is Kind.HISTOGRAM) != bool(self.buckets) or list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"{self.name}: histograms have rising buckets, and nothing else has any")
        if any(not _LABEL.fullmatch(label) or label == "le" for label in self.labels):
            raise ValueError(f"{self.name}: labels are snake_case, and le is Prometheus' own")

    @property
    def series(self) -> frozenset[str]:
        """The names under which it is queried."""
        if self.kind is Kind.HISTOGRAM:
            return frozenset(f"{self.name}{suffix}" for suffix in ("_bucket", "_sum", "_count"))
        return frozenset((self.name,))


def counter(name: str, help_: str, labels: Mapping[str, str] | None = None) -> Metric:
    """Declare what only grows."""
    return Metric(name=name, kind=Kind.COUNTER, help=help_, labels=labels or {})


def gauge(name: str, help_: str, labels: Mapping[str, str] | None = None) -> Metric:
    """Declare what is read as it is now."""
    return Metric(name=name, kind=Kind.GAUGE, help=help_, labels=labels or {})


def histogram(name: str, help_: str, labels: Mapping[str, str] | None = None, *, buckets: tuple[float, ...]) -> Metric:
    """Declare what is counted by size."""
    return Metric(name=name, kind=Kind.HISTOGRAM, help=help_, labels=labels or {}, buckets=buckets)
