"""``moorage lint``: requests in manifests that admission refuses, and likely mistakes (docs/translate.md)."""

from __future__ import annotations

import argparse
from typing import Final

from runtime.options import manifests
from runtime.options import manifests as dialects

_FORMS: Final = ("text", "json", "yaml")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Read pods and pod templates in any dialect, Queues and PodGroups, and print errors (admission or the API "
        "server would refuse it), warnings (allowed, but probably a mistake) and notes (the meaning differs from "
        "what the text suggests). Needs no cluster. "
        "Exit code 0: no error; 1: an error, or with --strict any finding that no cluster decides; 2: bad input."
    )
    manifests.add_arguments(parser)
    parser.add_argument("-o", "--output", choices=_FORMS, default="text", help="form of the result (default text)")
    dialects.add_dialects(parser)
    parser.add_argument("--strict", action="store_true", help="warnings and notes end with 1 as well")
    parser.set_defaults(run=_lint, logs=False)


def _lint(arguments: argparse.Namespace) -> int:
    from cli.manifests import findings

    settings = dialects.dialects_of(arguments.dialects)
    return findings.run(manifests.named(arguments), output=arguments.output, strict=arguments.strict, settings=settings)
