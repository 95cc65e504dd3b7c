"""Protocol Buffers' wire format, as far as kubelet's device-plugin API needs it: varints, strings, messages, maps.

Written by hand: a few small messages need neither protoc nor generated code, which would cost 10 MiB of memory. A
message is a sequence of fields, each a key ``number << 3 | type`` and a value; type 0 is a varint, 2 a length and that
number of bytes. Types 1 and 5 (fixed 64 and 32 bits) are skipped. Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_SKIPPED = {_FIXED_64: 8, _FIXED_32: 4}
#: The most bytes of a varint of 64 bits.
_LONGEST_VARINT = 10
_ALL_BITS = (1 << 64) - 1


class Malformed(ValueError):
    """Raised when bytes are no message; the text says why."""


def text(number: int, value: str) -> bytes:
    """A string field; nothing for the empty string, which is the default."""
    return message(number, value.encode()) if value else b""


def texts(number: int, values: Iterable[str]) -> bytes:
    """A repeated string field. Empty strings count here."""
    return b"".join(message(number, value.encode()) for value in values)


def flag(number: int, *, value: bool) -> bytes:
    """A bool field; nothing for false, which is the default."""
    return _varint(number << 3 | _VARINT) + b"\x01" if value else b""


def integer(number: int, value: int) -> bytes:
    """An int32 or int64 field; nothing for 0, which is the default. Negative ones take ten bytes."""
    return _varint(number << 3 | _VARINT) + _varint(value & _ALL_BITS) if value else b""


def message(number: int, content: bytes) -> bytes:
    """A field of a message type. Always there, empty messages too."""
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def mapping(number: int, entries: Mapping[str, str]) -> bytes:
    """A ``map<string, string>`` field: a message with key (1) and value (2) for each entry, empty ones too."""
    return b"".join(message(number, texts(1, (key,)) + texts(2, (value,))) for key, value in entries.items())


def fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Take a message apart: field number and value, in their order. Raises Malformed."""
    at = 0
    while at < len(content):
        key, at = _read_varint(content, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _read_varint(content, at)
            yield number, value
            continue
        if kind == _BYTES:
            length, at = _read_varint(content, at)
        elif (length := _SKIPPED.get(kind, -1)) < 0:
            raise Malformed(f"field {number} has wire type {kind}: 0, 1, 2 and 5 are allowed")
        if at + length > len(content):
            raise Malformed(f"field {number} ends {at + length - len(content)} bytes after the message")
        if kind == _BYTES:
            yield number, content[at : at + length]
        at += length


def parts(content: bytes, number: int) -> list[bytes]:
    """Return all values of a string or message field. Raises Malformed."""
    return [value for found, value in fields(content) if found == number and isinstance(value, bytes)]


def integers(content: bytes, number: int) -> list[int]:
    """Return all values of an int64, int32 or bool field that is not packed. Raises Malformed."""
    values = (value for found, value in fields(content) if found == number and isinstance(value, int))
    return [((value & _ALL_BITS) ^ 1 << 63) - (1 << 63) for value in values]


def strings(content: bytes, number: int) -> list[str]:
    """Return all values of a string field. Raises Malformed, also for what is not UTF-8."""
    try:
        return [part.decode() for part in parts(content, number)]
    except UnicodeDecodeError as error:
        raise Malformed(f"field {number} is not UTF-8") from error


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(content[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise Malformed(f"a number at byte {at} does not end")
