"""The page on formats shows what tapeway writes, and says what it reads."""

import re

from tapeway.core.json_text import MAX_DEPTH
from tapeway.formats.cassette_file import JSON, YAML
from tapeway.formats.yaml.parser import MAX_SIZE
from tapeway.formats.yaml.scalars import resolve
from tests.docs.test_cassette_format_page import TEXT as CASSETTE_PAGE
from tests.support.markdown import ROOT

TEXT = (ROOT / "docs" / "formats.md").read_text("utf-8")


def test_the_yaml_shown_is_the_json_of_the_other_page() -> None:
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    json = re.findall(r"^```json\n(.*?)^```$", CASSETTE_PAGE, re.MULTILINE | re.DOTALL)[0]

    assert YAML.save(JSON.load(json.encode())).decode() == shown


def test_what_stands_in_the_table_is_read_as_it_says() -> None:
    rows = dict(re.findall(r"^\| (`.*?) \| (.*?) \|$", TEXT, re.MULTILINE))
    kinds: dict[str, tuple[type, ...]] = {
        "null": (type(None),),
        "true and false": (bool,),
        "numbers": (int, float),
        "text": (str,),
    }

    told = 0
    for written, kind in rows.items():
        for text in re.findall(r"`(.*?)`", written):
            if kind in kinds:
                assert isinstance(resolve(text), kinds[kind]), text
                told += 1
    assert told > 15


def test_the_bounds_told_are_those_in_force() -> None:
    assert f"more than {MAX_DEPTH} levels, more than {MAX_SIZE >> 20} MiB" in TEXT
