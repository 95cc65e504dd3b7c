"""Messages of gRPC as the bytes that they are: what is in them, the modules of the messages know."""

from __future__ import annotations

from typing import Any

from grpclib.encoding.base import CodecBase
from typing_extensions import override


class BytesCodec(CodecBase):
    """Passes bytes on. Without it grpclib imports protobuf, 6 MiB."""

    __content_subtype__ = "proto"

    @override
    def encode(self, message: Any, message_type: Any) -> bytes:
        """Return the message."""
        content: bytes = message
        return content

    @override
    def decode(self, data: bytes, message_type: Any) -> bytes:
        """Return the message."""
        return data
