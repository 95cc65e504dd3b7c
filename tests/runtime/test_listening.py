from __future__ import annotations

import socket

import pytest

from runtime.process import listening
from runtime.text import BadInput


def test_an_address_that_is_taken_is_refused_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        with pytest.raises(BadInput, match=f"--inspect-address: 127.0.0.1:{address[1]}: ") as caught:
            listening("--inspect-address", address)
    assert len(str(caught.value).splitlines()) == 1


def test_without_an_address_nothing_listens() -> None:
    assert listening("--inspect-address", None) is None
