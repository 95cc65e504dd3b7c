"""By what ``moorage top`` tells shares apart: whose have one letter and colour."""

from __future__ import annotations

from typing import Final

COLOURS: Final = ("namespace", "queue")
