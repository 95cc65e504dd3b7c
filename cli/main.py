"""``moorage`` and ``kubectl moorage``: parse the line, run the command and return its exit code."""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import os
import sys
from collections.abc import Sequence

from cli.commands import plugin_parser, program_parser
from runtime.output import lets_all_through
from runtime.text import BadInput, line

_BAD_INPUT = 2
_INTERRUPTED = 130
#: As of a program that SIGPIPE has ended.
_READER_GONE = 141
#: As sysexits.h has it (EX_IOERR): what the command has found is lost, so neither 0 nor 1 would be true.
_UNWRITTEN = 74
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command and return the exit code: 0 well, 1 not well, 2 bad input."""
    if argv is None:
        _leave_garbage()
    given = sys.argv[1:] if argv is None else argv
    return _run(program_parser(), given)


def kubectl() -> int:
    """Run ``kubectl moorage``: the commands that ask, by the name under which kubectl finds them."""
    _leave_garbage()
    return _run(plugin_parser(), sys.argv[1:])


def _leave_garbage() -> None:
    """Have the process end without a last look for cyclic garbage, which takes a fifth of what ``inspect`` takes.

    Files are closed and output is written as ever; the kernel takes the memory.
    """
    atexit.register(gc.freeze)


def _run(parser: argparse.ArgumentParser, given: Sequence[str]) -> int:
    lets_all_through()
    try:
        code = _called_by(parser, given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has enough, as in ``| head``.
        _drop_output()
        return _READER_GONE
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _drop_output()
        sys.stderr.write(f"moorage: the output could not be written: {error.strerror}\n")
        return _UNWRITTEN
    except BadInput as error:
        sys.stderr.write(f"moorage: {line(str(error))}\n")
        return _BAD_INPUT
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _drop_output() -> None:
    """What is left is not written when the process ends, either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _called_by(parser: argparse.ArgumentParser, given: Sequence[str]) -> int:
    if not given:
        parser.print_help()
        return 0
    arguments, unknown = parser.parse_known_args(given)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_meant(unknown[0], arguments)}")
    if arguments.logs:
        _log(verbose=arguments.verbose)
    code: int = arguments.run(arguments)
    return code


def _meant(unknown: str, arguments: argparse.Namespace) -> str:
    """Which options of a component somebody may have meant; of other commands --help says it."""
    if "options" not in arguments:
        return ""
    from runtime.settings.declaration import nearest

    return f"; {nearest(unknown.partition('=')[0], arguments.options, prefix='--')}"


def _log(*, verbose: bool) -> None:
    import logging  # 10 ms, for those who log

    if not verbose:
        logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(message)s")
        return
    from runtime.logs import TextForm

    told = logging.StreamHandler()
    told.setFormatter(TextForm())
    logging.basicConfig(level=logging.INFO, handlers=[told])


if __name__ == "__main__":
    raise SystemExit(main())
