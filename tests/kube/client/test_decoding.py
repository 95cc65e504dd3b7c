"""What is told of an object that does not decode."""

from __future__ import annotations

import pytest

from kube.client.decoding import object_key


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b'{"metadata": {"name": "a", "namespace": "ns"}, "spec": 5}', "ns/a"),
        (b'{"metadata": {"name": "a"}, "spec": 5}', "a"),
        (b'{"metadata": {}}', "(unnamed)"),
        (b'{"metadata": {"name": 5}}', "(unnamed)"),
        (b"{", "(unnamed)"),
    ],
)
def test_an_object_that_does_not_decode_is_named_as_far_as_it_can_be(raw: bytes, key: str) -> None:
    assert object_key(raw) == key
