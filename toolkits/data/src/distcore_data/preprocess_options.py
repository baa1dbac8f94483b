"""The `preprocessing` section: splits, sampling, and how delimited text is read; Ludwig's names
and defaults."""

import codecs
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from distcore_data.base_options import Count, NonNegative, Options
from distcore_data.sources.options import NULL_VALUES, DelimitedOptions

NEEDS_COLUMN = ("stratify", "datetime", "hash")


SPLITS = ("random", "stratify", "fixed", "datetime", "hash")
"""The toolkit's own splitters; a plugin's own section is `SplitShares` and its options."""


class SplitShares(Options):
    """What every way to split has.

    probabilities: shares of train, validation and test; a fixed split does not read them."""

    type: str
    probabilities: tuple[NonNegative, NonNegative, NonNegative] = Field(
        (0.7, 0.1, 0.2), description="Shares of train, validation and test; they sum to 1."
    )
    column: str | None = Field(
        None,
        validate_default=True,
        description="Column that decides; default of a fixed split: `split`.",
    )

    @field_validator("probabilities")
    @classmethod
    def _sum_to_one(cls, value: tuple[float, float, float]) -> tuple[float, float, float]:
        if not math.isclose(sum(value), 1, abs_tol=1e-6):
            raise ValueError(f"should sum to 1, not {sum(value):g}")
        if value[0] == 0:
            raise ValueError("the first share, of the training split, should be above 0")
        return value


class Split(SplitShares):
    """Which rows train, validate and test. Types are Ludwig's."""

    type: Literal["random", "stratify", "fixed", "datetime", "hash"] = Field(
        "random",
        description="random: by (seed, row number); stratify: the same shares in every class of "
        "the column; fixed: the column says 0, 1 or 2 (or train, validation or test); "
        "datetime: the earliest rows train, the latest test, by dates such as 2026-11-21, "
        "11/21/2026 or 2026-11-21 10:30:00, "
        "or by numbers, the smallest first: seconds since 1970, years, days as 20261121; hash: by "
        "the column's value as it is written: 7 and 7.0 are two, so once a row of a frame has no "
        "value, and pandas makes floats of its whole numbers, rows go to other splits (give such "
        "ids as texts).",
    )

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        """`split: random`, and the default column of a fixed split."""
        if isinstance(values, str):
            values = {"type": values}
        if (
            isinstance(values, Mapping)
            and values.get("type") == "fixed"
            and values.get("column") is None
        ):
            values = {**values, "column": "split"}
        return values

    @model_validator(mode="after")
    def _has_a_column(self) -> Self:
        if self.type in NEEDS_COLUMN and self.column is None:
            raise ValueError(
                f"a {self.type} split needs `column`, the name of the column that decides"
            )
        return self


class Delimited(Options):
    """`preprocessing.csv`: how delimited text is read; what is not given is found by looking at
    the data."""

    delimiter: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="One ASCII character; null: the one of , ; | and tab that fits the first "
        "lines.",
    )
    quote: str | None = Field(
        None,
        max_length=1,
        description='One ASCII character; "": quotes are ordinary characters; null: " or \', '
        "whichever the first lines have.",
    )
    encoding: str | None = Field(
        None,
        description="A codec of Python's, such as latin-1; null: UTF-8, or UTF-16 or UTF-32 where "
        "a mark says so.",
    )
    null_values: tuple[str, ...] | None = Field(
        None,
        description='Texts that mean "missing", whatever the format; default: those of '
        "pandas.read_csv. A column of floats has -999.0 where one of whole numbers has -999.",
    )
    decimal: Literal[".", ","] = Field(
        ".",
        description="The sign before a number's decimals: with `,`, 3,14 is a number, and 3.14 is "
        "none. It counts wherever a feature `number` is written as text, whatever the format; "
        "other features and splits have the texts as they are.",
    )

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                codecs.lookup(value)
        except LookupError:
            raise ValueError("is no encoding that Python knows, such as utf-8 or latin-1") from None
        return value

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        if self.decimal == "," and "," in (self.delimiter, self.quote):
            other = "delimiter" if self.delimiter == "," else "quote"
            raise ValueError(
                f"{other} and decimal are both ',', so that 3,14 could be read in two ways; change "
                "one of them"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_point(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the decimal sign, if it is the default: keys of caches are digests of this, and
        an option that nobody gave makes no other key."""
        found: dict[str, Any] = handler(self)
        return {name: each for name, each in found.items() if (name, each) != ("decimal", ".")}

    def options(self) -> DelimitedOptions:
        """For who reads; null spellings that are not given are those of pandas."""
        nulls = self.null_values if self.null_values is not None else NULL_VALUES
        return DelimitedOptions(self.delimiter, self.quote, self.encoding, nulls, self.decimal)


class Preprocessing(Options):
    """The `preprocessing` section, but for options of single feature types, which live in
    `defaults`."""

    ludwig_only: ClassVar[Mapping[str, Any]] = {
        "oversample_minority": None,
        "undersample_majority": None,
        "global_max_sequence_length": None,
    }

    split: Split = Field(
        Split.model_construct(), description="Which rows train, validate and test."
    )
    sample_ratio: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="Share of the rows that is used, by (seed, row number)."
    )
    sample_size: Count | None = Field(
        None, description="About how many rows are used, by (seed, row number)."
    )
    csv: Delimited = Field(Delimited.model_construct(), description="How delimited text is read.")

    @field_validator("split", "csv", mode="before")
    @classmethod
    def _null_section(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="after")
    def _one_sample(self) -> Self:
        if self.sample_size is not None and self.sample_ratio < 1:
            raise ValueError("sample_ratio and sample_size are both set; keep one of them")
        return self

    def delimited(self) -> DelimitedOptions:
        """How delimited text is read."""
        return self.csv.options()
