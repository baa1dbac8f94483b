"""The model folder: what a trainer saved, and model.json that says what it is and checks every byte
of it.

    model/
      model.json             its own digest; features with their metadata, model and trainer by
                             name, seed, digest of each file below
      weights.safetensors    or whatever else the trainer saved

Nothing in it is code and nothing is unpickled. A model of the user's own class is named by its
import path; opening it imports that class, so a class from outside the installed plugins needs
`trust`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from distcore_core.contracts import JSON, TRAINER, Predictor, ResultsStore, TrainJob
from distcore_core.errors import ArtifactError, PluginNotFound, TrainingError
from distcore_core.io.atomic import DirectoryBuilder, write_new_file
from distcore_core.io.digest import digest_file
from distcore_core.registry.manager import Plugins
from distcore_data.features import Features
from distcore_data.memory import keep_freed_memory
from distcore_data.model_folder import (
    MOST_BYTES,
    VERSION,
    find_model,
    model_here,
    model_place,
    read_manifest,
    read_once,
    unchanged,
)
from distcore_data.os_errors import explained
from distcore_data.run_files import MODEL_JSON
from distcore_data.seals import sealed
from distcore_data.stores import Credentials
from distcore_data.threads import patient_threads

if TYPE_CHECKING:
    from distcore_data.sources.options import DelimitedOptions

log = logging.getLogger("distcore")

PREDICTING = ("models", "trainers", "encoders", "decoders", "combiners")
"""What decides predictions beside features: roles, without the plugin that declares them."""


@dataclass
class Artifact:
    """An open model. manifest: model.json.

    place: its folder, or the bucket that it was copied from. digest: sha256 of model.json, which
    holds those of the other files."""

    place: Path | ResultsStore
    digest: str
    manifest: JSON
    features: Features
    predictor: Predictor
    plugins: Plugins

    def delimited(self) -> DelimitedOptions:
        """How delimited text was read for training; new data is read alike."""
        from distcore_data.preprocess_options import Delimited

        return Delimited.model_validate(self.manifest["preprocessing"].get("csv") or {}).options()


def write_artifact(
    directory: Path,
    job: TrainJob,
    features: Features,
    files: Mapping[str, bytes | Callable[[BinaryIO], None]],
    extra: JSON | None = None,
) -> Path:
    """Write a model folder whole, replacing the one that is there; if the job's results lie in a
    bucket, there too.

    Args:
        directory: Where it goes.
        job: What was trained.
        features: The fitted ones, which the model reads and predicts.
        files: What the trainer saves, by file name: bytes, or a function that writes them.
        extra: What the trainer wants to read back (`manifest["extra"]`).

    Returns:
        The folder's path.

    Raises:
        TrainingError: The disk is full; an older model is as it was.
    """
    with (
        explained(directory, "the model", TrainingError),
        DirectoryBuilder(directory) as folder,
    ):
        digests = {name: write_new_file(folder / name, content) for name, content in files.items()}
        manifest = {
            "version": VERSION,
            "distcore": metadata.version("distcore"),
            "trainer": {"type": job.trainer.name, "options": dict(job.trainer.options)},
            "model": {**job.config["model"], "combiner": job.config.get("combiner")},
            "preprocessing": job.config["preprocessing"],
            "random_seed": job.seed,
            "cache_key": job.cache.key,
            # `rounds` tells a search of its trial, in the search's own folder: nothing for those
            # who open the model.
            "extensions": [
                each for each in job.config.get("extensions") or [] if each["type"] != "rounds"
            ],
            "plugins": list(job.plugins),
            **features.as_json(),
            "files": {
                name: {"bytes": each.bytes, "sha256": each.sha256} for name, each in digests.items()
            },
            "extra": extra or {},
        }
        try:
            content = sealed(manifest, most_bytes=MOST_BYTES)
        except (TypeError, ValueError) as error:
            raise TrainingError(
                f"{MODEL_JSON} cannot be written: {error}. Give options that are plain JSON."
            ) from error
        write_new_file(folder / MODEL_JSON, content)
    if job.mirror is not None:
        job.mirror.put_folder(directory.name, directory, MODEL_JSON)
    return directory


def open_artifact(
    path: str | Path | ResultsStore,
    *,
    plugins: Plugins | None = None,
    trust: bool = False,
    credentials: Credentials | None = None,
) -> Artifact:
    """Check and open a model folder, or the experiment's folder around it: here or in a bucket.

    credentials: of the bucket; None: what the environment gives.
    Raises ArtifactError if a file is missing, cut, swapped or foreign, or names a class that is
    not trusted, or if another model took its place meanwhile."""
    patient_threads()
    keep_freed_memory()
    plugins, place = plugins or Plugins(), model_place(path, credentials)
    with model_here(place) as found:
        directory = find_model(found)
        with unchanged(directory):
            manifest = read_manifest(directory)
            digest = digest_file(directory / MODEL_JSON).sha256
            _compare_makers(manifest["plugins"], plugins)
            features = Features.from_json(manifest, plugins)
            made = manifest["trainer"]
            trainer = plugins.make(TRAINER, made["type"], made["options"])
            with read_once(directory, manifest):
                predictor = trainer.load(directory, features, trust=trust)
    return Artifact(
        directory if isinstance(place, Path) else place,
        digest,
        manifest,
        features,
        predictor,
        plugins,
    )


def _compare_makers(used: Sequence[JSON], plugins: Plugins) -> None:
    """Warn of another release of a plugin from outside that decides what is predicted; features say
    it themselves. Raises ArtifactError if it is not installed."""
    from distcore_data.blame import OWN

    for each in used:
        role, distribution = each["kind"].rpartition(".")[2], each["distribution"]
        if role not in PREDICTING or distribution in OWN:
            continue
        then = f"{distribution} {each['version']}"
        what = f"The model was trained with {role.removesuffix('s')} {each['name']!r} of {then}"
        try:
            now = plugins.find(each["kind"], each["name"])
        except PluginNotFound as error:
            raise ArtifactError(
                f"{what}, which is not installed here. Install {distribution}=={each['version']}."
            ) from error
        if now.who != then:
            log.warning("%s; %s is installed here, and may predict otherwise.", what, now.who)
