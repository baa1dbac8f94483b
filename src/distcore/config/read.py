"""Pass one over a config: older spellings, names and structure, and the sections that the app
itself reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from distcore.config.mistakes import validated
from distcore.config.read_features import read_features
from distcore.config.run_config import (
    BACKEND_OPTIONS,
    DEFAULT_SEED,
    SEED,
    BackendConfig,
    FeatureConfig,
    Ref,
    RunConfig,
    is_seed,
)
from distcore.config.under_way import DocumentUnderWay
from distcore_core.config.document import Document, KeyPath
from distcore_core.config.issues import unknown_option, without_passwords
from distcore_core.contracts import JSON, SECTION
from distcore_core.contracts.values import COMBINED
from distcore_core.errors import ConfigIssue, UserError
from distcore_core.registry.index import DEFAULTS
from distcore_core.registry.manager import Plugins
from distcore_data.printable import printable
from distcore_data.stores import read_credentials
from distcore_data.stores.addresses import store_kind

if TYPE_CHECKING:
    from distcore_torch.train_options import TrainerOptions

SECTIONS = (
    "input_features",
    "output_features",
    "preprocessing",
    "combiner",
    "trainer",
    "defaults",
    "backend",
    "model",
    "plugins",
    "extensions",
    "random_seed",
    "hyperopt",
    "model_type",
    "ludwig_version",
)
URL = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*://")


def read(document: Document, plugins: Plugins | None = None) -> tuple[RunConfig, list[ConfigIssue]]:
    """The config, and what is wrong with it. If something is, the config has a default in its
    place.

    plugins: those that are asked for older spellings and sections; else all that the config does
        not block."""
    reader = Reader(document, plugins)
    notes = reader.plugins.upgrade(document)
    if document.values.get("hyperopt"):
        line = document.source_map.find(("hyperopt",)).line
        where = f"line {line}: " if line else ""
        notes.append(
            f"{where}`hyperopt` is left out here: one model is fitted, with the values that the "
            "config gives"
        )
    return reader.config(notes), reader.issues


class Reader(DocumentUnderWay):
    """Reads a whole config."""

    def __init__(self, document: Document, plugins: Plugins | None) -> None:
        super().__init__(document)
        self.block = self._block()
        self.plugins = plugins or Plugins(self.block)

    def config(self, notes: list[str]) -> RunConfig:
        sections = dict(self._sections_of_plugins())
        self._model_type()
        defaults, inputs, outputs = read_features(self)
        trainer = self._section("trainer")
        self._validation_field(trainer, outputs)
        for path in _passwords(self.values, ()):
            if path[:2] != ("backend", "cache_credentials"):
                self.wrong(
                    path,
                    "holds a password in a URL; remove it, and give it in "
                    "backend.cache_credentials",
                )
        return RunConfig(
            input_features=inputs,
            output_features=outputs,
            preprocessing=self._section("preprocessing"),
            model=self._model(),
            trainer=trainer,
            backend=self._backend(),
            plugins_block=self.block,
            extensions=tuple(self._extensions()),
            random_seed=self._seed(),
            hyperopt=self.mapping(("hyperopt",), self.values.get("hyperopt")) or None,
            defaults=defaults,
            sections=sections,
            notes=tuple(notes),
            source=self.document.source,
            source_map=self.source_map,
        )

    def _section(self, name: str) -> Any:
        """A section that the app itself reads, as the model of whoever carries it out has it."""
        values = self.mapping((name,), self.values.get(name))
        model: Any = self.plugins.make(SECTION, name, given=values, plugins=self.plugins)
        made, problems = validated(model, values)
        for problem in problems:
            self.wrong((name, *problem.path), problem.message)
        if made is not None:
            return made
        model = self.plugins.make(SECTION, name, given={}, plugins=self.plugins)
        return model.model_validate({})

    def _sections_of_plugins(self) -> Iterator[tuple[str, JSON]]:
        """The sections that are none of the app's and that a plugin offers; any other is told."""
        offered = self.plugins.names(SECTION.kind)
        for name, value in self.values.items():
            if name in SECTIONS:
                continue
            if name in offered:
                yield name, self.mapping((name,), value)
            else:
                known = self.plugins.known_elsewhere(SECTION.kind, name)
                self.wrong((name,), known or unknown_option(name, (*SECTIONS, *offered)))

    def _model_type(self) -> None:
        kind = self.values.get("model_type")
        if kind == "gbm":
            message = (
                "model_type gbm was removed from Ludwig; leave it out, and name lightgbm in "
                "backend.trainer.type, with LightGBM's options beside it (pip install "
                "distcore-lightgbm; `distcore init --model trees` writes such a config)"
            )
            self.wrong(("model_type",), message)
        elif kind not in (None, "ecd"):
            self.wrong(
                ("model_type",),
                f"model_type {kind!r} is not carried out here; only ecd is. Remove it",
            )

    def _seed(self) -> int:
        seed = self.values.get("random_seed")
        if seed is None:
            return DEFAULT_SEED
        if is_seed(seed):
            return int(seed)
        self.wrong(("random_seed",), f"should be a {SEED}, not {seed!r}")
        return DEFAULT_SEED

    def _block(self) -> tuple[str, ...]:
        section = self.mapping(("plugins",), self.values.get("plugins"))
        for name in section:
            if name != "block":
                self.wrong(("plugins", name), unknown_option(name, ["block"]))
        block = section.get("block")
        if block is None or isinstance(block, str):
            return (block,) if block else ()
        if isinstance(block, list) and all(isinstance(each, str) for each in block):
            return tuple(block)
        self.wrong(("plugins", "block"), "should be a list of names of plugins or distributions")
        return ()

    def _validation_field(
        self, trainer: TrainerOptions, outputs: tuple[FeatureConfig, ...]
    ) -> None:
        chosen, path = trainer.validation_field, ("trainer", "validation_field")
        names = [each.name for each in outputs]
        if chosen not in (None, COMBINED, *names) and names:
            known = ", ".join(map(printable, names))
            self.wrong(path, f"{chosen!r} is no output feature; there are: {known}, or combined")
        if chosen == COMBINED and trainer.validation_metric not in (None, "loss"):
            self.wrong(
                ("trainer", "validation_metric"), "should be loss if validation_field is combined"
            )

    # -------------------------------------------------------------- plugins by name

    def _model(self) -> Ref:
        section = self.mapping(
            ("model",),
            {"type": self.values["model"]}
            if isinstance(self.values.get("model"), str)
            else self.values.get("model"),
        )
        options = {name: value for name, value in section.items() if name != "type"}
        combiner = self.values.get("combiner")
        if combiner is not None:
            if "combiner" in options:
                self.wrong(
                    ("model", "combiner"),
                    "the combiner is given twice; keep `combiner` at the top level",
                )
            options["combiner"] = combiner
            self.source_map.follow(combiner, ("combiner",), ("model", "combiner"))
        kind = self.text(("model", "type"), section.get("type"))
        return Ref(kind or DEFAULTS["models"], options, named=bool(kind))

    def _extensions(self) -> Iterator[Ref]:
        section = self.values.get("extensions")
        if section is not None and not isinstance(section, list):
            self.wrong(("extensions",), "should be a list of names, or of mappings with a type")
            return
        for index, each in enumerate(section or []):
            found = self._reference(("extensions", index), each)
            if found is None or not found.type:
                self.wrong(
                    ("extensions", index), "needs a type, the name of an installed extension"
                )
            else:
                yield found

    def _reference(self, path: KeyPath, value: Any) -> Ref | None:
        """`dask`, or `{type: dask, parallelism: 100}`, or options without a type."""
        if value is None:
            return None
        if isinstance(value, str):
            return Ref(value)
        section = self.mapping(path, value)
        kind = self.text((*path, "type"), section.get("type"))
        return Ref(kind or "", {name: each for name, each in section.items() if name != "type"})

    def _backend(self) -> BackendConfig:
        section = self.mapping(("backend",), self.values.get("backend"))
        cache_format = self._reference(("backend", "cache_format"), section.get("cache_format"))
        if cache_format is None or not cache_format.type:
            cache_format = Ref(
                DEFAULTS["caches"], cache_format.options if cache_format else {}, named=False
            )
        return BackendConfig(
            type=self.text(("backend", "type"), section.get("type")),
            options={name: value for name, value in section.items() if name not in BACKEND_OPTIONS},
            cache_dir=self._place(("backend", "cache_dir"), section.get("cache_dir")),
            cache_format=cache_format,
            cache_credentials=self._credentials(section.get("cache_credentials")),
            processor=self._reference(("backend", "processor"), section.get("processor")),
            trainer=self._reference(("backend", "trainer"), section.get("trainer")),
            loader=self._reference(("backend", "loader"), section.get("loader")),
        )

    def _place(self, path: KeyPath, value: Any) -> str | None:
        """A folder, or the address of a store. One with a password is told by `_passwords`, with
        all others."""
        text = self.text(path, value)
        if text is not None and "\0" in text:
            self.wrong(path, "no path holds a NUL character")
        elif text is not None and not _has_password(text):
            try:
                store_kind(text)
            except UserError as error:
                self.wrong(path, str(error))
        return text

    def _credentials(self, value: Any) -> dict[str, Any] | None:
        """A mapping, or a path to JSON. No message shows anything of what is in them."""
        try:
            found = read_credentials(value)
        except ValueError as error:
            self.wrong(("backend", "cache_credentials"), str(error))
            return None
        return dict(found.options) if found is not None else None


def _has_password(text: str) -> bool:
    return URL.match(text) is not None and without_passwords(text) != text


def _passwords(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    """The paths of URLs that carry a password: they would end in description.json."""
    if isinstance(value, str) and _has_password(value):
        yield path
    inside = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in inside:
        yield from _passwords(each, (*path, key))
