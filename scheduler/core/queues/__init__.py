"""Queues: a tree of quotas and limits, what their pods use, and who is served next (docs/design/queues.md)."""
