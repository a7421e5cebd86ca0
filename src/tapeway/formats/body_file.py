"""What a cassette says of a body that lies in a file beside it, named by its SHA-256."""

import re

from tapeway.core.json_text import Json
from tapeway.core.model.messages import BodyFile, PartDigest
from tapeway.formats.fault import FormatFault
from tapeway.formats.fields import Fields

NAME = "body_file"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = ("sha256", "size", "parts")
_PART = ("name", "filename", "type", "sha256")
_LARGEST = 2**53


def encode(file: BodyFile) -> dict[str, Json]:
    """The field that refers to the file."""
    reference: dict[str, Json] = {"sha256": file.digest, "size": file.size}
    if file.parts is not None:
        reference["parts"] = [_encode_part(part) for part in file.parts]
    return {NAME: reference}


def decode(fields: Fields) -> BodyFile | None:
    """The file a request's or response's fields refer to; where it lies, its store knows.

    None where they refer to none, or to an empty one: that is no body. Raises FormatFault.
    """
    if NAME not in fields:
        return None
    reference = fields.object(NAME)
    reference.only(_FIELDS)
    reference.require("sha256", "size")
    parts = reference.list("parts")
    file = BodyFile(
        path="",
        size=reference.integer("size", low=0, high=_LARGEST),
        digest=_digest(reference),
        parts=tuple(
            [
                _decode_part(Fields.of(part, (*reference.at, "parts", position)))
                for position, part in enumerate(parts)
            ]
        )
        if "parts" in reference
        else None,
    )
    return file if file.size else None


def _encode_part(part: PartDigest) -> Json:
    said = {"name": part.name, "filename": part.filename, "type": part.content_type}
    fields: dict[str, Json] = {name: value for name, value in said.items() if value is not None}
    return fields | {"sha256": part.digest}


def _decode_part(fields: Fields) -> PartDigest:
    fields.only(_PART)
    name, filename, kind = [
        fields.text(each) if each in fields else None for each in ("name", "filename", "type")
    ]
    return PartDigest(name, filename, kind, _digest(fields))


def _digest(fields: Fields) -> str:
    digest = fields.text("sha256")
    if not _DIGEST.fullmatch(digest):
        raise FormatFault("must be 64 hexadecimal digits, lower case", (*fields.at, "sha256"))
    return digest
