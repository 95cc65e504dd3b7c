"""Continue tokens: which snapshot a paged list reads, and where its next page begins."""

from __future__ import annotations

import base64
import binascii

import msgspec

from kube.memory.refusals import bad_request


class ContinueToken(msgspec.Struct, frozen=True):
    """``rv`` is the snapshot's version, -1 for the current one (after the snapshot was compacted away)."""

    rv: int
    #: The first key that may be on the next page.
    start: str

    def encode(self) -> str:
        """Return the token as text; clients must not look into it."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


def decode_token(text: str) -> ContinueToken:
    """Read a token. Raises Refusal (400)."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=ContinueToken)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
