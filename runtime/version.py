"""The version of this program. The same number is in pyproject.toml and in the chart."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
