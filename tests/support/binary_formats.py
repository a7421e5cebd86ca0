"""Binary formats whose fields have their lengths before them, written and read back.

Each reader raises ValueError for octets whose lengths are wrong.
"""

import base64
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

Texts = Sequence[bytes]


class BinaryFormat(NamedTuple):
    """A format, with its media type; `read` gives the texts that `write` was given."""

    media_type: bytes
    write: Callable[[Texts], bytes]
    read: Callable[[bytes], list[bytes]]


class _Reader:
    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._octets)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end < self._at or end > len(self._octets):
            raise ValueError(f"{count} octets at {self._at} of {len(self._octets)}")
        taken, self._at = self._octets[self._at : end], end
        return taken

    def expect(self, octets: bytes) -> None:
        if (found := self.take(len(octets))) != octets:
            raise ValueError(f"{found!r} before {self._at} is not {octets!r}")

    def number(self, layout: str) -> int:
        (number,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(number)

    def varint(self) -> int:
        number = shift = 0
        while True:
            octet = self.take(1)[0]
            number |= (octet & 127) << shift
            shift += 7
            if octet < 128:
                return number


def _varint(number: int) -> bytes:
    octets = b""
    while number > 127:
        octets += bytes([number & 127 | 128])
        number >>= 7
    return octets + bytes([number])


def _to_protobuf(texts: Texts) -> bytes:
    return b"".join([b"\x0a" + _varint(len(text)) + text for text in texts])


def _of_protobuf(octets: bytes) -> list[bytes]:
    reader, texts = _Reader(octets), []
    while not reader.ended:
        reader.expect(b"\x0a")
        texts.append(reader.take(reader.varint()))
    return texts


def _frame(flag: int, message: bytes) -> bytes:
    return struct.pack(">BI", flag, len(message)) + message


def _frames(octets: bytes, last: int) -> list[bytes]:
    reader, flags, frames = _Reader(octets), list[int](), []
    while not reader.ended:
        flags.append(reader.number("B"))
        frames.append(reader.take(reader.number(">I")))
    if flags != [0] * (len(flags) - 1) + [last]:
        raise ValueError(f"flags {flags}")
    return frames


def _to_grpc_web(texts: Texts) -> bytes:
    """A frame for each text, and the trailers with all of them."""
    trailers = b"".join([b"x-text: %b\r\n" % text for text in texts]) + b"grpc-status: 0\r\n"
    return b"".join([_frame(0, _to_protobuf([text])) for text in texts]) + _frame(128, trailers)


def _of_grpc_web(octets: bytes) -> list[bytes]:
    *messages, trailers = _frames(octets, 128)
    texts = [_of_protobuf(message)[0] for message in messages]
    lines = [line.removeprefix(b"x-text: ") for line in trailers.split(b"\r\n")[:-2]]
    # A name in the line may give a placeholder another label.
    if [*map(len, lines)] != [*map(len, texts)] or not trailers.endswith(b"\r\ngrpc-status: 0\r\n"):
        raise ValueError(trailers)
    return texts


def _to_connect(texts: Texts) -> bytes:
    messages = [b'{"text":"%b"}' % text for text in texts]
    return b"".join([_frame(0, message) for message in messages]) + _frame(2, b'{"metadata":{}}')


def _of_connect(octets: bytes) -> list[bytes]:
    *messages, end = _frames(octets, 2)
    if end != b'{"metadata":{}}':
        raise ValueError(end)
    return [message[9:-2] for message in messages]


def _to_message_pack(texts: Texts) -> bytes:
    head = b"\xdc" + struct.pack(">H", len(texts))
    return head + b"".join([b"\xd9" + bytes([len(text)]) + text for text in texts])


def _of_message_pack(octets: bytes) -> list[bytes]:
    reader, texts = _Reader(octets), []
    reader.expect(b"\xdc")
    for _ in range(reader.number(">H")):
        reader.expect(b"\xd9")
        texts.append(reader.take(reader.number("B")))
    return _whole(reader, texts)


def _to_cbor(texts: Texts) -> bytes:
    head = b"\x99" + struct.pack(">H", len(texts))
    return head + b"".join([b"\x79" + struct.pack(">H", len(text)) + text for text in texts])


def _of_cbor(octets: bytes) -> list[bytes]:
    reader, texts = _Reader(octets), []
    reader.expect(b"\x99")
    for _ in range(reader.number(">H")):
        reader.expect(b"\x79")
        texts.append(reader.take(reader.number(">H")))
    return _whole(reader, texts)


def _to_bson(texts: Texts) -> bytes:
    members = [
        b"\x02%d\x00%b%b\x00" % (at, struct.pack("<i", len(text) + 1), text)
        for at, text in enumerate(texts)
    ]
    document = b"".join(members) + b"\x00"
    return struct.pack("<i", len(document) + 4) + document


def _of_bson(octets: bytes) -> list[bytes]:
    reader, texts = _Reader(octets), list[bytes]()
    if reader.number("<i") != len(octets):
        raise ValueError(f"{len(octets)} octets")
    while reader.number("B"):
        reader.expect(b"%d\x00" % len(texts))
        texts.append(reader.take(reader.number("<i") - 1))
        reader.expect(b"\x00")
    return _whole(reader, texts)


def _to_avro(texts: Texts) -> bytes:
    return b"".join([_varint(2 * len(text)) + text for text in texts])


def _of_avro(octets: bytes) -> list[bytes]:
    reader, texts = _Reader(octets), []
    while not reader.ended:
        texts.append(reader.take(reader.varint() // 2))
    return texts


def _to_thrift(texts: Texts) -> bytes:
    fields = [struct.pack(">BHI", 11, at, len(text)) + text for at, text in enumerate(texts)]
    return b"\x80\x01\x00\x02\x00\x00\x00\x04ping\x00\x00\x00\x01" + b"".join(fields) + b"\x00"


def _of_thrift(octets: bytes) -> list[bytes]:
    reader, texts = _Reader(octets), list[bytes]()
    reader.expect(b"\x80\x01\x00\x02\x00\x00\x00\x04ping\x00\x00\x00\x01")
    while reader.number("B") == 11:
        if reader.number(">H") != len(texts):
            raise ValueError("another field")
        texts.append(reader.take(reader.number(">I")))
    return _whole(reader, texts)


def _whole(reader: _Reader, texts: list[bytes]) -> list[bytes]:
    if not reader.ended:
        raise ValueError("octets are left")
    return texts


def _to_tar(texts: Texts) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for at, text in enumerate(texts):
            member = tarfile.TarInfo(f"{at}.env")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return written.getvalue()


def _of_tar(octets: bytes) -> list[bytes]:
    with tarfile.open(fileobj=io.BytesIO(octets), ignore_zeros=False) as archive:
        members = [archive.extractfile(member) for member in archive.getmembers()]
        return [member.read() for member in members if member is not None]


def _to_zip(texts: Texts) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for at, text in enumerate(texts):
            archive.writestr(zipfile.ZipInfo(f"{at}.env"), text)
    return written.getvalue()


def _of_zip(octets: bytes) -> list[bytes]:
    """Read by the places in the directory; the checksums of the contents are not looked at."""
    texts = []
    with zipfile.ZipFile(io.BytesIO(octets)) as archive:
        for member in archive.infolist():
            at = member.header_offset
            name_size, extra_size = struct.unpack("<HH", octets[at + 26 : at + 30])
            at += 30 + name_size + extra_size
            texts.append(octets[at : at + member.file_size])
    return texts


BINARY_FORMATS = {
    "protobuf": BinaryFormat(b"application/x-protobuf", _to_protobuf, _of_protobuf),
    "gRPC-web": BinaryFormat(b"application/grpc-web+proto", _to_grpc_web, _of_grpc_web),
    "gRPC-web as text": BinaryFormat(
        b"application/grpc-web-text",
        lambda texts: base64.b64encode(_to_grpc_web(texts)),
        lambda octets: _of_grpc_web(base64.b64decode(octets, validate=True)),
    ),
    "Connect": BinaryFormat(b"application/connect+json", _to_connect, _of_connect),
    "MessagePack": BinaryFormat(b"application/msgpack", _to_message_pack, _of_message_pack),
    "MessagePack, as curl sends it": BinaryFormat(
        b"application/x-www-form-urlencoded", _to_message_pack, _of_message_pack
    ),
    "CBOR": BinaryFormat(b"application/cbor", _to_cbor, _of_cbor),
    "BSON": BinaryFormat(b"application/bson", _to_bson, _of_bson),
    "Avro": BinaryFormat(b"avro/binary", _to_avro, _of_avro),
    "Thrift": BinaryFormat(b"application/x-thrift", _to_thrift, _of_thrift),
    "Thrift without a type": BinaryFormat(b"", _to_thrift, _of_thrift),
    "tar": BinaryFormat(b"application/x-tar", _to_tar, _of_tar),
    "zip": BinaryFormat(b"application/zip", _to_zip, _of_zip),
}
