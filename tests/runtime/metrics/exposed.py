"""What a registry shows, read as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from runtime.metrics.registry import Registry


def series(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by its name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(registry: Registry, name: str, labels: Mapping[str, str] | None = None) -> float | None:
    """One sample; None where there is none."""
    return series(generate_latest(registry.collectors).decode()).get((name, frozenset((labels or {}).items())))


def values(registry: Registry, name: str) -> dict[tuple[str, ...], float]:
    """All samples of a name, by the values of their labels in the order of the labels' names."""
    found = series(generate_latest(registry.collectors).decode())
    return {tuple(text for _, text in sorted(labels)): number for (own, labels), number in found.items() if own == name}


def every_sample_once(registry: Registry) -> bool:
    """Whether no name and labels are there twice: Prometheus would refuse all of it."""
    text = generate_latest(registry.collectors).decode()
    samples = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    return len(samples) == len(set(samples))
