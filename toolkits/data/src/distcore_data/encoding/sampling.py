"""Which of the rows a config takes: `preprocessing.sample_ratio` and `sample_size`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from distcore_core.errors import UserError
from distcore_data.encoding.hashing import chosen, key_of

log = logging.getLogger("distcore")


@dataclass(frozen=True)
class Sample:
    """A random part of the rows, by row number."""

    seed: int
    ratio: float

    def mask(self, rows: np.ndarray) -> np.ndarray:
        return chosen(key_of(self.seed, "sample"), rows, self.ratio)

    def picked(self, total: int) -> Iterator[int]:
        """How many rows it has of each million."""
        for first in range(0, total, 1 << 20):
            yield int(self.mask(np.arange(first, min(first + (1 << 20), total))).sum())


@dataclass(frozen=True)
class Sampling:
    """What a config asks for. ratio: take each row with this probability. size: take about so many
    rows; None: all. seed: draws them."""

    seed: int = 0
    ratio: float = 1.0
    size: int | None = None

    @property
    def takes_all(self) -> bool:
        """Whether it takes every row, however many there are."""
        return self.ratio >= 1.0 and self.size is None

    def of(self, total: int) -> Sample | None:
        """The part of so many rows; None: all of them."""
        ratio = self.ratio
        if self.size is not None:
            if self.size >= total:
                log.warning(
                    "sample_size %d is not below the %d rows of the dataset; every row is used.",
                    self.size,
                    total,
                )
            else:
                ratio = min(ratio, self.size / total)
        return None if ratio >= 1.0 else Sample(self.seed, ratio)

    def refuse_none(self, sample: Sample | None, total: int, dataset: str) -> None:
        """Raise UserError for a sample of no row: as a column without values it would be told of
        the first feature, which is not to blame."""
        if sample is None or any(sample.picked(total)):
            return
        raise UserError(
            f"{self._option} takes none of the {total} rows of {dataset or 'the dataset'}, which "
            "are drawn one by one. Raise it, or give more rows."
        )

    def hint(self, sample: Sample | None, total: int) -> str:
        """What an error about the rows says of the sample that they are; "" if they are all
        rows."""
        if sample is None:
            return ""
        return (
            f" {self._option} takes {sum(sample.picked(total))} of the {total} rows: if these are "
            "too few, raise it or leave it out."
        )

    @property
    def _option(self) -> str:
        """As the config has it."""
        size = self.size
        name, value = ("sample_ratio", self.ratio) if size is None else ("sample_size", size)
        return f"preprocessing.{name}: {value}"


EVERY_ROW = Sampling()
