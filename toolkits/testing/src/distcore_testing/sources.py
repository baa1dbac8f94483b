"""What every source must hold, a data format or whatever else is read: every row once and in
order, typed as asked, a digest of the content alone, errors that name what is wrong."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from distcore_core.contracts import Source
from distcore_core.errors import DataError, UserError
from distcore_data.sources.options import NULL_VALUES, DelimitedOptions
from distcore_data.sources.registry import column_names, open_source, sample
from distcore_testing.counting import descriptors

RAW = {"z": "number", "name": "category", "text": "string", "a": "number"}
TYPES = {
    "number": pa.float64(),
    "category": pa.dictionary(pa.int32(), pa.string()),
    "string": pa.string(),
}
NAMES = ("red", "green", "Über", "with, comma", "it's", "0123")
TEXTS = ("one", "two words", 'a "quoted" one', "naïve 😀", "back\\slash", "x" * 300)


def rows(count: int = 500, seed: int = 1) -> pa.Table:
    """Numbers, names, texts and another column, with missing values in each but the last."""
    chosen = random.Random(seed)
    columns: dict[str, list[Any]] = {"a": [], "name": [], "text": [], "z": []}
    for row in range(count):
        columns["a"].append(None if row % 17 == 3 else chosen.uniform(-1e6, 1e6))
        columns["name"].append(None if row % 19 == 4 else chosen.choice(NAMES))
        columns["text"].append(None if row % 23 == 5 else f"{row} {chosen.choice(TEXTS)}")
        columns["z"].append(float(row))
    types = [pa.float64(), pa.string(), pa.string(), pa.float64()]
    return pa.table(
        {
            name: pa.array(each, kind)
            for (name, each), kind in zip(columns.items(), types, strict=True)
        }
    )


class SourceSuite:
    """Subclass with `name` (of the format, or the scheme of addresses) and `write(folder, table)`.

    write: puts the table (`rows`: columns a, name, text, z) where the format can read it, below the
    folder, and gives the path or address. Missing values lie there as the format has them.
    damaged: False if a file that was cut is a shorter one, as of text. options: for `open_source`.
    """

    name: str
    options: Mapping[str, Any] = {}
    damaged = True

    def write(self, folder: Path, table: pa.Table) -> str | Path:
        raise AssertionError("the subclass gives write()")

    def open(self, place: str | Path, raw: Mapping[str, str] = RAW, **more: Any) -> Source:
        return open_source(place, raw, format=self.name, **{**self.options, **more})

    @pytest.fixture
    def place(self, tmp_path: Path) -> str | Path:
        (tmp_path / "data").mkdir()
        return self.write(tmp_path / "data", rows())

    # -------------------------------------------------------------- rows

    @pytest.mark.parametrize("target_bytes", [1, 3000, 1 << 26])
    def test_every_row_comes_once_and_in_order_in_any_partitions(
        self, place: str | Path, target_bytes: int
    ) -> None:
        source = self.open(place)
        wanted = rows().select(list(RAW)).to_pydict()
        assert read(source, target_bytes) == wanted
        assert read(source, target_bytes) == wanted, "the second time it is otherwise"
        assert read(source, 777) == wanted, "of another size they hold others"
        source.close()

    def test_of_many_rows_none_is_forgotten(self, tmp_path: Path) -> None:
        """Blocks of a file end somewhere in it, and at the edges of partitions or not."""
        table = rows(20_011).select(["z", "a"])
        place = self.write(tmp_path, table)
        for target_bytes in (1 << 26, 50_000):
            source = self.open(place, {"a": "number", "z": "number"})
            assert read(source, target_bytes) == table.select(["a", "z"]).to_pydict()
            source.close()

    @pytest.mark.parametrize("kind", ["category", "string"])
    def test_a_number_is_one_text_in_any_partitions(self, place: str | Path, kind: str) -> None:
        """What asks for types part by part may write 1 where every row has a value, and 1.0 where
        one is missing."""
        asked = {"a": kind, "z": kind}
        source = self.open(place, asked)
        whole = read(source, 1 << 26)
        for target_bytes in (1, 777, 3000):
            assert read(source, target_bytes) == whole, f"parts of {target_bytes} bytes"
        source.close()
        for name in asked:
            numbers = [each if each is None else float(each) for each in whole[name]]
            assert numbers == rows()[name].to_pylist()

    def test_columns_come_as_they_were_asked_for(self, place: str | Path) -> None:
        """These columns alone, in this order and of these types, also if another type was."""
        for raw in (RAW, {"text": "category", "z": "string"}, {"name": "string", "a": "category"}):
            source = self.open(place, raw)
            for partition in source.partitions(5000):
                batch = partition.read()
                assert batch.schema.names == list(raw)
                assert [each.type for each in batch.schema] == [
                    TYPES[each] for each in raw.values()
                ]
                batch.validate(full=True)
            source.close()

    def test_a_column_without_times_that_is_asked_for_as_such_is_a_category(
        self, place: str | Path
    ) -> None:
        """A feature of dates reads texts of them."""
        found, wanted = (self.open(place, {"name": raw}) for raw in ("time", "category"))
        for one, other in zip(found.partitions(5000), wanted.partitions(5000), strict=True):
            assert one.read().equals(other.read())
        found.close()
        wanted.close()

    def test_partitions_are_read_anywhere_in_any_order_at_once(self, place: str | Path) -> None:
        """They pickle: other processes read them; threads read beside each other."""
        source = self.open(place)
        # Partitions that this very process pickled: nothing is read from disk.
        parts = [pickle.loads(pickle.dumps(each)) for each in source.partitions(2000)]  # noqa: S301
        order = random.Random(1).sample(range(len(parts)), len(parts))
        with ThreadPoolExecutor(4) as pool:
            found = dict(zip(order, pool.map(lambda at: parts[at].read(), order), strict=True))
        table = pa.Table.from_batches([found[at] for at in range(len(parts))])
        assert plain(table) == rows().select(list(RAW)).to_pydict()
        source.close()

    def test_it_knows_its_rows_or_says_that_it_does_not(self, place: str | Path) -> None:
        source = self.open(place)
        assert source.rows() in (None, 500)
        source.close()

    def test_spellings_of_missing_values_count(self, tmp_path: Path) -> None:
        """Those that the user gives, in every format."""
        table = rows(60)
        place = self.write(tmp_path, table)
        options = DelimitedOptions(null_values=(*NULL_VALUES, "red", "7.0", "7"))
        source = self.open(place, {"name": "category", "z": "number"}, options=options)
        found = read(source, 1 << 20)
        source.close()
        for name, missing in (("name", "red"), ("z", 7.0)):
            wanted = [None if each == missing else each for each in table[name].to_pylist()]
            assert found[name] == wanted, f"{missing!r} is missing in {name}"

    def test_numbers_in_texts_are_read_as_everywhere(self, tmp_path: Path) -> None:
        """With the decimal comma that the user names, and no spelling of Python's own."""
        texts = [f"{row},5" for row in range(60)]
        place = self.write(tmp_path, rows(60).set_column(2, "text", pa.array(texts)))
        try:
            source = self.open(place, {"text": "number"}, options=DelimitedOptions(decimal=","))
            found = read(source, 1 << 20)["text"]
        except DataError as error:  # commas stand between its values
            if "decimal" not in str(error):
                raise
        else:
            source.close()
            assert found == [row + 0.5 for row in range(60)], "the decimal comma does not count"
        (other := tmp_path / "other").mkdir()
        place = self.write(other, rows(60).set_column(2, "text", pa.array(["1_000"] * 60)))
        with pytest.raises(DataError, match="1_000"):
            read(self.open(place, {"text": "number"}), 1 << 20)

    # -------------------------------------------------------------- looking

    def test_a_sample_has_the_first_rows_and_every_column(self, place: str | Path) -> None:
        found = sample(place, 7, format=self.name, **self.options)
        assert found.num_rows == 7
        assert sorted(found.column_names) == ["a", "name", "text", "z"]
        assert [float(each) for each in found["z"].to_pylist()] == [float(row) for row in range(7)]
        assert sample(place, 10_000, format=self.name, **self.options).num_rows <= 500
        names = column_names(place, format=self.name, **self.options)
        assert sorted(names) == ["a", "name", "text", "z"]

    # -------------------------------------------------------------- digests, changes

    def test_a_digest_is_of_the_content_alone(self, tmp_path: Path) -> None:
        """Neither of the path nor of the time; a value that differs anywhere, or another
        order of the rows, is another."""
        table = rows(80)
        changed = [
            table.set_column(0, "a", pa.array([*before, 0.5, *after]))
            for row in (0, 40, 79)
            for before, after in [(table["a"].to_pylist()[:row], table["a"].to_pylist()[row + 1 :])]
        ]
        changed.append(table.take([*range(78), 79, 78]))
        for at, name in ((1, "name"), (2, "text")):
            values = [*table[name].to_pylist()[:79], "another"]
            changed.append(table.set_column(at, name, pa.array(values)))
        digests: list[str] = []
        for number, each in enumerate([table, table, *changed]):
            folder = tmp_path / str(number)
            folder.mkdir()
            place = self.write(folder, each)
            if isinstance(place, Path) and place.is_file():
                os.utime(place, (1e9 + number, 1e9 + number))
            source = self.open(place)
            digests.append(source.digest())
            assert source.digest() == digests[-1]
            source.close()
        assert digests[0] == digests[1]
        assert len(set(digests[1:])) == 1 + len(changed), "other rows have the same digest"

    def test_a_change_of_the_same_length_is_told(self, place: str | Path) -> None:
        path = Path(place)
        if "://" in str(place) or not path.is_file():
            pytest.skip("what lies there is no file")
        source = self.open(place)
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        with pytest.raises(DataError, match=path.name):
            source.check_unchanged()
        source.close()

    def test_what_changes_while_it_is_open_is_told(self, place: str | Path) -> None:
        source = self.open(place)
        source.check_unchanged()
        source.check_unchanged(content=False)
        path = Path(place)
        if "://" in str(place) or not path.is_file():
            source.close()
            pytest.skip("what lies there is no file")
        kept = path.read_bytes()
        path.unlink()
        other = path.parent / "other"
        other.mkdir()
        shutil.copy(self.write(other, rows(499, seed=2)), path)
        with pytest.raises(DataError, match=path.name):
            source.check_unchanged()
        source.close()
        path.write_bytes(kept)

    def test_nothing_is_left_once_it_is_closed(self, place: str | Path, tmp_path: Path) -> None:
        """Neither files that were unpacked nor open ones; the dataset is as it was."""
        before = sorted(tmp_path.rglob("*"))
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        opened = descriptors()
        source = self.open(place, scratch=scratch)
        read(source, 4000)
        source.close()
        source.close()
        assert list(scratch.rglob("*")) == []
        scratch.rmdir()
        assert sorted(tmp_path.rglob("*")) == before
        del source
        assert descriptors() <= opened, "files stay open"

    # -------------------------------------------------------------- what cannot be read

    def test_a_column_that_is_not_there_is_named(self, place: str | Path) -> None:
        with pytest.raises(UserError, match="colour"):
            read(self.open(place, {"a": "number", "colour": "category"}), 1000)

    def test_a_text_that_is_no_number_is_named_with_its_column(self, place: str | Path) -> None:
        with pytest.raises(DataError, match="text") as told:
            read(self.open(place, {"text": "number"}), 1 << 20)
        assert any(each in str(told.value) for each in TEXTS), "it does not say which value"

    def test_what_is_not_there_is_named(self, place: str | Path, tmp_path: Path) -> None:
        if "://" in str(place):
            pytest.skip("an address is the scheme's own")
        missing = tmp_path / f"nowhere{Path(place).suffix}"
        with pytest.raises(DataError, match="nowhere"):
            read(self.open(missing), 1000)

    def test_what_was_cut_is_not_read_as_less(self, place: str | Path) -> None:
        path = Path(place)
        if not self.damaged or "://" in str(place) or not path.is_file():
            pytest.skip("less of it is another dataset")
        content = path.read_bytes()
        for share in (0.02, 0.5, 0.9):
            path.write_bytes(content[: int(len(content) * share)])
            with pytest.raises(DataError, match=path.name):
                read(self.open(path), 1 << 20)

    def test_a_dataset_without_rows_is_one_or_is_told(self, tmp_path: Path) -> None:
        place = self.write(tmp_path, rows(3).slice(0, 0))
        try:
            found = read(self.open(place), 1000)
        except DataError:
            return
        assert not any(found.values())


def read(source: Source, target_bytes: int) -> dict[str, list[Any]]:
    """Every row, as Python's values."""
    batches = [each.read() for each in source.partitions(target_bytes)]
    return plain(pa.Table.from_batches(batches)) if batches else {}


def plain(table: pa.Table) -> dict[str, list[Any]]:
    """Columns as Python's values, labels as texts."""
    found: dict[str, list[Any]] = table.to_pydict()
    return found
