"""The commands that need no cluster and answer at once: ``moorage translate`` and ``moorage lint`` (docs/translate.md).

Only what the options need is imported here; what the commands need is imported when they are called.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from runtime.options import dialects, manifests

_Commands = Any  # argparse keeps the type of sub-commands private

NAMES: Final = frozenset({"translate", "lint"})
#: Kept here too, since what knows them costs time to import (gpu/translate/say.py).
TARGETS: Final = (
    "native", "aliyun", "clearml", "hami", "kai", "koordinator", "metagpu", "nvfractions", "plugin", "volcano",
)  # fmt: skip
_FORMS: Final = ("text", "json", "yaml")


def add_commands(commands: _Commands) -> None:
    """Add both."""
    translate: argparse.ArgumentParser = commands.add_parser(
        "translate",
        help="show the GPU requests of manifests, in any dialect",
        description=(
            "Read pods and pod templates in any dialect and show what Moorage makes of them: the request in the native "
            "form, what a node may be unable to do, what admission changes; or its refusal. Needs no cluster. "
            "Exit code 0: all of them are understood; 1: one is refused, or has no words in --to; 2: bad input."
        ),
    )
    _add_files(translate)
    form = translate.add_mutually_exclusive_group()
    form.add_argument(
        "--to",
        choices=TARGETS,
        default=TARGETS[0],
        metavar="DIALECT",
        help=f"say the same in these words as well: {', '.join(TARGETS)} (default native: the record alone)",
    )
    form.add_argument("--podgroup", action="store_true", help="print the PodGroups of workloads instead")
    translate.set_defaults(run=_translate, logs=False)
    lint: argparse.ArgumentParser = commands.add_parser(
        "lint",
        help="check manifests for refused requests and likely mistakes",
        description=(
            "Read pods and pod templates in any dialect, Queues and PodGroups, and print errors (admission or the API "
            "server would refuse it), warnings (allowed, but probably a mistake) and notes (the meaning differs from "
            "what the text suggests). Needs no cluster. "
            "Exit code 0: no error; 1: an error, or with --strict anything; 2: bad input."
        ),
    )
    _add_files(lint)
    lint.add_argument("--strict", action="store_true", help="warnings and notes end with 1 as well")
    lint.set_defaults(run=_lint, logs=False)


def _add_files(parser: argparse.ArgumentParser) -> None:
    manifests.add_arguments(parser)
    parser.add_argument("-o", "--output", choices=_FORMS, default="text", help="form of the result (default text)")
    dialects.add_option(parser)


def _translate(arguments: argparse.Namespace) -> int:
    if arguments.podgroup:
        from cli import podgroups  # noqa: PLC0415 - it loads what makes pods

        return podgroups.run(manifests.named(arguments), output=arguments.output)
    from cli import translate  # noqa: PLC0415 - lazily, so that --help costs nothing

    settings = dialects.read(arguments.dialects)
    return translate.run(manifests.named(arguments), output=arguments.output, settings=settings, to=arguments.to)


def _lint(arguments: argparse.Namespace) -> int:
    from cli import lint  # noqa: PLC0415 - lazily, as above

    settings = dialects.read(arguments.dialects)
    return lint.run(manifests.named(arguments), output=arguments.output, strict=arguments.strict, settings=settings)
