"""Ludwig's older spellings, turned into today's before a config is read; each leaves a note, none
is silent.

What Ludwig's own backward_compatibility.py upgrades for tables and text, and the few words that its
examples still use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from distcore_core.config.document import Document, KeyPath
from distcore_core.config.upgrade import Upgrade

LUDWIG_TYPES = (
    "number",
    "binary",
    "category",
    "text",
    "set",
    "bag",
    "sequence",
    "timeseries",
    "vector",
    "image",
    "audio",
    "date",
    "h3",
    "anomaly",
    "category_distribution",
)
"""Every feature type that Ludwig has, installed here or not."""

_SECTIONS = {
    **dict.fromkeys(
        (
            "base_model",
            "adapter",
            "adapters",
            "prompt",
            "generation",
            "quantization",
            "model_parameters",
            "is_multimodal",
        ),
        "is for Ludwig's language models, which are not carried out here; remove it",
    ),
    "backend.preprocessor_kwargs": "Ludwig's resources of preprocessing are not carried out here; "
    "backend.processor has what there is, such as `{type: dask, parallelism: 4}`",
    "preset": "Ludwig's presets are not carried out here; write out the sections that you want",
}
"""Ludwig's sections that are not carried out, and what to do."""

_SCHEDULER = {
    "reduce_learning_rate_on_plateau": "reduce_on_plateau",
    "reduce_learning_rate_on_plateau_patience": "reduce_on_plateau_patience",
    "reduce_learning_rate_on_plateau_rate": "reduce_on_plateau_rate",
    "reduce_learning_rate_eval_metric": "reduce_eval_metric",
    "reduce_learning_rate_eval_split": "reduce_eval_split",
    "decay": "decay",
    "decay_steps": "decay_steps",
    "decay_rate": "decay_rate",
    "staircase": "staircase",
    "learning_rate_warmup_epochs": "warmup_evaluations",
}
_TEXT = {
    "sequence_length_limit": "max_sequence_length",
    "word_most_common": "most_common",
    "word_sequence_length_limit": "max_sequence_length",
    "word_tokenizer": "tokenizer",
    "word_vocab_file": "vocab_file",
    "char_most_common": "most_common",
    "char_sequence_length_limit": "max_sequence_length",
    "char_tokenizer": "tokenizer",
    "char_vocab_file": "vocab_file",
}
_ANYWHERE = {"bias": "use_bias", "fc_size": "output_size"}
_DECODER = {
    name: f"fc_{name}" for name in ("output_size", "norm", "norm_params", "activation", "dropout")
}
"""What Ludwig's own examples give a decoder without the `fc_` that its schema has."""


def upgrade(document: Document) -> list[str]:
    """Change the document's values to today's spellings, in place; returns one note for each
    kind of change."""
    work = _Ludwig(document)
    work.left_empty()
    work.move(("training",), ("trainer",))
    work.trainer()
    work.split()
    work.features()
    work.defaults()
    work.combiner()
    work.backend()
    return list(work.notes)


def known(kind: str, name: str) -> str | None:
    """What a name is that is Ludwig's and that no installed plugin offers; None for any other."""
    if kind == "features" and name in LUDWIG_TYPES:
        return f"Ludwig's feature type {name!r} needs a plugin that is not installed."
    if kind == "trainers" and name in ("deepspeed", "fsdp", "accelerate"):
        return (
            f"Ludwig's strategy {name!r} is not carried out, and no plugin is known that does: "
            "every worker holds the whole model (data_parallel)."
        )
    if kind == "sections":
        return _SECTIONS.get(name)
    return None


class _Ludwig(Upgrade):
    """A document under way from Ludwig's spellings."""

    # -------------------------------------------------------------- sections

    def left_empty(self) -> None:
        """Ludwig writes out sections that nobody gave; there is nothing to tell of them."""
        for name in _SECTIONS:
            if name in self.document.values and self.document.values[name] is None:
                del self.document.values[name]

    def trainer(self) -> None:
        trainer, scheduler = self.section(("trainer",)), ("trainer", "learning_rate_scheduler")
        for old, new in _SCHEDULER.items():
            value = trainer.get(old)
            if old == "decay" and isinstance(value, bool):
                if value:
                    self.move(("trainer", old), (*scheduler, new), "exponential")
                else:
                    self.drop(("trainer", old), "there is no decay unless one is named")
            elif isinstance(value, bool) and new == "reduce_on_plateau":
                self.move(("trainer", old), (*scheduler, new), int(value))
            else:
                self.move(("trainer", old), (*scheduler, new))
        self.move((*scheduler, "type"), (*scheduler, "decay"))
        self.move(("trainer", "increase_batch_size_on_plateau_max"), ("trainer", "max_batch_size"))
        self.move(("trainer", "optimizer", "lr"), ("trainer", "learning_rate"))
        self.drop(("trainer", "type"), "the trainer is chosen by `backend.trainer.type`")
        self.drop(("trainer", "shuffle_buffer_size"), "see `backend.loader.window_size_bytes`")
        if not trainer.get("enable_profiling"):
            self.drop(("trainer", "profiler"), "profiling is off")

    def split(self) -> None:
        """`force_split`, `split_probabilities` and `stratify`, from before Ludwig 0.5."""
        path: KeyPath = ("preprocessing",)
        section = self.section(path)
        if section.get("stratify") is not None:
            section.setdefault("split", {"type": "stratify"})
            self.move((*path, "stratify"), (*path, "split", "column"))
        if section.get("split_probabilities") is not None:
            self.move((*path, "split_probabilities"), (*path, "split", "probabilities"))
        for name in ("stratify", "split_probabilities", "force_split"):
            if name in section:
                why = "rows are split at random unless `preprocessing.split` says otherwise"
                self.drop((*path, name), "it is null" if section[name] is None else why)

    def features(self) -> None:
        for path, feature in self._features():
            if feature.get("type") == "numerical":
                feature["type"] = "number"
                self.note(
                    (*path, "type"), "the feature type `numerical` is an older spelling of `number`"
                )
            for name in ("encoder", "decoder", "loss"):
                if name in feature:  # most features say none, and there may be ten thousand
                    self.wrap((*path, name))
            if feature.get("type") in ("text", "sequence"):
                self._move_all((*path, "preprocessing"), _TEXT)
            # Ludwig passes over both since its 0.6.
            if feature.get("type") == "text":
                self.drop(
                    (*path, "level"),
                    "preprocessing.tokenizer says whether words or characters are read",
                )
            if feature.get("type") == "category":
                self.drop((*path, "representation"), "encoder.type says it")
            if "loss" in feature:
                weights = self.section((*path, "loss")).get("class_weights")
                if isinstance(weights, int | float):
                    why = "one number weighs all classes alike"
                    self.drop((*path, "loss", "class_weights"), why)
            if "weight_regularization" in feature and feature["weight_regularization"] is None:
                self.drop((*path, "weight_regularization"), "it is null")
            self._rename(feature, path)
            if "decoder" in feature:
                self._move_all((*path, "decoder"), _DECODER)

    def defaults(self) -> None:
        """Sections of single types, wherever they stand, end in `defaults.<type>`."""
        for name, value in list(self.section(("preprocessing",)).items()):
            if isinstance(value, Mapping) and name not in ("split", "csv"):
                kind = "number" if name == "numerical" else name
                old: KeyPath = ("preprocessing", name)
                if set(value) == {"preprocessing"}:
                    old = (*old, "preprocessing")
                self._into_defaults(old, kind)
        self.move(("defaults", "numerical"), ("defaults", "number"))
        for kind, section in self.section(("defaults",)).items():
            path: KeyPath = ("defaults", kind)
            if not isinstance(section, dict):
                continue
            for name in ("encoder", "decoder", "loss"):
                self.wrap((*path, name))
            self.drop((*path, "type"), "the section's name says the type")
            self._rename(section, path)
            self._move_all((*path, "decoder"), _DECODER)
            if kind in ("text", "sequence"):
                self._move_all((*path, "preprocessing"), _TEXT)

    def combiner(self) -> None:
        self.wrap(("combiner",))
        self._rename(self.section(("combiner",)), ("combiner",))

    def backend(self) -> None:
        self.wrap(("backend",))
        self.move(("backend", "data_format"), ("backend", "cache_format"))
        self.move(("backend", "engine"), ("backend", "processor"))
        self.move(("backend", "credentials", "cache"), ("backend", "cache_credentials"))
        if self.at(("backend", "credentials")) == {}:
            del self.section(("backend",))["credentials"]
        strategy = self.section(("backend", "trainer")).get("strategy")
        if isinstance(strategy, Mapping):
            for name in list(strategy):
                self.move(("backend", "trainer", "strategy", name), ("backend", "trainer", name))
            self.drop(("backend", "trainer", "strategy"), "it is empty")
        else:
            self.move(("backend", "trainer", "strategy"), ("backend", "trainer", "type"))

    # -------------------------------------------------------------- parts

    def _features(self) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
        for role in ("input_features", "output_features"):
            features = self.at((role,))
            for index, feature in enumerate(features if isinstance(features, list) else []):
                if isinstance(feature, dict):
                    yield (role, index), feature

    def _into_defaults(self, old: KeyPath, kind: str) -> None:
        fresh = kind not in self.section(("defaults",))
        self.make(("defaults", kind, "preprocessing"))
        if fresh:
            self.document.source_map.follow({}, old[:2], ("defaults", kind))
        for name in list(self.section(old)):
            self.move((*old, name), ("defaults", kind, "preprocessing", name))
        self.section(("preprocessing",)).pop(str(old[1]), None)

    def _move_all(self, path: KeyPath, renamed: Mapping[str, str]) -> None:
        for old, new in renamed.items():
            self.move((*path, old), (*path, new))

    def _rename(self, section: dict[str, Any], path: KeyPath) -> None:
        """The words of `_ANYWHERE` in a section, its encoder and decoder, and their lists of
        layers."""
        for old, new in _ANYWHERE.items():
            if old in section:
                self.move((*path, old), (*path, new))
        for name in ("encoder", "decoder"):
            if isinstance(section.get(name), dict):
                self._rename(section[name], (*path, name))
        layers = section.get("fc_layers")
        for index, layer in enumerate(layers if isinstance(layers, list) else []):
            if isinstance(layer, dict):
                self._rename(layer, (*path, "fc_layers", index))
