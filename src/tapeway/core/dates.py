"""Dates and times of day as people, prompts and programs write them.

`DATE_PATTERN` finds what may be one; `is_written_date` looks at what stands around it, since RE2 has
no look-around, and refuses a part of a longer word, a version and a price. The languages are English,
German, French and Spanish.
"""

import re
from datetime import date, datetime

_MONTHS: tuple[tuple[str, ...], ...] = (
    ("january", "januar", "jänner", "janvier", "enero", "janv", "jan", "ene"),
    ("february", "februar", "feber", "février", "fevrier", "febrero", "févr", "fevr", "feb"),
    ("march", "märz", "maerz", "mars", "marzo", "mar", "mär", "mrz"),
    ("april", "avril", "abril", "apr", "avr", "abr"),
    ("may", "mai", "mayo"),
    ("june", "juni", "juin", "junio", "jun"),
    ("july", "juli", "juillet", "julio", "juil", "jul"),
    ("august", "août", "aout", "agosto", "aug", "ago"),
    ("september", "septembre", "septiembre", "setiembre", "sept", "sep"),
    ("october", "oktober", "octobre", "octubre", "oct", "okt"),
    ("november", "novembre", "noviembre", "nov"),
    ("december", "dezember", "décembre", "decembre", "diciembre", "dec", "dez", "déc", "dic"),
)
_DAYS: tuple[tuple[str, ...], ...] = (
    ("monday", "montag", "lundi", "lunes", "mon", "lun"),
    ("tuesday", "dienstag", "mardi", "martes", "tues", "tue", "mar"),
    ("wednesday", "mittwoch", "mercredi", "miércoles", "miercoles", "wed", "mer", "mié", "mie"),
    ("thursday", "donnerstag", "jeudi", "jueves", "thurs", "thur", "thu", "jeu", "jue"),
    ("friday", "freitag", "vendredi", "viernes", "fri", "ven", "vie"),
    ("saturday", "samstag", "sonnabend", "samedi", "sábado", "sabado", "sat", "sam", "sáb", "sab"),
    ("sunday", "sonntag", "dimanche", "domingo", "sun", "dim", "dom"),
)
_SHORT_DAYS = ("mo", "di", "mi", "do", "fr", "sa", "so")
"""German, and words of other languages too: only with a dot or a comma behind them."""
_FULL_NAME = 5
"""Letters of a name that is written out; `May`, `mai`, `June`, `mars` and their like have fewer."""

_ZONES = (
    *("WEST", "WET", "CEST", "CET", "MESZ", "MEZ", "EEST", "EET", "MSK", "BST", "IST"),
    *("EST", "EDT", "CST", "CDT", "MST", "MDT", "PST", "PDT", "AKST", "AKDT", "HST"),
    *("JST", "KST", "SGT", "HKT", "AEST", "AEDT", "ACST", "ACDT", "AWST", "NZST", "NZDT"),
    *("BRT", "ART", "SAST", "ET", "CT", "MT", "PT", "Uhr"),
)
_CLOCK_WORDS = (
    *("timestamp", "datetime", "time", "date", "now", "today", "clock"),
    *("uhrzeit", "zeit", "datum", "jetzt", "heute", "heure", "maintenant", "aujourd'hui"),
    *("hora", "fecha", "ahora", "hoy"),
)
"""Next to these words a number such as `16:05` is a time of day; elsewhere maybe a verse."""


def _any_of(words: tuple[str, ...]) -> str:
    # The longest come first: alternatives are tried in order.
    return "|".join(sorted(words, key=len, reverse=True))


def _flat(names: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for spellings in names for name in spellings))


def _titled(names: tuple[str, ...]) -> str:
    """Capitalised names, and full names in French and Spanish."""
    spellings = [name.capitalize() for name in names] + [name.upper() for name in names]
    return _any_of((*spellings, *(name for name in names if len(name) > _FULL_NAME)))


_S = r"[ \t\x{a0}\x{202f}]{1,3}"
_MONTH = f"(?i:{_any_of(_flat(_MONTHS))})"
_DAY_NAME = f"(?i:(?:{_any_of(_flat(_DAYS))})[.]?,?|(?:{'|'.join(_SHORT_DAYS)})[.,]{{1,2}})"
_ARTICLE = r"(?i:the|den|der|dem|le|el)"
_WEEKDAY = f"(?:{_DAY_NAME}{_S}(?:{_ARTICLE}{_S})?)?"

_YEAR = "(?:19|20)[0-9]{2}"
_DAY = "(?:3[01]|[12][0-9]|0?[1-9])"
_MONTH_NUMBER = "(?:1[0-2]|0?[1-9])"
_TWO = "[0-9]{2}"
_ORDINAL = "(?:st|nd|rd|th|er|º|ª|[.])?"

_MERIDIEM = r"[ \x{a0}\x{202f}]?(?:[AaPp][Mm]|[AaPp][.][Mm][.])"
_ZONE = (
    r"(?:Z|[ \x{a0}\x{202f}]?(?:(?:UTC|GMT)(?: ?[+-][0-9]{1,2}(?::?[0-9]{2})?)?"
    # 10:30-11:30 is two times of day.
    rf"|[+][0-9]{{2}}:?[0-9]{{2}}|-[0-9]{{4}}|(?:{_any_of(_ZONES)}))"
    rf"(?: \((?:(?:[A-Z][a-z]+ ){{1,4}}Time|UTC|GMT|{_any_of(_ZONES)})\))?)"
)
_CLOCK = (
    "(?:2[0-3]|[01]?[0-9])[:h][0-5][0-9]"
    "(?::[0-5][0-9](?:[.,][0-9]{1,9})?(?:-[01][0-9]:[0-5][0-9])?)?"
)
_TIME = (
    f"(?:{_CLOCK}(?:{_MERIDIEM})?(?:{_ZONE})?|(?:1[0-2]|0?[1-9]){_MERIDIEM}(?:{_ZONE})?"
    "|[0-2]?[0-9][.][0-5][0-9] Uhr)"
)
_TIME_ALONE = f"{_CLOCK}(?:{_MERIDIEM}(?:{_ZONE})?|{_ZONE})|[0-2]?[0-9][.][0-5][0-9] Uhr"

_WITH_YEAR = "|".join(
    [
        f"{_MONTH}[.]?{_S}{_DAY}{_ORDINAL},?{_S}{_YEAR}",
        f"{_MONTH}[.]?{_S}{_DAY}{_S}{_CLOCK}(?:{_MERIDIEM})?(?:{_ZONE})?{_S}{_YEAR}",
        f"{_DAY}{_ORDINAL}(?:{_S})?(?:(?:of|de){_S})?{_MONTH}[.]?,?{_S}(?:del?{_S})?{_YEAR}",
        f"{_MONTH}-{_DAY}-{_YEAR}|{_MONTH}/{_DAY}/{_YEAR}",
        f"{_DAY}-{_MONTH}-(?:{_YEAR}|{_TWO})",
        f"{_DAY}/{_MONTH}/(?:{_YEAR}(?::{_CLOCK}(?:{_ZONE})?)?|{_TWO})",
        f"{_YEAR}-{_MONTH}-{_DAY}|{_YEAR}{_S}{_MONTH}{_S}{_DAY}",
    ]
)
_NUMERIC = "|".join(
    [
        *(
            f"(?:{_DAY}{mark}{_MONTH_NUMBER}|{_MONTH_NUMBER}{mark}{_DAY}){mark}{_YEAR}"
            for mark in ("/", "-", "[.]", "[.] ")
        ),
        f"(?:0[1-9]|1[0-2])/(?:0[1-9]|[12][0-9]|3[01])/{_TWO}",
        f"(?:0[1-9]|[12][0-9]|3[01])/(?:0[1-9]|1[0-2])/{_TWO}",
        f"{_YEAR}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])",
        f"{_YEAR}/(?:0[1-9]|1[0-2])/(?:0[1-9]|[12][0-9]|3[01])",
    ]
)
_TITLED_DAY = f"(?:{_titled(_flat(_DAYS))})[.]?,?{_S}(?:{_ARTICLE}{_S})?"
_TITLED_MONTH = f"(?:{_titled(_flat(_MONTHS))})"
_WITHOUT_YEAR = (
    f"{_TITLED_DAY}(?:{_TITLED_MONTH}[.]?{_S}{_DAY}{_ORDINAL}"
    f"|{_DAY}{_ORDINAL}{_S}(?:of{_S})?{_TITLED_MONTH}|{_DAY}{_S}de{_S}{_MONTH})"
)
_DATE = f"(?:{_WEEKDAY}(?:{_WITH_YEAR}|{_NUMERIC})|{_WITHOUT_YEAR})"
_BEFORE_DATE = rf"{_TIME},?{_S}(?:(?:on|am|le|el|-|\x{2013}){_S})?"
_AFTER_DATE = rf",?{_S}(?:(?i:at|um|à|a las?|@|-|\x{2013}){_S})?{_TIME}"
_BESIDE = (
    f"(?i:(?:current|local)?(?:{_any_of(_CLOCK_WORDS)})(?:{_S}(?:is|ist|est|es|it is|now|right now|of day))?)"
    r"""["'*]{0,3}[ \t]?[:=]?[ \t]?["'*]{0,3}"""
)

DATE_PATTERN = f"(?:{_BEFORE_DATE})?{_DATE}(?:{_AFTER_DATE})?|{_TIME_ALONE}|({_BESIDE}){_CLOCK}(?:{_MERIDIEM})?(?:{_ZONE})?"
"""In RE2's syntax. The first group is what stands before a time of day, and is kept."""

_VERSION = re.compile(
    r"(?:\b(?:v|ver|rev|revision|version|versions|release|build|tag|node|python|pip)\.?"
    r"[\s:=#\"'`]{0,4}|[=><~!]=\s?)$",
    re.IGNORECASE,
)
"""Behind these stands a version."""
_LOOKED_BACK = 16
_REFUSED_BEFORE = frozenset("-+@#$€£¥~^_\\")
_PRICE = re.compile(r"[  ]?(?:[$€£¥%]|EUR\b|USD\b|GBP\b|CHF\b)")
_STARTS_WITH_YEAR = re.compile(r"[0-9]{4}-")


def is_written_date(text: str, start: int, end: int) -> bool:
    """Whether what DATE_PATTERN found in a text is whole, and neither a version nor a price."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    in_path = _STARTS_WITH_YEAR.match(text, start) is not None
    if after and not _may_follow(after, in_path=in_path):
        return False
    if not text[start].isdigit():
        # As in current_time.
        return not before[-1:].isalnum()
    if before and not _may_precede(before, in_path=in_path):
        return False
    is_version = _VERSION.search(text[max(0, start - _LOOKED_BACK) : start]) is not None
    return not is_version and _PRICE.match(text, end) is None


def _may_precede(before: str, *, in_path: bool) -> bool:
    last = before[-1]
    if last.isalnum() or last in _REFUSED_BEFORE:
        return False
    if last == "/":
        return in_path
    # A dot or a colon behind a number, as in 1.25.11.2026.
    return not (last in ".:," and before[0] != last and before[0].isdigit())


def _may_follow(after: str, *, in_path: bool) -> bool:
    first, second = after[0], after[1:]
    if first.isalnum() or first == "_":
        return False
    if first == "/":
        return in_path
    if first == "." and in_path:
        return not second.isdigit()
    return not (first in ".-+:," and second.isalnum())


# The meaning of a date, to find the dates of a day.

_MONTH_NUMBERS = {name: number for number, names in enumerate(_MONTHS, 1) for name in names}
_LETTERS = re.compile(r"[^\W\d_]+")
_CLOCK_TEXT = re.compile(
    r"(?<!\d)(?P<hour>\d{1,2})(?:[:h](?P<minute>\d\d)|\.(?P<german>\d\d)(?= Uhr))(?::\d\d(?:[.,]\d+)?)?"
    r"\s?(?P<half>[AaPp])?(?:\.?[Mm]\b\.?)?(?:\s?[A-Z]{2,5})?(?:\s?[+-]\d{1,2}:?(?:\d\d)?)?"
)
_CLOCK_WORD = re.compile(rf"(?i)(?:\b|_)(?:{_any_of(_CLOCK_WORDS)})\b")
_FIRST_YEAR = 1900
_BESIDE_CLOCK = 24
"""Characters between a time of day and the word that says so."""


def says_day(text: str, day: date) -> bool:
    """Whether a written date is this day; where day and month are numbers, in either order."""
    left = _CLOCK_TEXT.sub(" ", text)
    numbers = [int(digits) for digits in re.findall(r"\d+", left)]
    years = [number for number in numbers if number >= _FIRST_YEAR]
    if years and years != [day.year]:
        return False
    small = [number for number in numbers if number < _FIRST_YEAR]
    words = reversed(_LETTERS.findall(left.lower()))
    month = next((_MONTH_NUMBERS[word] for word in words if word in _MONTH_NUMBERS), None)
    has_short_year = not years and len(small) > (2 if month is None else 1)
    if has_short_year and small.pop() != day.year % 100:
        return False
    if month is not None:
        return month == day.month and small == [day.day]
    return sorted(small) == sorted((day.month, day.day))


def says_time(text: str, start: int, end: int, moment: datetime) -> bool:
    """Whether a written date or time of day is this hour and minute, and a word beside says so."""
    match = _CLOCK_TEXT.search(text, start, end)
    if match is None or not _CLOCK_WORD.search(
        text[max(0, start - _BESIDE_CLOCK) : end + _BESIDE_CLOCK]
    ):
        return False
    hour, minute = int(match["hour"]), int(match["minute"] or match["german"])
    if (half := match["half"]) is not None:
        hour = hour % 12 + (12 if half in "Pp" else 0)
    return (hour, minute) == (moment.hour, moment.minute)


def needles(moment: datetime) -> tuple[bytes, ...]:
    """Texts in lower case: every mention of this day or minute contains at least one."""
    names = [re.split(r"[^a-z]+", spelling) for spelling in _DAYS[moment.weekday()]]
    short = f"{moment.year % 100:02d}"
    texts = {
        *(str(moment.year), f"/{short}", f"-{short}"),
        *(f"{mark}{moment.minute:02d}" for mark in ":h."),
        *(max(pieces, key=len) for pieces in names),
    }
    return tuple([text.encode() for text in texts])
