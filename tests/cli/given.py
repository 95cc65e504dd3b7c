"""Settings of components as a command line, an environment and a file make them."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from cli.commands import COMPONENTS, program_parser
from runtime.settings.sources import gathered


def options(component: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Any:
    """The settings that a component would start with. Raises BadInput and SystemExit as its start does."""
    settings = settings_of(component)
    parsed = _once().parse_args([component, *arguments])
    return gathered(settings, component, parsed, environment or {}).settings


def settings_of(component: str) -> Any:
    """Return the class of a component's settings."""
    (found,) = [each for each in COMPONENTS if each.name == component]
    return found.settings()


@functools.cache
def _once() -> argparse.ArgumentParser:
    """All commands. Their parser keeps nothing of the lines that it read."""
    return program_parser()
