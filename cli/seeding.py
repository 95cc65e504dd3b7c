"""Randomness of a real process: seeded from the system, passed in from there on."""

from __future__ import annotations

import random
import secrets


def rng() -> random.Random:
    """Return a source of jitter and ids."""
    return random.Random(secrets.randbits(128))  # noqa: S311 - jitter and ids, no secrets
