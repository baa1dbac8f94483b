"""Write a commented config by looking at data: a type for each column, and for those left out
the reason."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from distcore.config.giveaway import remarked
from distcore.config.guess import Guess, guess, has_decimal_commas, is_of_numbers
from distcore.config.read_features import Role
from distcore.config.yaml_nodes import VARIABLE
from distcore_core.contracts.values import COMBINED
from distcore_core.errors import DataError
from distcore_data.arrow import null
from distcore_data.printable import listed, printable
from distcore_data.sources.options import NULL_VALUES, DelimitedOptions

Model = Literal["network", "trees"]
SCHEMA = "distcore.schema.json"
UNWRITABLE = "in a config the environment's value stands for its name; rename the column"
"""Why a column is left out whose name is `${ENV:…}`: whoever made the data would choose what of the
environment is read, and written into results."""

NAMED = 50
"""Columns that are named where a target is none of them."""

DATASET = "dataset"
"""How one dataset that is to be split is called, beside the names of sets that are split
already."""


def suggest(
    tables: Mapping[str, pa.Table] | pa.Table,
    targets: Sequence[str] | str,
    model: Model = "network",
    decimal: str = ".",
    rows: int | None = None,
) -> str:
    """The text of a config for the columns of a sample.

    Args:
        tables: the first rows, with the types that Arrow infers: one table to be split, or
            {"training_set": table, …}.
        targets: the columns to predict.
        model: what is to be trained: a network, or gradient-boosted trees.
        decimal: the sign before decimals with which the tables were read; see `look`.
        rows: about how many the dataset, or the training set, has, by which the network and its
            steps are sized; None: those of the table.

    Raises:
        DataError: for a target that is not there, has one value only, or cannot be predicted; if no
            column is left.
    """
    sets = {DATASET: tables} if isinstance(tables, pa.Table) else dict(tables)
    table = _joined(list(sets.values()))
    wanted = list(dict.fromkeys([targets] if isinstance(targets, str) else targets))
    for target in wanted:
        if target not in table.column_names:
            near = difflib.get_close_matches(target, table.column_names, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            names = listed(table.column_names, NAMED)
            raise DataError(f"There is no column {target!r}. {hint}Columns: {names}.")
    looked = next(iter(sets.values())).num_rows
    share = min(1.0, looked / max(1, rows or looked))
    of = f"{looked:,}" if rows in (None, looked) else f"{looked:,} of about {rows:,}"
    part = f" in the {of} rows looked at" if share < 1.0 else ""
    outputs = [_output(name, table[name], decimal, part) for name in wanted]
    columns = {each: set(part.column_names) for each, part in sets.items()}
    inputs = [
        _input(name, table[name], columns, model, decimal, share)
        for name in table.column_names
        if name not in wanted
    ]
    if not any(each.type for each in inputs):
        raise DataError(
            "No column is left to predict from: every other column is constant, an identifier "
            "or empty. Write the config by hand, starting from `input_features: [{name: ..., "
            "type: ...}]`."
        )
    inputs, outputs = remarked(inputs, outputs, table, share)
    split = list(sets) == [DATASET]
    return write_config(inputs, outputs, rows or looked, of, split, model, decimal)


def look(
    sample: Callable[[DelimitedOptions], Mapping[str, pa.Table]],
) -> tuple[Mapping[str, pa.Table], str]:
    """The first rows of each set, and the sign before decimals with which they were read: a comma
    if some numbers have one and no others a point.

    Args:
        sample: reads the rows of all sets by these options.
    """
    tables = sample(DelimitedOptions())
    points = _joined(list(tables.values()))
    if not any(has_decimal_commas(column) for column in points.columns):
        return tables, "."
    try:
        again = sample(DelimitedOptions(decimal=","))
    except DataError:  # commas separate the fields, too
        return tables, "."
    commas = _joined(list(again.values()))
    alike = points.column_names == commas.column_names and all(
        is_of_numbers(after, ",") or not is_of_numbers(before, ".")
        for before, after in zip(points.columns, commas.columns, strict=True)
    )
    return (again, ",") if alike else (tables, ".")


def write_config(
    inputs: Sequence[Guess],
    outputs: Sequence[Guess],
    rows: int,
    looked: str,
    split: bool,
    model: Model,
    decimal: str,
) -> str:
    """The YAML text for what the columns seem to be; `load_config` reads it.

    rows: of the dataset, or of the training set. looked: how many of them were looked at, in
        words. split: whether the dataset is still to be split."""
    trained = max(1, round(rows * 0.7) if split else rows)
    sizes = next(each for each in SIZES if trained >= each.least)
    lines = [
        f"# yaml-language-server: $schema={SCHEMA}",
        f"# (An editor then completes and checks this file: `distcore schema --output {SCHEMA}` "
        "writes the schema.)",
        f"# Written by `distcore init` from a look at {looked} rows. Change what is wrong: the "
        "types are guesses.",
        "input_features:",
        *(_feature_line(each) for each in inputs),
        "",
        "output_features:",
        *(_feature_line(each, "output") for each in outputs),
        *_preprocessing(inputs, outputs, split, decimal),
    ]
    lines += _defaults({each.type for each in inputs}, None if model == "trees" else sizes)
    if model == "trees":
        lines += ["", *_trees()]
    else:
        numbers = sum(each.type == "number" for each in inputs)
        lines += ["", *_network(trained, numbers, sizes)]
    return "\n".join(lines) + "\n"


def _preprocessing(
    inputs: Sequence[Guess], outputs: Sequence[Guess], split: bool, decimal: str
) -> Iterator[str]:
    nulls = list(dict.fromkeys(text for each in (*inputs, *outputs) for text in each.nulls))
    if not split and not nulls and decimal == ".":
        return
    yield from ("", "preprocessing:")
    if split and len(outputs) == 1 and outputs[0].type in ("binary", "category"):
        column = _quoted(outputs[0].name)
        yield (
            f"  split: {{type: stratify, column: {column}, probabilities: [0.7, 0.1, 0.2]}}  # or "
            "type: random"
        )
    elif split:
        yield "  split: {type: random, probabilities: [0.7, 0.1, 0.2]}  # train, validation, test"
    options, why = [], []
    if decimal != ".":
        options.append(f'decimal: "{decimal}"')
        why.append(f"3{decimal}14 is a number")
    if nulls:
        texts = ", ".join(_quoted(text) for text in (*NULL_VALUES, *nulls))
        options.append(f"null_values: [{texts}]")
        why.append("these mean: missing")
    if options:
        yield f"  csv: {{{', '.join(options)}}}  # {'; '.join(why)}"


def _defaults(types: set[str | None], sizes: Sizes | None) -> Iterator[str]:
    """What every feature of a type has that does not say otherwise. sizes: of a network; None:
    it is none."""
    if not types & {"number", "category"} or (sizes is None and "number" not in types):
        return
    yield from ("", "defaults:  # for every feature of the type that does not say otherwise")
    if "number" in types:
        yield "  number:"
        yield "    preprocessing: {missing_value_strategy: fill_with_mean, normalization: zscore}"
        if sizes is not None:
            yield from _number_encoder(sizes)
    if "category" in types and sizes is not None:
        yield f"  category: {{encoder: {{type: dense, embedding_size: {sizes.category}}}}}"


def _number_encoder(sizes: Sizes) -> Iterator[str]:
    if not sizes.bins:
        why = "each number through a layer of its own: it may bend"
        yield f"    encoder: {{type: dense, output_size: {sizes.number}}}  # {why}"
        return
    shape = f"num_bins: {sizes.bins}, output_size: {sizes.number}"
    why = "a number may bend from bin to bin; bins have equally many rows"
    yield f"    encoder: {{type: ple, {shape}, activation: relu}}  # {why}"


def _network(trained: int, numbers: int, sizes: Sizes) -> Iterator[str]:
    """Layers, and as many steps as rows of this number need. numbers: columns of them."""
    if numbers >= MANY:
        yield f"# Each of {numbers:,} numbers has an encoder of its own: steps are slow. Trees"
        yield "# (`distcore init --model trees`) train on such tables in less time."
    shape = f"num_fc_layers: {sizes.layers}, output_size: {sizes.width}"
    yield f"combiner: {{type: concat, {shape}}}  # layers over all inputs"
    yield from ("", "trainer:")
    yield f"  epochs: {_epochs(trained)}  # at most"
    yield f"  batch_size: {batch_size(trained)}  # for about {trained:,} rows to train on"
    yield f"  learning_rate: {sizes.learning_rate}  # more rows stand larger steps"
    if sizes.plateau:
        yield "  optimizer: {type: adamw, weight_decay: 0.01}"
        yield "  learning_rate_scheduler:  # smaller steps once the loss no longer falls"
        yield (
            "    {reduce_on_plateau: 3, reduce_on_plateau_patience: 5, reduce_on_plateau_rate: 0.3}"
        )
    yield f"  early_stop: {PATIENCE}  # evaluations without improvement; -1: never"
    yield (
        "  validation_metric: loss  # it falls smoothly; on few rows an accuracy moves in jumps, "
        "and stops too early"
    )


class Sizes(NamedTuple):
    """Of a network. least: rows to train on from which it is taken. bins: of numbers, 0: none.
    number, category: widths of their encoders."""

    least: int
    bins: int
    number: int
    category: int
    layers: int
    width: int
    learning_rate: float
    plateau: bool


SIZES = (
    Sizes(2000, 32, 32, 16, 3, 256, 0.002, True),
    Sizes(1000, 16, 8, 8, 2, 128, 0.0005, False),
    Sizes(0, 0, 8, 8, 2, 128, 0.0005, False),
)
"""Measured on the datasets of the quality suite (docs/log.md): few rows are learned by heart by
what many rows need."""


MANY = 1000
"""From so many columns of numbers on, a network takes several times as long as trees
(docs/log.md)."""


def _trees() -> Iterator[str]:
    yield "backend:"
    yield "  trainer:"
    yield "    type: lightgbm  # gradient-boosted trees: pip install distcore-lightgbm"
    yield (
        "    num_boost_round: 1000  # trees at most; the best number is found on the validation "
        "split"
    )
    yield "    early_stopping_rounds: 50"


PATIENCE = 20
"""Evaluations without improvement."""


def batch_size(rows: int) -> int:
    """Rows of a batch: a power of two from 8 to 1024, so that an epoch has about 60 steps or
    more."""
    most = 1024 if rows >= 50_000 else 128
    return max(8, min(most, 1 << int(math.log2(max(8.0, rows / 30)))))


def _epochs(rows: int) -> int:
    return max(20, min(150, 10 * round(1_000_000 / rows / 10)))


def _feature_line(guess: Guess, role: Role = "input") -> str:
    """`- {name: age, type: number}  # why`, or a comment if the column is left out."""
    if guess.type is None:
        return f"  # {_quoted(guess.name)} is left out: {printable(guess.why)}"
    named = f"name: {_quoted(guess.name)}"
    if role == "output" and guess.name == COMBINED:
        named = f"name: {COMBINED}_output, column: {COMBINED}"
    parts = [named, f"type: {guess.type}"]
    if guess.preprocessing:
        inside = ", ".join(f"{name}: {value}" for name, value in guess.preprocessing)
        parts.append(f"preprocessing: {{{inside}}}")
    if guess.type == "text":
        parts.append("encoder: {type: embed}")
    return f"  - {{{', '.join(parts)}}}" + (f"  # {printable(guess.why)}" if guess.why else "")


def _quoted(text: str) -> str:
    """A YAML scalar that is read back as this text: plain if that is safe, else in double
    quotes."""
    import yaml

    plain = (
        text.isascii() and text.replace("_", "").replace("-", "").isalnum() and text[0].isalpha()
    )
    if plain and yaml.safe_load(text) == text:
        return text
    return str(yaml.safe_dump(text, default_style='"', allow_unicode=True, width=1 << 20)).strip()


# ------------------------------------------------------------------ the columns


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all sets; a column that is numbers in one and texts in another is texts. Arrow
    filters no views of texts, so those are texts, too."""
    tables = [_plain(table) for table in tables]
    if len(tables) == 1:
        return tables[0]
    kinds: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            kinds.setdefault(field.name, set()).add(field.type)
    columns = {}
    named = [(set(table.column_names), table) for table in tables]
    for name, types in kinds.items():
        parts = [table[name] for names, table in named if name in names]
        if len(types) > 1:
            parts = [_alike(part, types) for part in parts]
        missing = sum(table.num_rows for names, table in named if name not in names)
        chunks = [chunk for part in parts for chunk in part.chunks]
        columns[name] = pa.chunked_array([*chunks, pa.nulls(missing, parts[0].type)], parts[0].type)
    return pa.table(columns)


def _plain(table: pa.Table) -> pa.Table:
    """Its texts without views, and null for NaN, which is a missing value to every feature. Raises
    DataError if two columns have one name."""
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"The dataset has two columns {printable(twice)!r}. Rename one.")
    plain = [
        field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
        for field in table.schema
    ]
    columns = [
        pc.if_else(pc.is_nan(each), null(each.type), each)
        if pa.types.is_floating(each.type)
        else each
        for each in table.cast(pa.schema(plain)).columns
    ]
    return pa.table(columns, names=table.column_names)


def _alike(part: pa.ChunkedArray, types: set[pa.DataType]) -> pa.ChunkedArray:
    """The column in one type that holds all of these."""
    known = {each for each in types if not pa.types.is_null(each)}
    if len(known) == 1:
        return part.cast(known.pop())
    numbers = all(pa.types.is_integer(each) or pa.types.is_floating(each) for each in known)
    if numbers:
        return part.cast(pa.float64())
    if pa.types.is_dictionary(part.type):
        part = part.cast(part.type.value_type)
    return part.cast(pa.string())


def _input(
    name: str,
    column: pa.ChunkedArray,
    columns: Mapping[str, set[str]],
    model: Model,
    decimal: str,
    share: float,
) -> Guess:
    """columns: the names of each set's columns. share: of all rows that the column has."""
    absent = [each for each, names in columns.items() if name not in names]
    if absent:
        return Guess(name, None, f"the {absent[0].replace('_', ' ')} does not have it")
    if not name.strip():
        return Guess(name, None, "a feature needs a name")
    if VARIABLE.search(name):
        return Guess(name, None, UNWRITABLE)
    found = guess(name, column, decimal=decimal, share=share)
    if model == "trees" and found.type in ("text", "set"):
        return Guess(
            name, None, f"it looks like a {found.type}, and trees split on one value a row"
        )
    missing = column.null_count / max(1, len(column))
    if found.type is None or not missing:
        return found
    told = f"{100 * missing:.0f} % missing"
    if not 0.005 <= missing < 0.995:
        told = "less than 1 % missing" if missing < 0.5 else "more than 99 % missing"
    return found.remarked(told)


def _output(name: str, column: pa.ChunkedArray, decimal: str, part: str) -> Guess:
    """part: which rows are looked at, in words; "" for all."""
    if VARIABLE.search(name):
        raise DataError(f"Column {name!r} cannot be a target: {UNWRITABLE}.")
    found = guess(name, column, target=True, decimal=decimal)
    if found.type in ("text", "set") or found.type is None:
        reason = (
            found.why
            if found.type is None
            else f"it looks like a column of {found.type}s: {found.why}"
        )
        raise DataError(
            f"Column {name!r} cannot be a target: {reason}{part}. Targets are numbers, "
            "categories, or true and false."
        )
    return found
