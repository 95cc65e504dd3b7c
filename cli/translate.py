"""``moorage translate``: the GPU requests of manifests, in every dialect (docs/translate.md)."""

from __future__ import annotations

import argparse
from typing import Final

from runtime.options import manifests
from runtime.options import manifests as dialects

#: Kept here too, since what knows them costs time to import (gpu/translate/say.py).
TARGETS: Final = (
    "native", "aliyun", "clearml", "hami", "kai", "koordinator", "metagpu", "nvfractions", "plugin", "volcano",
)  # fmt: skip
_FORMS: Final = ("text", "json", "yaml")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Read pods and pod templates in any dialect and show what Moorage makes of them: the request in the native "
        "form, what a node may be unable to do, what admission changes; or its refusal. Needs no cluster. "
        "Exit code 0: all of them are understood; 1: one is refused, or has no words in --to; 2: bad input."
    )
    manifests.add_arguments(parser)
    parser.add_argument("-o", "--output", choices=_FORMS, default="text", help="form of the result (default text)")
    dialects.add_dialects(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--to",
        choices=TARGETS,
        default=TARGETS[0],
        metavar="DIALECT",
        help=f"say the same in these words as well: {', '.join(TARGETS)} (default native: the record alone)",
    )
    form.add_argument("--podgroup", action="store_true", help="print the PodGroups of workloads instead")
    parser.set_defaults(run=_translate, logs=False)


def _translate(arguments: argparse.Namespace) -> int:
    if arguments.podgroup:
        from cli.manifests import podgroups  # it loads what makes pods

        return podgroups.run(manifests.named(arguments), output=arguments.output)
    from cli.manifests import translation

    settings = dialects.dialects_of(arguments.dialects)
    return translation.run(manifests.named(arguments), output=arguments.output, settings=settings, to=arguments.to)
