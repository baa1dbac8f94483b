"""Files whose columns begin where the words of their first line begin."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from distcore_core.plugin import DataError
from distcore_data import TableFormat


class FixedWidth(TableFormat):
    """A line for each row; what is blank is missing."""

    def table(self, path: Path, shown: str) -> pa.Table:
        """The file's rows, every column as texts. Raises DataError naming file, line and column."""
        try:
            # Of `splitlines`, a text may hold what ends a line elsewhere.
            lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{shown}: it is no text in UTF-8 ({error}). Convert it.") from None
        header, *rows = lines
        names = header.split()
        if not names or len(set(names)) < len(names):
            raise DataError(f"{shown}, line 1: it should name each column once.")
        starts, at = [], 0
        for name in names:
            starts.append(header.index(name, at))
            at = starts[-1] + len(name)
        places = list(pairwise([*starts, None]))
        columns: dict[str, list[str | None]] = {name: [] for name in names}
        for number, line in enumerate(rows, 2):
            if len(line) < starts[-1]:
                raise DataError(
                    f"{shown}, line {number}: it ends before the column {names[-1]!r}. Fill it "
                    "with blanks."
                )
            for name, (start, stop) in zip(names, places, strict=True):
                if start and line[start - 1].strip():
                    raise DataError(
                        f"{shown}, line {number}: a value reaches over the place where the column "
                        f"{name!r} begins. Leave a blank before it, below the first line's word."
                    )
                columns[name].append(line[start:stop].strip() or None)
        return pa.table({name: pa.array(each, pa.string()) for name, each in columns.items()})
