"""Write a commented config by looking at data: a type for each column, and for those left out the reason."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from distcore_core.errors import DataError
from distcore_data.sources.options import NULL_VALUES

TRUE_AND_FALSE = ({"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"}, {"1", "0"}, {"on", "off"})
ID_WORDS = ("id", "uuid", "guid", "key", "index", "rownum", "row")
FEW = 10
"""A whole-number target with at most this many values is predicted as classes."""

TEXT_WORDS = 4.0
"""Mean words of a value from which a column is text."""


@dataclass(frozen=True)
class Guess:
    """What a column seems to be. type: None leaves it out. why: one line for people. nulls: texts that mean missing."""

    name: str
    type: str | None
    why: str
    preprocessing: tuple[tuple[str, str], ...] = ()
    nulls: tuple[str, ...] = ()


def suggest(table: pa.Table, targets: Sequence[str] | str) -> str:
    """The text of a config for the columns of a sample.

    table: the first rows, with the types that Arrow infers. targets: the columns to predict. Raises DataError for a
    target that is not there, has one value only, or cannot be predicted.
    """
    wanted = [targets] if isinstance(targets, str) else list(targets)
    for target in wanted:
        if target not in table.column_names:
            near = difflib.get_close_matches(target, table.column_names, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            raise DataError(f"There is no column {target!r}. {hint}Columns: {', '.join(table.column_names)}.")
    outputs = [_output(name, table[name]) for name in dict.fromkeys(wanted)]
    inputs = [_guess(name, table[name]) for name in table.column_names if name not in wanted]
    if not any(guess.type for guess in inputs):
        raise DataError(
            "No column is left to predict from: every other column is constant, an identifier, a date or empty. "
            "Write the config by hand, starting from `input_features: [{name: ..., type: ...}]`."
        )
    return write_config(inputs, outputs, table.num_rows)


def write_config(inputs: Sequence[Guess], outputs: Sequence[Guess], rows: int) -> str:
    """The YAML text for what the columns seem to be; `load_config` reads it."""
    numbers = any(guess.type == "number" for guess in inputs)
    nulls = list(dict.fromkeys(text for guess in inputs for text in guess.nulls))
    classes = len(outputs) == 1 and outputs[0].type in ("binary", "category")
    lines = [
        f"# Written by `distcore init` from the first {rows:,} rows. Change what is wrong: the types are guesses.",
        "input_features:",
        *(_feature_line(guess) for guess in inputs),
        "",
        "output_features:",
        *(_feature_line(guess) for guess in outputs),
        "",
        "preprocessing:",
    ]
    if classes:
        column = _quoted(outputs[0].name)
        lines.append(
            f"  split: {{type: stratify, column: {column}, probabilities: [0.7, 0.1, 0.2]}}  # or type: random"
        )
    else:
        lines.append("  split: {type: random, probabilities: [0.7, 0.1, 0.2]}  # train, validation, test")
    if nulls:
        texts = ", ".join(_quoted(text) for text in (*NULL_VALUES, *nulls))
        lines.append(f"  csv: {{null_values: [{texts}]}}  # these mean: missing")
    if numbers:
        lines += [
            "",
            "defaults:  # for every feature of the type that does not say otherwise",
            "  number:",
            "    preprocessing: {missing_value_strategy: fill_with_mean, normalization: zscore}",
        ]
    lines += [
        "",
        "combiner: {type: concat, num_fc_layers: 2, output_size: 128}  # two layers over all inputs",
        "",
        "trainer:",
        "  epochs: 50",
        f"  batch_size: {_batch_size(rows)}",
        "  learning_rate: 0.001",
        "  early_stop: 5  # evaluations without improvement; -1: never",
    ]
    return "\n".join(lines) + "\n"


def _feature_line(guess: Guess) -> str:
    """`- {name: age, type: number}  # why`, or a comment if the column is left out."""
    if guess.type is None:
        return f"  # {_quoted(guess.name)} is left out: {guess.why}"
    parts = [f"name: {_quoted(guess.name)}", f"type: {guess.type}"]
    if guess.preprocessing:
        inside = ", ".join(f"{name}: {value}" for name, value in guess.preprocessing)
        parts.append(f"preprocessing: {{{inside}}}")
    return f"  - {{{', '.join(parts)}}}" + (f"  # {guess.why}" if guess.why else "")


def _quoted(text: str) -> str:
    """A YAML scalar that is read back as this text: plain where that is safe, else in double quotes."""
    import yaml

    plain = text.isascii() and text.replace("_", "").replace("-", "").isalnum() and text[0].isalpha()
    if plain and yaml.safe_load(text) == text:
        return text
    return str(yaml.safe_dump(text, default_style='"', allow_unicode=True, width=1 << 20)).strip()


def _batch_size(rows: int) -> int:
    return 1024 if rows >= 50_000 else 128 if rows >= 2_000 else 32


# ------------------------------------------------------------------ one column


def _output(name: str, column: pa.ChunkedArray) -> Guess:
    guess = _guess(name, column, target=True)
    if guess.type in ("text", "set") or guess.type is None:
        reason = guess.why if guess.type is None else f"it looks like a column of {guess.type}s: {guess.why}"
        raise DataError(
            f"Column {name!r} cannot be a target: {reason}. Targets are numbers, categories, or true and false."
        )
    return guess


def _guess(name: str, column: pa.ChunkedArray, target: bool = False) -> Guess:
    """What a column seems to be; a target is never taken for an identifier."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    present = column.drop_null()
    if len(present) == 0:
        return Guess(name, None, "it is empty")
    kind = present.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return Guess(name, None, f"it holds {kind}, which no feature type reads; make a text or numbers of it")
    if pa.types.is_temporal(kind):
        return Guess(name, None, "it holds times; make numbers of it (a year, an hour, days since …)")
    distinct = pc.unique(present)
    if len(distinct) == 1:
        return Guess(name, None, "it has one value only")
    if pa.types.is_boolean(kind):
        return Guess(name, "binary", "")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _of_numbers(name, present, distinct, target)
    return _of_texts(name, present.cast(pa.string()), distinct.cast(pa.string()), target)


def _of_numbers(name: str, present: pa.ChunkedArray, distinct: pa.Array, target: bool) -> Guess:
    doubles = distinct.cast(pa.float64())
    whole = bool(pc.all(pc.equal(pc.floor(doubles), doubles)).as_py())
    if len(distinct) == 2 and set(doubles.to_pylist()) == {0.0, 1.0}:
        return Guess(name, "binary", "0 and 1")
    if target and whole and len(distinct) <= FEW:
        return Guess(name, "category", f"{len(distinct)} values; type: number predicts an amount instead")
    unique = whole and len(distinct) == len(present) and len(present) > FEW
    if unique and not target and (_named_like_id(name) or _is_counter(present)):
        return Guess(name, None, "every row has its own value, so it looks like an identifier")
    return Guess(name, "number", "")


def _of_texts(name: str, present: pa.ChunkedArray, distinct: pa.Array, target: bool) -> Guess:
    values, rows = len(distinct), len(present)
    lower = {str(text).strip().lower() for text in distinct.slice(0, 3).to_pylist()}
    if values == 2 and lower in TRUE_AND_FALSE:
        return Guess(name, "binary", " and ".join(sorted(lower)))
    numeric, odd = _as_numbers(distinct)
    if numeric:
        return Guess(name, "number", f"numbers, and {', '.join(map(repr, odd))} for missing" if odd else "", (), odd)
    if not target and _are_dates(distinct):
        return Guess(name, None, "it holds times; make numbers of it (a year, an hour, days since …)")
    words = float(pc.mean(pc.add(pc.count_substring_regex(pc.utf8_trim_whitespace(distinct), r"\s+"), 1)).as_py())
    if target:
        if values > max(FEW, rows // 2):
            return Guess(name, None, f"nearly every row has its own value ({values} in {rows} rows)")
        return Guess(name, "category", f"{values} values")
    members = _members(distinct)
    if members:
        return Guess(name, "set", f"{members} members between commas", (("tokenizer", "comma"),))
    if words >= TEXT_WORDS or (words >= 2 and values > rows // 2):
        return Guess(name, "text", f"{words:.0f} words on average")
    if values > 0.9 * rows and rows > FEW:
        return Guess(name, None, "nearly every row has its own value, so it looks like an identifier")
    return Guess(name, "category", f"{values} values")


def _named_like_id(name: str) -> bool:
    words = "".join(letter if letter.isalnum() else " " for letter in name).lower().split()
    return any(word in ID_WORDS for word in words) or name.endswith(("Id", "ID"))


def _is_counter(present: pa.ChunkedArray) -> bool:
    """Whole numbers that go up by one from row to row."""
    steps = pc.pairwise_diff(present.combine_chunks().cast(pa.float64())).drop_null()
    return bool(pc.all(pc.equal(steps, 1.0)).as_py())


def _as_numbers(distinct: pa.Array) -> tuple[bool, tuple[str, ...]]:
    """Whether texts are numbers, but for at most two that can only mean missing, such as `?`."""
    trimmed = pc.utf8_trim_whitespace(distinct)
    number = pc.match_substring_regex(trimmed, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
    odd: Iterable[str] = distinct.filter(pc.invert(number)).to_pylist()[:3]
    odd = tuple(odd)
    marks = all(not any(letter.isalnum() for letter in text) for text in odd)
    return bool(len(odd) <= 2 and marks and len(distinct) - len(odd) > len(odd)), odd


def _are_dates(distinct: pa.Array) -> bool:
    """Nine in ten of the first thousand values look like 2020-01-31, 31/1/2020 or 1.31.20, with or without a time."""
    some = pc.utf8_trim_whitespace(distinct.slice(0, 1000))
    shape = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T]\d{1,2}:\d{2}.*)?$"
    matched = pc.sum(pc.match_substring_regex(some, shape)).as_py()
    return bool(matched >= 0.9 * len(some))


def _members(distinct: pa.Array) -> int:
    """How many members the values have if they are sets between commas, 0 if they are not."""
    commas = pc.count_substring(distinct, ",")
    if pc.mean(pc.greater(commas, 0)).as_py() < 0.3:
        return 0
    parts = pc.utf8_trim_whitespace(pc.list_flatten(pc.split_pattern(distinct, ",")))
    members = pc.unique(parts)
    short = pc.mean(pc.less_equal(pc.count_substring(parts, " "), 2)).as_py() >= 0.9
    return len(members) if short and len(members) <= max(20, len(distinct)) and len(members) < len(parts) / 2 else 0
