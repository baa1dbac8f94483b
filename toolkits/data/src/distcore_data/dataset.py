"""The data of a run: one dataset to be split, or the sets themselves, joined into one source."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import SPLITS, Partition, Source, SourceBase
from distcore_core.errors import DataError, UserError
from distcore_data.blame import BadRow
from distcore_data.home import cache_home
from distcore_data.roles import OWN
from distcore_data.sources.fetch import Workplace, has_marks, without_secrets
from distcore_data.sources.formats import Placed
from distcore_data.sources.names import name_of
from distcore_data.sources.tiles import TARGET_BYTES
from distcore_data.temporaries import is_temporary

if TYPE_CHECKING:
    from distcore_core.registry.index import Encoder
    from distcore_core.registry.manager import Plugins
    from distcore_data.cache import Cache
    from distcore_data.sources.options import DelimitedOptions

CACHE_FOLDER = ".distcore_cache"
"""Folder beside the dataset where caches lie unless the config says otherwise."""


@dataclass(frozen=True)
class Data:
    """What the user named. format: "auto" or None finds it."""

    dataset: Any = None
    training_set: Any = None
    validation_set: Any = None
    test_set: Any = None
    format: str | None = None

    def __post_init__(self) -> None:
        given = self.given()
        if any(isinstance(each, str) and not each.strip() for each in self.named().values()):
            raise UserError("The name of a dataset is empty. Give a path, a glob or an address.")
        if self.dataset is None and self.training_set is None:
            missing = "a training set" if given else "a dataset"
            raise UserError(
                f"No data: give {missing} (--dataset, or --training_set with --validation_set and "
                "--test_set)."
            )
        if self.dataset is not None and given:
            raise UserError(
                "Both a dataset and separate sets were given. Give one dataset to be split, or the "
                "sets."
            )

    def absolute(self) -> Data:
        """The same with whole paths, for workers that run in other folders."""
        return self._each(_whole)

    def held(self) -> Data:
        """The same with frames that can be read as often as is needed, also in other processes;
        see `memory.held`."""

        def one(dataset: Any) -> Any:
            if isinstance(dataset, str | os.PathLike):
                return dataset
            from distcore_data.sources.memory import held

            return held(dataset)

        return self._each(one)

    def hollow(self) -> Data:
        """The same for whoever describes it alone, once it is `held`: frames of the same kinds,
        with nothing in them."""

        def one(dataset: Any) -> Any:
            if isinstance(dataset, str | os.PathLike):
                return dataset
            import pyarrow as pa

            return pa.table({}) if isinstance(dataset, pa.Table) else type(dataset)()

        return self._each(one)

    def _each(self, turned: Callable[[Any], Any]) -> Data:
        return replace(self, **{name: turned(each) for name, each in self.named().items()})

    def named(self) -> dict[str, Any]:
        """{argument: dataset}: the one that is to be split, or the separate sets."""
        names = ("dataset", "training_set", "validation_set", "test_set")
        return {name: each for name in names if (each := getattr(self, name)) is not None}

    def given(self) -> list[tuple[int, Any]]:
        """(split code, dataset) of each separate set."""
        sets = (self.training_set, self.validation_set, self.test_set)
        return [(code, each) for code, each in enumerate(sets) if each is not None]

    @contextmanager
    def open(
        self,
        raw: Mapping[str, str],
        options: DelimitedOptions | None = None,
        plugins: Plugins | None = None,
    ) -> Iterator[Source]:
        """The source of the declared columns; what it unpacked or downloaded is gone afterwards.

        That nothing changed if nothing failed, the block asks by `check_unchanged`, after the last
        row and before it commits anything.

        Args:
            raw: How each declared column is read: {column: "number", "category", "string" or
                "time"}.
            options: Of delimited text; None: the defaults.
            plugins: Whose formats are read; default: those of the environment.

        Raises:
            DataError, UserError: Naming the place. An error of the block becomes one that names the
                file, if a file is not as it was: what changes while it is read may look like
                anything.
        """
        from distcore_data.sources.registry import open_source
        from distcore_data.sources.times import settled

        if self.dataset is None:
            raw = settled(raw, {}, ())  # one set may have times, and another one texts of them
        made: list[Source] = []
        with ExitStack() as stack:

            def opened(dataset: Any) -> Source:
                place = Workplace(None)
                stack.callback(place.close)  # whatever a plugin's source makes of `close`
                source = open_source(
                    dataset,
                    raw,
                    format=self.format,
                    scratch=place,
                    options=options,
                    plugins=plugins,
                )
                stack.callback(source.close)
                made.append(source)
                return source

            try:
                if self.dataset is not None:
                    yield opened(self.dataset)
                else:
                    yield JoinedSource([(code, opened(each)) for code, each in self.given()])
            except Exception as error:
                for each in made:
                    each.check_unchanged(content=False)
                if isinstance(error, BadRow):
                    names = ", then ".join(self.names().values())
                    raise DataError(_placed(error, made, names)) from error
                raise

    def formats(self, plugins: Plugins) -> list[str]:
        """The names of the formats that the sets are in; see `format_name`."""
        from distcore_data.sources.registry import format_name

        return sorted({format_name(each, self.format, plugins) for each in self.named().values()})

    def readers(self, plugins: Plugins) -> dict[str, Encoder]:
        """{"data format NAME": who reads it}, but for the toolkit's own, whose versions
        CACHE_VERSION tells apart."""
        from distcore_data.sources.registry import AUTO

        found = {
            name: plugins.encoder("sources", name) for name in self.formats(plugins) if name != AUTO
        }
        return {
            f"data format {name}": each for name, each in found.items() if each.distribution != OWN
        }

    def cache_root(self) -> str:
        """Beside the dataset, or the training set; for a frame, a URL or standard input, the user's
        cache folder."""
        first = next(iter(self.named().values()))
        if (
            isinstance(first, str | os.PathLike)
            and "://" not in os.fspath(first)
            and not is_temporary(first)
        ):
            path = Path(os.path.abspath(os.path.expanduser(first)))
            while has_marks(path.name):
                path = path.parent
            return str(path.parent / CACHE_FOLDER)
        return os.path.join(cache_home(), "distcore")

    def names(self) -> dict[str, str]:
        """How each dataset is called in description.json: its path, or the type of the frame."""
        return {name: called(each) for name, each in self.named().items()}

    def description(self, cache: Cache) -> dict[str, Any]:
        """Names, digest of the content, rows and rows of each split."""
        from distcore_data.cache import open_cache

        reader = open_cache(cache)
        rows = {split: reader.rows(split) for split in SPLITS}
        reader.close()
        return {**self.names(), **reader.manifest["source"], "rows": rows, "cache": cache.where}


def _whole(dataset: Any) -> Any:
    if not isinstance(dataset, str | os.PathLike) or "://" in os.fspath(dataset):
        return dataset
    return os.path.abspath(os.path.expanduser(dataset))


def called(dataset: Any) -> str:
    """A path or URL (without what may be a password in it), or the frame's type."""
    if not isinstance(dataset, str | os.PathLike):
        package = type(dataset).__module__.partition(".")[0]
        library = "" if package == "builtins" else f"{package}."
        return f"{library}{type(dataset).__name__} in memory"
    return without_secrets(name_of(dataset))


def _placed(error: BadRow, sources: Sequence[Source], names: str) -> str:
    """The error's message, with the place of its row as readers tell it: file and line, if it is
    of text. names: of the datasets."""
    place = f"{names}, row {error.row}{error.part} (the first is 0)"
    with suppress(DataError):  # what is wrong with the row is worth more than its line
        place = (None if error.part else _place_of(error.row, sources)) or place
    column = re.match(r"Column (?=(['\"]).*?\1(?: \(feature .*?\))?: )", error.why)
    return f"{place}, column {error.why[column.end() :]}" if column else f"{place}: {error.why}"


def _place_of(row: int, sources: Sequence[Source]) -> str | None:
    """File and line of a row, which is counted over all sources; None if a source cannot tell."""
    for source in sources:
        for partition in source.partitions(TARGET_BYTES):
            if not isinstance(partition, Placed):
                return None
            rows = partition.read().num_rows
            if row < rows:
                return partition.place_of(row)
            row -= rows
    return None


class JoinedSource(SourceBase):
    """Several sources one after the other. A `contracts.Source`."""

    def __init__(self, parts: Sequence[tuple[int, Source]]) -> None:
        self.parts = list(parts)
        self._splits: list[int] = []

    def digest(self) -> str:
        """Of every part's digest and which set it is."""
        return "+".join(f"{SPLITS[code]}:{source.digest()}" for code, source in self.parts)

    def partitions(self, target_bytes: int) -> Sequence[Partition]:
        """The partitions of the first set, then of the next."""
        each = [
            (code, partition)
            for code, source in self.parts
            for partition in source.partitions(target_bytes)
        ]
        self._splits = [code for code, _ in each]
        return [partition for _, partition in each]

    def partition_splits(self) -> list[int]:
        """The split of each of the partitions cut last."""
        return self._splits

    def check_unchanged(self, content: bool = True) -> None:
        """Raises DataError naming a file that is not as it was."""
        for _, source in self.parts:
            source.check_unchanged(content)

    def close(self) -> None:
        for _, source in self.parts:
            source.close()
