"""What one column of a dataset seems to be, and why: for `distcore init`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from distcore.config.guess_dates import formats, is_iso, shaped
from distcore_data.arrow import scalar, strings

TRUE_AND_FALSE = (
    {"true", "false"},
    {"yes", "no"},
    {"t", "f"},
    {"y", "n"},
    {"1", "0"},
    {"on", "off"},
)
ID_WORDS = ("id", "uuid", "guid", "key", "index", "rownum", "row")
MISSING_WORDS = (
    *("missing", "unknown", "none", "null", "nil", "nan", "na", "n/a", "n.a.", "not available"),
    *("not applicable", "not known", "undefined", "empty", "tbd"),
)
"""Words that mean a missing value in a column that otherwise holds numbers."""

UNREAD = (
    pa.types.is_nested,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
"""Arrow's types that no feature type reads, beside those of extensions."""

CYCLES = {
    "hour": 24,
    "hr": 24,
    "minute": 60,
    "month": 12,
    "mnth": 12,
    "quarter": 4,
    "season": 4,
    "weekday": 7,
    "dayofweek": 7,
    "dow": 7,
    "week": 53,
    "day": 31,
}
"""The largest value of whole numbers that go round: one more is again the first."""

FEW = 10
"""A whole-number target with at most this many values is predicted as classes."""

RARE = 10
"""Rows from which a category's value gets a code of its own, if most values have fewer."""

TEXT_WORDS = 4.0
"""Mean words of a value from which a column is text."""

PLAIN_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


@dataclass(frozen=True)
class Guess:
    """What a column seems to be. type: None leaves it out. why: one line for people. nulls:
    texts that mean missing."""

    name: str
    type: str | None
    why: str
    preprocessing: tuple[tuple[str, str], ...] = ()
    nulls: tuple[str, ...] = ()

    def remarked(self, remark: str) -> Guess:
        """The same with one thing more to say of it."""
        return replace(self, why=f"{self.why}; {remark}" if self.why else remark)


def guess(
    name: str,
    column: pa.ChunkedArray,
    target: bool = False,
    decimal: str = ".",
    share: float = 1.0,
) -> Guess:
    """What a column seems to be; a target is never taken for an identifier, nor for a set or a
    text. decimal: of numbers that are texts. share: of the dataset's rows that the column has."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    present = column.drop_null()
    if len(present) == 0:
        return Guess(name, None, "it is empty")
    kind = present.type
    if pa.types.is_union(kind):
        return Guess(name, None, "it holds values of several types; give it values of one")
    if isinstance(kind, pa.BaseExtensionType) or any(each(kind) for each in UNREAD):
        return Guess(
            name,
            None,
            f"it holds {kind}, which no feature type reads; make a text or numbers of it",
        )
    distinct = pc.unique(present)
    if len(distinct) == 1:
        return Guess(name, None, "it has one value only")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        called = "dates" if pa.types.is_date(kind) else "dates with times"
        return _of_times(name) if target else Guess(name, "date", called)
    if pa.types.is_temporal(kind):
        return _of_times(name)
    if pa.types.is_boolean(kind):
        return Guess(name, "binary", "true and false")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        commas = decimal == "," and pa.types.is_floating(kind)
        return _of_numbers(name, present, distinct, target, commas)
    texts, distinct = present.cast(pa.string()), distinct.cast(pa.string())
    return _of_texts(name, texts, distinct, target, decimal, share)


def is_of_numbers(column: pa.ChunkedArray, decimal: str) -> bool:
    """Whether a column is one of numbers already, or of texts that are read as numbers."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _as_numbers(pc.unique(column.drop_null()), decimal)[0]
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def has_decimal_commas(column: pa.ChunkedArray) -> bool:
    """Whether a column's texts are numbers with decimal commas, of which some cannot stand between
    thousands."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return False
    if not is_of_numbers(column, ","):
        return False
    texts = pc.utf8_trim_whitespace(pc.unique(column.drop_null().cast(pa.string())))
    between = pc.match_substring_regex(texts, _with_thousands(".", ","))
    return bool(pc.any(pc.and_not(pc.match_substring(texts, ","), between)).as_py())


def _of_numbers(
    name: str, present: pa.ChunkedArray, distinct: pa.Array, target: bool, commas: bool
) -> Guess:
    """commas: whether some are written with decimal commas."""
    doubles = distinct.cast(pa.float64(), safe=False)  # an id may have more digits than a double
    whole = bool(pc.all(pc.equal(pc.floor(doubles), doubles)).as_py())
    if len(distinct) == 2 and set(doubles.to_pylist()) == {0.0, 1.0}:
        if commas:  # a binary feature reads texts, and knows none such as 1,0 for true
            return Guess(name, "category", "0 and 1, written with decimal commas")
        return Guess(name, "binary", "0 and 1")
    if target and whole and len(distinct) <= FEW:
        return Guess(
            name, "category", f"{len(distinct)} values; type: number predicts an amount instead"
        )
    unique = whole and len(distinct) == len(present) and len(present) > FEW
    if unique and not target and (_named_like_id(name) or _is_counter(present)):
        return Guess(name, None, "every row has its own value, so it looks like an identifier")
    found = pc.min_max(doubles).as_py()
    low, high = found["min"], found["max"]
    longest = max((CYCLES.get(word, 0) for word in _words(name)), default=0)
    often = len(present) >= RARE * len(distinct)
    if whole and not target and longest and often and low >= 0 and high <= longest:
        why = f"{low:g} to {high:g} go round, as a clock does: the last lies beside the first"
        return Guess(name, "category", why)
    return Guess(name, "number", f"{low:.6g} to {high:.6g}")


def _of_texts(
    name: str,
    present: pa.ChunkedArray,
    distinct: pa.Array,
    target: bool,
    decimal: str,
    share: float,
) -> Guess:
    values, rows = len(distinct), len(present)
    lower = {str(text).strip().lower() for text in distinct.slice(0, 3).to_pylist()}
    if values == 2 and lower in TRUE_AND_FALSE:
        return Guess(name, "binary", " and ".join(sorted(lower)))
    numeric, odd = _as_numbers(distinct, decimal)
    if numeric:
        return _of_written_numbers(name, present, odd, target, decimal)
    written = _written_otherwise(distinct, decimal)
    if written:
        return Guess(name, None, written)
    stray = _stray(distinct, decimal)
    dates = None if target else _of_dates(name, distinct)
    if dates is not None:
        return dates
    if target:
        if values > max(FEW, rows // 2):
            why = f"nearly every row has its own value ({values} in {rows} rows)"
            return Guess(name, None, f"{why}{stray}")
        return Guess(name, "category", f"{values} values{stray if values > FEW else ''}")
    members = 0 if stray else _members(distinct)
    if members:
        return Guess(name, "set", f"{members} members between commas", (("tokenizer", "comma"),))
    spaces = pc.count_substring_regex(pc.utf8_trim_whitespace(distinct), r"\s+")
    words = float(pc.mean(pc.add(spaces, scalar(1))).as_py())
    if words >= TEXT_WORDS:
        return Guess(name, "text", f"{words:.0f} words on average")
    if words >= 2 and values > rows // 2:
        why = f"{words:.0f} words on average: few enough to be taken each by itself, in no order"
        return Guess(name, "set", why)
    found = _of_labels(name, present, values, share)
    return replace(found, why=f"{found.why}{stray}") if values > FEW else found


def _of_written_numbers(
    name: str, present: pa.ChunkedArray, odd: tuple[str, ...], target: bool, decimal: str
) -> Guess:
    """What the same numbers are in a file that has no texts for them, such as csv. odd: the
    texts that mean missing."""
    texts = pc.utf8_trim_whitespace(present)
    texts = texts.filter(pc.match_substring_regex(texts, _plain_number(decimal)))
    commas = bool(pc.any(pc.match_substring(texts, ",")).as_py())
    with_points = pc.replace_substring(texts, decimal, ".")
    numbers = pc.utf8_ltrim(with_points, "+").cast(pa.float64())
    distinct = pc.unique(numbers)
    if len(distinct) == 1:  # written in two ways, or beside what means missing
        return Guess(name, None, "it has one value only")
    found = _of_numbers(name, numbers, distinct, target, commas)
    if odd:
        why = f"numbers, and {', '.join(map(repr, odd))} for missing"
    else:
        why = "numbers, written as text"
    if found.type != "number":
        why = f"{found.why}; {why}"
    return Guess(name, found.type, why, (), odd)


def _of_dates(name: str, distinct: pa.Array) -> Guess | None:
    """A date if every text is one or can only mean missing; None for texts that are no dates."""
    texts = pc.utf8_trim_whitespace(distinct)
    unlike = texts.filter(pc.invert(shaped(texts)))
    odd = tuple(each for each in unlike.to_pylist()[: len(MISSING_WORDS)] if _means_missing(each))
    if len(unlike) - len(odd) > 0.1 * (len(texts) - len(odd)) or len(odd) == len(texts):
        return None
    texts = texts.filter(pc.invert(pc.is_in(texts, strings(odd))))
    iso = is_iso(texts)
    said = f", and {', '.join(map(repr, odd))} for missing" if odd else ""
    if pc.all(iso).as_py():
        return Guess(name, "date", f"dates{said}", (), odd)
    if pc.any(iso).as_py():
        wrong = texts.filter(pc.invert(iso))[0].as_py()
        why = f"it holds dates, and {wrong!r}, which is none; correct it or leave it empty"
        return Guess(name, None, why)
    found = formats(texts)
    if len(found) == 1:
        given = (("datetime_format", f'"{found[0]}"'),)
        return Guess(name, "date", f"dates, such as {texts[0]}{said}", given, odd)
    which = f"{' and '.join(found)} both read them; " if found else ""
    why = f"it holds dates, such as {texts[0]}; {which}write how they are spelled: "
    return Guess(name, None, why + 'type: date, preprocessing: {datetime_format: "%d/%m/%Y"}')


def _of_times(name: str) -> Guess:
    return Guess(name, None, "it holds times; make numbers of it (a year, an hour, days since …)")


def _of_labels(name: str, present: pa.ChunkedArray, values: int, share: float) -> Guess:
    """A category, of those values that enough rows have to learn from; or nothing.

    share: of all rows that the column has. Of a part few rows have a value that was there before,
    in proportion to it, and how often each is in all rows nobody knows."""
    rows = len(present)
    if values <= FEW or rows >= RARE * values:
        return Guess(name, "category", f"{values} values")
    again = (rows - values) / (rows * share)
    if share < 1.0 and again >= 0.1:
        each = 1 + 2 * again  # rows that have a row's value, as pairs among those of a part tell
        if each < RARE:
            return Guess(
                name, None, f"a value of it is in about {each:.0f} rows, too few to learn from"
            )
        return Guess(name, "category", f"{values} values and more")
    counts = pc.value_counts(present.combine_chunks()).field("counts")
    often = int(pc.sum(pc.greater_equal(counts, scalar(RARE))).as_py())
    if not often:
        if again < 0.1:
            return Guess(
                name, None, "nearly every row has its own value, so it looks like an identifier"
            )
        return Guess(
            name, None, f"none of its {values} values is in {RARE} rows, too few to learn from"
        )
    why = (
        f"{values} values, of which {often} are in {RARE} rows and more; the others are taken as "
        "one"
    )
    return Guess(name, "category", why, (("most_common", str(often)),))


def _words(name: str) -> list[str]:
    """The words of a column's name, in lower case: of hourOfDay and hour_of_day alike."""
    spaced = "".join(f" {letter}" if letter.isupper() else letter for letter in name)
    kept = "".join(letter if letter.isalnum() else " " for letter in spaced)
    return [*kept.lower().split(), "".join(letter for letter in name if letter.isalnum()).lower()]


def _stray(distinct: pa.Array, decimal: str) -> str:
    """What to add of texts of which nine in ten are numbers, such as beside a line of totals;
    nothing of others."""
    texts = pc.utf8_trim_whitespace(distinct)
    number = pc.match_substring_regex(texts, _plain_number(decimal))
    if pc.mean(number.cast(pa.float64())).as_py() < 0.9:
        return ""
    others = texts.filter(pc.invert(number)).to_pylist()
    odd = next((text for text in others if not _means_missing(text)), None)
    if odd is None:
        return ""
    return f"; it holds numbers, and {odd!r}, which is none: if they are amounts, correct that"


def _written_otherwise(distinct: pa.Array, decimal: str) -> str | None:
    """Why a column of numbers cannot be read as it is, and what to do; None for one that holds
    no numbers."""
    trimmed = pc.utf8_trim_whitespace(distinct)
    plain = pc.match_substring_regex(trimmed, _plain_number(decimal))
    written = _written_numbers(decimal)
    numbers = [plain, *(pc.match_substring_regex(trimmed, shape) for shape, _, _ in written)]
    either = numbers[0]
    for each in numbers[1:]:
        either = pc.or_(either, each)
    if pc.mean(either.cast(pa.float64())).as_py() < 0.9:
        return None
    for (_, what, how), shaped_so in zip(written, numbers[1:], strict=True):
        found = pc.and_not(shaped_so, plain)
        if pc.any(found).as_py():
            example = trimmed.filter(found)[0].as_py()
            return f"its numbers have {what}, such as {example!r}; write {how}, and it is a number"
    return None


def _named_like_id(name: str) -> bool:
    words = "".join(letter if letter.isalnum() else " " for letter in name).lower().split()
    is_index = name.startswith("Unnamed: ")  # of pandas, in a csv file
    return is_index or any(word in ID_WORDS for word in words) or name.endswith(("Id", "ID"))


def _is_counter(present: pa.ChunkedArray) -> bool:
    """Whole numbers that go up by one from row to row, but where a look goes on elsewhere."""
    steps = pc.pairwise_diff(present.combine_chunks().cast(pa.float64())).drop_null()
    return bool(pc.mean(pc.equal(steps, scalar(1.0)).cast(pa.float64())).as_py() >= 0.95)


def _plain_number(decimal: str) -> str:
    """The shape of numbers with this decimal sign."""
    return PLAIN_NUMBER.replace(r"\.", re.escape(decimal))


def _with_thousands(decimal: str, mark: str) -> str:
    """The shape of numbers with this decimal sign, and the mark between thousands."""
    return rf"^[+-]?[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+({re.escape(decimal)}\d+)?$"


def _written_numbers(decimal: str) -> tuple[tuple[str, str, str], ...]:
    """(shape, what it has, how to write it): numbers that a feature `number` does not read where
    this is the decimal sign."""
    mark = "," if decimal == "." else "."
    decimals, marks = ("points", "commas") if decimal == "." else ("commas", "points")
    d, m = re.escape(decimal), re.escape(mark)
    return (
        (
            rf"^[+-]?[1-9]\d{{0,2}}({d}\d{{3}})+{m}\d+$",
            f"{decimals} between thousands",
            f"1{decimal}234{mark}5 as 1234{decimal}5",
        ),
        (
            _with_thousands(decimal, mark),
            f"{marks} between thousands",
            f"1{mark}234{decimal}5 as 1234{decimal}5",
        ),
        (rf"^[+-]?\d+{m}\d+$", f"decimal {marks}", f"3{mark}14 as 3{decimal}14"),
        (r"^[+-]?[\d.,]+ ?%$", "percent signs", f"12% as 12 or 0{decimal}12"),
        (
            r"^[+-]?\p{Sc} ?[+-]?[\d.,]+$|^[+-]?[\d.,]+ ?(\p{Sc}|EUR|USD|GBP)$",
            "currency signs",
            f"$12{decimal}50 as 12{decimal}50",
        ),
    )


def _as_numbers(distinct: pa.Array, decimal: str) -> tuple[bool, tuple[str, ...]]:
    """Whether texts are numbers, but for a few spellings that can only mean missing, such as `?`
    and `n/a`."""
    texts = pc.utf8_trim_whitespace(distinct)
    number = pc.match_substring_regex(texts, _plain_number(decimal))
    some: Iterable[str] = distinct.filter(pc.invert(number)).to_pylist()[: len(MISSING_WORDS) + 1]
    odd = tuple(some)
    missing = all(_means_missing(text) for text in odd)
    return bool(
        len(odd) <= len(MISSING_WORDS) and missing and len(distinct) - len(odd) > len(odd)
    ), odd


def _means_missing(text: str) -> bool:
    return not any(letter.isalnum() for letter in text) or text.strip().lower() in MISSING_WORDS


def _members(distinct: pa.Array) -> int:
    """How many members the values have if they are sets between commas, 0 if they are not."""
    commas = pc.count_substring(distinct, ",")
    if pc.mean(pc.greater(commas, scalar(0))).as_py() < 0.3:
        return 0
    parts = pc.utf8_trim_whitespace(pc.list_flatten(pc.split_pattern(distinct, ",")))
    members = pc.unique(parts)
    spaces = pc.count_substring(parts, " ")
    short = pc.mean(pc.less_equal(spaces, scalar(2))).as_py() >= 0.9
    return (
        len(members)
        if short and len(members) <= max(20, len(distinct)) and len(members) < len(parts) / 2
        else 0
    )
