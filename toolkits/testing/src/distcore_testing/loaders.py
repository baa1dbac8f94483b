"""What every loader must hold: the same global batches for any number of ranks, every row once
an epoch, any start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from distcore_core.contracts import LOADER
from distcore_testing import data
from distcore_testing.app import app


class LoaderSuite:
    """Subclass with `name`, and the `variants` of options that must all give the same batches.

    parts: whether the loader cuts batches into parts, which exact training needs."""

    name: str
    variants: tuple[Mapping[str, Any], ...] = ({},)
    batch_size = 48
    worlds: tuple[int, ...] = (2, 3, 4)
    parts: bool = True

    @pytest.fixture(scope="class")
    @classmethod
    def reader(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        """A cache of 1000 rows with a number that names its row, a category and a set."""
        from distcore_data.cache import open_cache

        inputs = [
            {"name": "z", "type": "number"},
            {"name": "colour", "type": "category"},
            {"name": "tags", "type": "set"},
        ]
        folder = str(tmp_path_factory.mktemp("cache"))
        config = data.config(folder, input_features=inputs)
        with open_cache(app().preprocess(config, dataset=data.table(1000))) as opened:
            yield opened

    def batches(
        self, reader: Any, world: int = 1, *, epoch: int = 0, start: int = 0, **changes: Any
    ) -> list[Any]:
        """The `z` of each global batch (unique, so they name rows), ranks side by side. changes: of
        the request; `options` among them."""
        from distcore_core.contracts import LoadRequest, Rank
        from distcore_core.registry.manager import Plugins

        options = changes.pop("options", self.variants[0])
        found = []
        for rank in range(world):
            wanted: dict[str, Any] = {"batch_size": self.batch_size, "seed": 7, **changes}
            split = wanted.pop("split", "train")
            request = LoadRequest(
                reader=reader,
                split=split,
                columns=list(reader.columns),
                rank=Rank(index=rank, world=world, local_rank=rank),
                **wanted,
            )
            loader = Plugins().make(LOADER, self.name, options, request=request)
            found.append([batch["z"].numpy().copy() for batch in loader.batches(epoch, start)])
            loader.close()
            loader.close()  # closing twice is fine
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]

    def rows(self, reader: Any, split: str = "train") -> Any:
        """The `z` of a split in row order."""
        return reader.read(split, 0, reader.rows(split), ["z"]).column("z").to_numpy()

    def test_every_row_once_an_epoch_in_batches_of_the_size_asked(self, reader: Any) -> None:
        found = self.batches(reader)
        assert np.array_equal(np.sort(np.concatenate(found)), np.sort(self.rows(reader)))
        assert all(len(batch) == self.batch_size for batch in found[:-1])
        assert 0 < len(found[-1]) <= self.batch_size

    def test_the_same_global_batches_for_any_number_of_ranks(self, reader: Any) -> None:
        one = self.batches(reader)
        for world in self.worlds:
            assert _equal(self.batches(reader, world), one), f"{world} ranks"

    def test_every_variant_gives_the_same_batches(self, reader: Any) -> None:
        reference = self.batches(reader)
        for options in self.variants:
            assert _equal(self.batches(reader, options=options), reference), options

    def test_any_start_goes_on_where_it_says_also_under_other_ranks(self, reader: Any) -> None:
        whole = self.batches(reader, epoch=2)
        for start in (0, 1, len(whole) - 1, len(whole)):
            assert _equal(self.batches(reader, epoch=2, start=start), whole[start:])
            assert _equal(self.batches(reader, 2, epoch=2, start=start), whole[start:])

    def test_epochs_and_seeds_differ(self, reader: Any) -> None:
        first = np.concatenate(self.batches(reader))
        assert not np.array_equal(first, np.concatenate(self.batches(reader, epoch=1)))
        assert not np.array_equal(first, np.concatenate(self.batches(reader, seed=8)))

    def test_without_shuffling_rows_come_in_order(self, reader: Any) -> None:
        for world in (1, 2):
            assert np.array_equal(
                np.concatenate(self.batches(reader, world, shuffle=False)), self.rows(reader)
            )

    def test_fewer_rows_than_a_batch(self, reader: Any) -> None:
        """Then a rank may have none, and still takes part in every step."""
        for world in (1, 2):
            (only,) = self.batches(reader, world, batch_size=4096)
            assert np.array_equal(np.sort(only), np.sort(self.rows(reader)))

    @pytest.mark.parametrize("shuffle", [True, False])
    def test_parts_have_the_same_rows_for_any_number_of_ranks(
        self, reader: Any, shuffle: bool
    ) -> None:
        if not self.parts:
            pytest.skip("the loader cuts no parts, so exact training refuses it")
        one = self.part_rows(reader, 1, shuffle)
        assert all(len(batch) == 4 for batch in one)
        for world in self.worlds:
            found = self.part_rows(reader, world, shuffle)
            assert all(_equal(a, b) for a, b in zip(found, one, strict=True)), f"{world} ranks"

    def part_rows(self, reader: Any, world: int, shuffle: bool) -> list[list[Any]]:
        """The `z` of each of four parts of each global batch."""
        from distcore_core.contracts import LoadRequest, Rank
        from distcore_core.registry.manager import Plugins

        ranks = []
        for index in range(world):
            request = LoadRequest(
                reader=reader,
                split="train",
                columns=list(reader.columns),
                batch_size=self.batch_size,
                seed=7,
                rank=Rank(index=index, world=world, local_rank=index),
                shuffle=shuffle,
                parts=4,
            )
            loader = Plugins().make(LOADER, self.name, self.variants[0], request=request)
            ranks.append([_parts(batch) for batch in loader.batches(0)])
            loader.close()
        return [
            [part for batch in batches for part in batch] for batches in zip(*ranks, strict=True)
        ]

    def test_every_column_comes_with_its_row(self, reader: Any) -> None:
        """Codes and ragged columns too."""
        from distcore_core.contracts import LoadRequest
        from distcore_core.registry.manager import Plugins

        table = reader.read("train", 0, reader.rows("train"))
        wanted = dict(zip(*(table.column(name).to_pylist() for name in ("z", "tags")), strict=True))
        codes = dict(
            zip(*(table.column(name).to_pylist() for name in ("z", "colour")), strict=True)
        )
        request = LoadRequest(
            reader=reader,
            split="train",
            columns=list(reader.columns),
            batch_size=self.batch_size,
            seed=7,
        )
        loader = Plugins().make(LOADER, self.name, self.variants[0], request=request)
        for batch in loader.batches(0):
            numbers, tags, offsets = (
                batch["z"].tolist(),
                batch["tags"].values,
                batch["tags"].offsets.tolist(),
            )
            assert batch["colour"].tolist() == [codes[number] for number in numbers]
            for index, number in enumerate(numbers):
                assert tags[offsets[index] : offsets[index + 1]].tolist() == wanted[number]
        loader.close()


def _parts(batch: Any) -> list[Any]:
    cuts = np.cumsum(batch.part_rows)
    assert cuts[-1] == batch.rows
    return np.split(batch["z"].numpy().copy(), cuts[:-1])


def _equal(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(
        np.array_equal(a, b) for a, b in zip(found, expected, strict=True)
    )
