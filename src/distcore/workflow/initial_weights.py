"""The weights that training starts from: those of a model or a file (`--model_load_path`), or of a
module given from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON, ResultsStore
from distcore_core.errors import ArtifactError, TrainingError
from distcore_core.io.atomic import write_file
from distcore_core.io.digest import digest_file
from distcore_data.os_errors import explained

if TYPE_CHECKING:
    from distcore.workflow.session import Session

INITIAL = "initial.safetensors"
"""The weights of a module given from Python."""


def check_weights(place: Path | ResultsStore) -> tuple[str, Mapping[str, JSON]]:
    """(the sha256 of the weights to start from (`--model_load_path`), the manifest of their model;
    of a file of weights alone {}). Raises ArtifactError, before any work, if there is no whole
    model."""
    from distcore_data.model_folder import find_model, model_here, read_manifest
    from distcore_torch.training.weights_file import check_header

    if isinstance(place, Path) and place.suffix == ".safetensors" and place.is_file():
        check_header(place)  # before all of it is read
        return digest_file(place).sha256, {}
    if isinstance(place, Path) and place.is_file():
        raise ArtifactError(
            f"{place} (--model_load_path) is a file, and of files only .safetensors are read, "
            "which run no code. Write one of it, by the names of the network's state_dict: "
            "safetensors.torch.save_file(torch.load(…), …). Or give a model's folder."
        )
    with model_here(place) as path:
        manifest = read_manifest(find_model(path))
    best = manifest["extra"].get("weights", {}).get("best")
    return str(manifest["files"].get(best, {}).get("sha256", "")), manifest


def write_weights(session: Session, weights: Mapping[str, Any]) -> Path:
    """Write the weights of a module given from Python, for every worker to start from; returns
    the file."""
    from distcore_torch.training.tensorfile import tensor_writer

    assert session.directory is not None
    path = session.directory / INITIAL
    with explained(path.parent, "the initial weights", TrainingError):
        write_file(path, tensor_writer(weights))
    if session.mirror is not None:
        session.mirror.put_file(path.name, path)
    return path
