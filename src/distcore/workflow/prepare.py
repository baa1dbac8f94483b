"""From the user's data to a committed cache: found by content, or fitted, encoded and written."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON, PROCESSOR, PluginRef, ResultsStore, Source, Split
from distcore_core.errors import CacheError
from distcore_data.dataset import Data, JoinedSource
from distcore_data.encoding.splits import GivenSplitter, make_splitter
from distcore_data.encoding.splitter import Splitter
from distcore_data.features import agreed, shown
from distcore_data.roles import OWN, SPLITTER

if TYPE_CHECKING:
    from distcore.config import RunConfig
    from distcore.workflow.session import Session
    from distcore_core.registry.index import Encoder
    from distcore_data.cache import Cache, CacheBuilder
    from distcore_data.cache.manifest import Manifest
    from distcore_data.encoding.sampling import Sampling
    from distcore_data.features import Features

log = logging.getLogger("distcore")

MARKER = re.compile("<.+>")
"""What a vocabulary has beside values, such as <UNK>."""

CLOSE = 2.0**22
"""Standard deviations between 0 and a target's mean from which at most two of float32's 24 bits are
left for where among them a value lies."""

SETS_VERSION = "2"
"""Raised whenever given sets are put together otherwise; CACHE_VERSION is of all data."""


def prepare(session: Session, data: Data, check: Callable[[str], None] | None = None) -> Cache:
    """The cache of this data under this config. A hit reads the data once, to digest it, and no
    more.

    check: Is told the cache's key before any cache is built; what it raises passes.

    Raises DataError or UserError naming the place in the data, CacheError if the cache cannot be
    written."""
    from distcore_data.cache import Cache, ensure_cache
    from distcore_data.cache.repair import repair
    from distcore_data.cache.use import begin_use
    from distcore_data.cache.versions import tell_other_versions

    plugins = session.plugins
    # Another processor's workers may run in other folders, whatever the backend.
    if session.backend.distributed or session.reference(PROCESSOR).name != "local":
        data = data.absolute()
    with opened(session, data) as (source, splitter, raw):
        session.progress.begin("digest")
        key = key_of(session, data, source, raw)
        session.progress.end()
        if check is not None:
            check(key)
        if splitter is None:
            assert isinstance(source, JoinedSource)
            splitter = GivenSplitter(source.partition_splits)
        chosen, started = splitter, time.monotonic()
        cache = Cache.at(root_of(session, data), key, session.config.backend.credentials)

        def build(builder: CacheBuilder) -> None:
            tell_other_versions(cache, encoders_of(session, data))
            rows = fill(session, data, source, chosen, builder)
            built.append((time.monotonic() - started, rows))

        def make(builder: CacheBuilder, manifest: Manifest, shards: Collection[int]) -> None:
            try:
                fill_again(session, source, chosen, builder, manifest, shards)
            except CacheError:  # other bytes of other data say nothing about the cache
                source.check_unchanged()
                raise

        built: list[tuple[float, dict[Split, int]]] = []
        repair(cache, make, plugins)
        use = None
        while use is None:  # removed by somebody between the two
            cache = ensure_cache(
                root_of(session, data),
                key,
                format_of(session),
                build,
                credentials=session.config.backend.credentials,
                plugins=plugins,
                progress=session.progress,
            )
            use = begin_use(cache)
        session.closing.callback(use.close)
    if built:
        session.built_cache = True
        announce(session, cache, *built[0])
    return cache


def check_predictions(session: Session, cache: Cache) -> None:
    """Raise UserError, before anything is trained, if two output features have a column of
    predictions of one name: classes, which are part of such names, are known from here on."""
    if len(session.features.outputs) > 1:
        from distcore_data.cache import open_cache
        from distcore_torch.decoding import empty_schema

        with open_cache(cache, session.plugins) as reader:
            empty_schema(session.features.fitted(reader.metadata))


def tell_constant_targets(session: Session, cache: Cache) -> None:
    """Warn of an output of numbers that are all one: its scores are perfect and say nothing. (Of
    one class there is nothing to learn, which is an error.) So are numbers that logarithms bring so
    close together that float32 tells hardly any of them apart."""
    from distcore_data.cache import open_cache

    types = session.features.types
    numbers = [each.name for each in session.features.outputs if types[each.name] == "number"]
    if not numbers:
        return
    with open_cache(cache, session.plugins) as reader:
        for name in numbers:
            found = reader.metadata[name]
            if found["min"] == found["max"]:
                log.warning(
                    "Output %r is %r in every row, so its scores say nothing. Look whether the "
                    "data are whole.",
                    name,
                    found["min"],
                )
                continue
            codes = found.get("standard", {"mean": 0.0, "std": 1.0})
            if abs(codes["mean"]) > CLOSE * codes["std"]:
                log.warning(
                    "Output %r: encoded with normalization %s its values lie so close together "
                    "that float32 tells hardly any of them apart. Give it preprocessing: "
                    "{normalization: zscore}.",
                    name,
                    found["normalization"] or "null",
                )


def tell_other_codes(session: Session, cache: Cache, trained_on: Mapping[str, JSON]) -> None:
    """Warn of features some of whose values have other codes than the weights to start from know
    them by: a network cannot tell.

    trained_on: the manifest of the weights' model, {} if there is none."""
    from distcore_data.cache import open_cache

    if not trained_on:
        return
    _tell_other_encoders(session, trained_on.get("encoders") or {})
    with open_cache(cache, session.plugins) as reader:
        for name, metadata in reader.metadata.items():
            there, here = map(_by_code, (trained_on["metadata"].get(name, {}), metadata))
            pairs = list(zip(here, there, strict=False))
            other = [pair for pair in pairs if pair[0] != pair[1] and None not in pair]
            markers = {now for now, then in pairs if now == then and MARKER.fullmatch(str(now))}
            known = set(there) - markers - {None}
            if not other or known.isdisjoint(here):  # nothing was known of any
                continue
            log.warning(
                "The weights to start from (--model_load_path) know values of %r by other codes "
                "than these data give them, and take one for another until they have learned "
                "otherwise: %r is here what %r was there. Codes go by which values occur, and how "
                "often: train on the rows of both, or leave --model_load_path out.",
                name,
                *other[0],
            )


def _by_code(metadata: JSON) -> Sequence[str | None]:
    """What the values of a feature are called, in the order of their codes. Of numbers that are one
    of two, which are called False and True, the numbers."""
    if metadata.get("kind") != "number" or "str2bool" not in metadata:
        return metadata.get("idx2str") or metadata.get("bool2str") or ()
    found = {code: label for label, code in metadata["str2bool"].items()}
    return [found.get(code) for code in (0, 1)]


def _tell_other_encoders(session: Session, saved: Mapping[str, Mapping[str, str]]) -> None:
    """Warn of weights to start from that were trained on what other versions encode."""
    from distcore_core.registry.index import Encoder

    changed: dict[tuple[str, str], list[str]] = {}
    for key, now in session.features.encoders.items():
        then = Encoder(**saved[key]) if key in saved else now
        if then.encoding != now.encoding:
            changed.setdefault((then.who, now.who), []).append(shown(key))
    for (before, after), names in changed.items():
        log.warning(
            "The weights to start from (--model_load_path) were trained on what %s encodes (%s), "
            "and %s encodes otherwise: they may take some values for others until they have "
            "learned otherwise.",
            before,
            ", ".join(names),
            after,
        )


def check_storage(
    session: Session,
    data: Data,
    output: str | os.PathLike[str] | None = None,
    model: Path | ResultsStore | None = None,
) -> None:
    """If work runs on other machines, ask the backend whether they see its `places`. Raises
    UserError naming the one that they do not."""
    session.backend.check_storage(*places(session, data, output, model))


def places(
    session: Session,
    data: Data,
    output: str | os.PathLike[str] | None = None,
    model: Path | ResultsStore | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """The paths that are read, and those that are written: of the data, the cache, the results'
    folder and the model to start from. A URL is the same everywhere, and a frame travels."""
    sets = data.named().values()
    paths = [os.fspath(each) for each in sets if isinstance(each, str | os.PathLike)]
    read = {f"the dataset {path}": path for path in paths if os.path.exists(path)}
    if isinstance(model, Path):
        read[f"the model {model} (--model_load_path)"] = os.fspath(model)
    written = {"the cache (backend.cache_dir)": root_of(session, data)}
    if output is not None:
        written["the results (--output_directory)"] = os.fspath(output)
    return read, {what: path for what, path in written.items() if "://" not in path}


def fill(
    session: Session, data: Data, source: Source, splitter: Splitter, builder: CacheBuilder
) -> dict[Split, int]:
    """Fit, encode and write everything through the builder; returns the rows of each split."""
    from distcore_data.encoding.fit import fit_and_encode

    fitted = fit_and_encode(
        source,
        session.make(PROCESSOR),
        session.features,
        splitter,
        builder,
        sampling=_sampling_of(session),
        dataset=", ".join(data.names().values()),
        progress=session.progress,
    )
    source.check_unchanged()
    origin: JSON = {"digest": source.digest(), "rows": fitted.source_rows}
    made_by = {name: each.as_json() for name, each in encoders_of(session, data).items()}
    builder.finish(fitted.columns.values(), fitted.metadata, origin, fitted.rows, made_by)
    session.progress.end()
    return fitted.rows


def fill_again(
    session: Session,
    source: Source,
    splitter: Splitter,
    builder: CacheBuilder,
    manifest: Manifest,
    shards: Collection[int],
) -> None:
    """Encode the shards of these numbers once more, through a builder that knows what they
    should be."""
    from distcore_data.encoding.fit import encode_again

    encode_again(
        source,
        session.make(PROCESSOR),
        session.features,
        splitter,
        builder,
        manifest.metadata,
        shards,
        sampling=_sampling_of(session),
        progress=session.progress,
    )
    source.check_unchanged()
    session.progress.end()


def _sampling_of(session: Session) -> Sampling:
    from distcore_data.encoding.sampling import Sampling

    asked = session.config.preprocessing
    return Sampling(session.config.random_seed, asked.sample_ratio, asked.sample_size)


def announce(session: Session, cache: Cache, seconds: float, rows: dict[Split, int]) -> None:
    """Tell who listens that a cache was built. rows: of each split."""
    session.plugins.manager.hook.cache_written(
        key=cache.key, directory=cache.directory, rows=rows, seconds=seconds
    )


@contextmanager
def opened(
    session: Session, data: Data
) -> Iterator[tuple[Source, Splitter | None, dict[str, str]]]:
    """The data as the config reads them: the source, the splitter (None of separate sets), and how
    each column is read."""
    splitter = splitter_of(session) if data.dataset is not None else None
    raw = raw_columns(session, splitter)
    with data.open(raw, session.config.preprocessing.delimited(), session.plugins) as source:
        yield source, splitter, raw


def key_of_these(session: Session, data: Data) -> str:
    """The key that `prepare` would build or find; the data are read once, to digest them."""
    with opened(session, data) as (source, _, raw):
        return key_of(session, data, source, raw)


def key_of(session: Session, data: Data, source: Source, raw: dict[str, str]) -> str:
    """The cache's key: content of the data and everything that decides its bytes, and nothing
    else."""
    from distcore_data.cache import cache_key

    part = data_part(session.config, session.features)
    if data.dataset is None:
        part["preprocessing"]["split"] = "given"
    versions = {
        name: f"{each.distribution} {each.data}"
        for name, each in encoders_of(session, data).items()
    }
    if len(data.given()) > 1:
        versions["given sets"] = SETS_VERSION
    return cache_key(
        source_digest=source.digest(),
        raw=raw,
        **part,
        format=format_of(session),
        encoders=versions,
    )


def data_part(config: RunConfig, features: Features) -> JSON:
    """Everything of a config that the bytes of its cache depend on. features: the config's."""
    preprocessing = config.preprocessing.model_dump(mode="json")
    return {
        "features": [
            {**each, "options": data_options(each["options"], feature.options)}
            for each, feature in zip(features.specifications, features, strict=True)
        ],
        "preprocessing": {**preprocessing, "random_seed": config.random_seed},
    }


def encoders_of(session: Session, data: Data) -> dict[str, Encoder]:
    """{"feature number": who encodes it, …}, the cache format, and who reads and splits the data,
    unless that is the toolkit's own: CACHE_VERSION tells its versions apart."""
    found = {shown(key): each for key, each in session.features.encoders.items()}
    name = format_of(session).name
    found[f"cache format {name}"] = session.plugins.encoder("caches", name)
    splitter = session.config.preprocessing.split.type
    divided = session.plugins.encoder(SPLITTER.kind, splitter)
    if data.dataset is not None and divided.distribution != OWN:
        found[f"{SPLITTER.singular} {splitter}"] = divided
    return found | data.readers(session.plugins)


def data_options(options: JSON, model: Any) -> JSON:
    """The part of a feature's options that its data depend on: all of them, but those that their
    model says are beside that; and the weights of an output's classes, which lie in its metadata
    as fractions of the mean over all rows.

    Args:
        options: As they were given.
        model: They, as the feature has them.
    """
    beside = getattr(type(model), "beside_data", ())
    kept = {name: value for name, value in options.items() if name not in beside}
    loss = options.get("loss")
    if "loss" in beside and isinstance(loss, Mapping) and loss.get("class_weights"):
        kept["class_weights"] = loss["class_weights"]
    return kept


def splitter_of(session: Session) -> Splitter:
    """The splitter that the config declares."""
    config = session.config
    return make_splitter(
        config.preprocessing.split.model_dump(), config.random_seed, session.plugins
    )


def raw_columns(session: Session, splitter: Splitter | None) -> dict[str, str]:
    """{dataset column: how to read it} for the features and the split."""
    raw = session.features.raw()
    for column, how in (splitter.needs if splitter is not None else {}).items():
        # A splitter takes what a feature reads, but for times, which it sees as texts.
        raw[column] = agreed(raw.get(column, how), how) or raw[column]
    return raw


def format_of(session: Session) -> PluginRef:
    """The cache format that the config names."""
    named = session.config.backend.cache_format
    return PluginRef(kind="caches", name=named.type, options=named.options)


def root_of(session: Session, data: Data) -> str:
    """The folder of caches: the config's, or beside the data."""
    return session.config.backend.cache_dir or data.cache_root()
