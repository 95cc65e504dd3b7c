"""Upstream's own test tables of kube-scheduler's plug-ins, as snapshots that Moorage answers (docs/design/rules.md)."""
