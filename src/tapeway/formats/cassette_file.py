"""The cassette file in JSON or YAML, chosen by its suffix. Both hold the same fields."""

from collections.abc import Iterable

from tapeway.core.model.cassette import CassetteHead
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native.document import JSON as JSON
from tapeway.formats.native.document import Serializer as Serializer
from tapeway.formats.native.document import numbered, root_fields
from tapeway.formats.native.shared_parts import PartSharer
from tapeway.formats.native.text_lines import spread_base64
from tapeway.formats.yaml import parser, writer
from tapeway.formats.yaml.parser import MAX_SIZE


def _yaml_pieces(head: CassetteHead, documents: Iterable[Document]) -> Iterable[bytes]:
    root = root_fields(head)
    sharer = PartSharer()
    root["interactions"] = [
        numbered(index, spread_base64(sharer.shared(index, document)))
        for index, document in enumerate(documents)
    ]
    found = list(writer.pieces(root))
    if sum(map(len, found)) > MAX_SIZE:
        raise FormatFault(
            f"it would have more than {MAX_SIZE >> 20} MiB, too much for YAML: use JSON"
        )
    return found


YAML = Serializer("yaml", (".yaml", ".yml"), parser.parse, parser.line_of, _yaml_pieces)

SERIALIZERS = {each.name: each for each in (JSON, YAML)}
SERIALIZER_BY_SUFFIX = {suffix: each for each in (JSON, YAML) for suffix in each.suffixes}
