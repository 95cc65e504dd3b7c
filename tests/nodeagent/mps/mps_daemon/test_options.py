from __future__ import annotations

import argparse
from pathlib import PurePosixPath

import pytest

from nodeagent.core.mps import control
from nodeagent.mps.mps_daemon import main
from tests.nodeagent.core.mps.test_mpssteps import GPU, POD


def read(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    main.add_options(parser)
    return parser.parse_args(words)


def test_options_are_written_as_they_are_read() -> None:
    given = read("--interval-s=7", "--pipes=/p", "--logs=/l", "--control=/c", "--socket=/s")
    assert read(*main.written(given)) == given
    assert read(*main.written(read())) == read()


@pytest.mark.parametrize("words", ["--interval-s=0", "--interval-s=61", "--interval-s=x", "--pipes=mps"])
def test_what_can_not_be_is_refused(words: str) -> None:
    with pytest.raises(argparse.ArgumentError, match="allowed"):
        read(words)


def test_a_pipe_directory_leaves_room_for_a_namespace_socket() -> None:
    most = next(size for size in range(100, 0, -1) if _is_read("/" + "x" * size))
    socket = control.folder(PurePosixPath("/" + "x" * most), control.Wanted(POD, GPU, 1, 1)) / control.SOCKET
    assert len(str(socket)) == control.LONGEST_PATH


def _is_read(text: str) -> bool:
    try:
        main.pipes(text)
    except argparse.ArgumentTypeError:
        return False
    return True
