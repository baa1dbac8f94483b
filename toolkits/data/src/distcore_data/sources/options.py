"""How delimited text is to be read; plain values, light to import."""

import functools
from contextlib import suppress
from dataclasses import dataclass

NULL_VALUES: tuple[str, ...] = (
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
)
"""The spellings of a missing value: those of `pandas.read_csv`."""


@dataclass(frozen=True)
class DelimitedOptions:
    """What a user may fix about delimited text; None means: find out by looking at the first lines.

    delimiter: one character. quote: one character, or "" if quotes are ordinary characters.
    encoding: a codec that Python knows, such as latin-1 or utf-16.
    null_values: texts that mean "missing", whatever the dataset's format, so that csv, parquet and
        a frame of the same rows agree.
    decimal: the character between a number's whole part and its fraction, "." or ",", wherever a
        number is written as text, in every format.
    """

    delimiter: str | None = None
    quote: str | None = None
    encoding: str | None = None
    null_values: tuple[str, ...] = NULL_VALUES
    decimal: str = "."

    @functools.cached_property
    def null_numbers(self) -> tuple[float, ...]:
        """The numbers that null spellings are the text of. A source that has numbers asks for their
        texts if it has one of these."""
        found = [{"True": 1.0, "False": 0.0}.get(each) for each in self.null_values]
        for each in self.null_values:
            with suppress(ValueError):
                found.append(float(each))
        return tuple(each for each in found if each is not None and each == each)

    @property
    def spellings(self) -> tuple[object, ...]:
        """What a digest takes in of how values are spelled; a decimal point says nothing, so that
        digests from before there was a choice are still found."""
        found = (self.null_values,) if self.decimal == "." else (self.null_values, self.decimal)
        # Of formats with types a number was taken for a value whatever the spellings were.
        return (*found, "of numbers") if self.null_numbers else found
