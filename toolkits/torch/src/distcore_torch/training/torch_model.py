"""A trained torch module: built from the config's model, its weights read from a folder,
predicting batches."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from distcore_core.contracts import JSON, MODEL, FeatureSet
from distcore_core.errors import ArtifactError, UserError
from distcore_data.model_folder import find_model, model_here, read_manifest, unchanged
from distcore_data.printable import listed
from distcore_torch.decoding import Answers
from distcore_torch.training.determinism import initial_weights, one_thread
from distcore_torch.training.finite import ADVICE, not_finite
from distcore_torch.training.raw import shows_a_number_twice
from distcore_torch.training.tensorfile import DTYPES, read_tensors
from distcore_torch.training.weights_file import reading

if TYPE_CHECKING:
    from distcore_core.contracts import Batch, ResultsStore
    from distcore_core.registry.manager import Plugins

BEST, LAST = "weights.safetensors", "last.safetensors"
"""Files of a model folder: the best round's weights, and the last step's where they are others."""


def build_module(
    reference: JSON, features: FeatureSet, plugins: Plugins, seed: int
) -> torch.nn.Module:
    """The module of the config's model with its initial weights, which depend on the seed alone.

    reference: {"type", "options"}. torch's own random state is left as it was. Raises UserError if
    it cannot be trained and saved."""
    model = plugins.make(MODEL, reference["type"], reference["options"])
    with initial_weights():
        torch.default_generator.manual_seed(seed)
        module: torch.nn.Module = model.build(features)
    _check(module)
    return module


def _check(module: torch.nn.Module) -> None:
    """Raise UserError for a network that has nothing to train, or what no file of weights can
    hold."""
    name = type(module).__qualname__
    # What an extra state is loaded into is the module's own matter.
    own = dict((*module.named_parameters(), *module.named_buffers()))
    for path, each in module.state_dict().items():
        if not isinstance(each, torch.Tensor):
            raise UserError(
                f"{name} keeps {path} (a {type(each).__name__}) in its state, and weights "
                "are saved as tensors alone. Register it as a buffer, or let get_extra_state "
                "return a tensor."
            )
        if torch.nn.parameter.is_lazy(each):
            raise UserError(
                f"{name} has no shape for {path} before its first batch (a lazy layer), and "
                "weights are needed before that. Say the shape: nn.Linear for nn.LazyLinear."
            )
        if each.layout is not torch.strided:
            raise UserError(
                f"{name} has {path} as a {each.layout} tensor, which cannot be saved. Keep it "
                "dense, and make it sparse in forward."
            )
        if path in own and shows_a_number_twice(each):
            raise UserError(
                f"{name} has {path} as a view that shows one number in several places (expand), "
                "and no weights can be loaded into it. Give it memory of its own: .clone()."
            )
        if each.dtype not in DTYPES:
            raise UserError(
                f"{name} has {path} as {each.dtype}, which cannot be saved. Keep it as real "
                "numbers (torch.view_as_real), and make others of it in forward."
            )
    if not any(each.requires_grad for each in module.parameters()):
        raise UserError(
            f"{name} has nothing to train: it has no parameter whose requires_grad is True. Leave "
            "some unfrozen, or add a layer."
        )


def start_from(module: torch.nn.Module, place: Path | ResultsStore) -> None:
    """Give the module the weights of a saved model (`--model_load_path`), or of one safetensors
    file.

    Raises ArtifactError if they do not fit."""
    if isinstance(place, Path) and place.suffix == ".safetensors" and place.is_file():
        load_weights(module, _tensors(place), place)
        return
    with model_here(place) as path:
        directory = find_model(path)
        with unchanged(directory):
            manifest = read_manifest(directory)
            tensors = _tensors(directory / _weights_file(directory, manifest))
            load_weights(module, tensors, directory)


def open_predictor(directory: Path, features: FeatureSet, *, trust: bool) -> TorchPredictor:
    """The best weights of a model folder, ready to predict on the CPU (`TorchPredictor.to` moves
    it).

    Raises ArtifactError if the folder is not whole, or names a class of the user's that is not
    trusted."""
    from distcore_core.registry.manager import environment_plugins

    manifest = read_manifest(directory)
    reference = manifest.get("extra", {}).get("model")
    if reference is None:
        raise ArtifactError(
            f"{directory} was not written by a torch trainer. Open it with the trainer that wrote "
            "it."
        )
    plugins = environment_plugins()  # which features ask, too: metadata are read once
    model = plugins.make(MODEL, reference["type"], reference["options"])
    model.check_trust(trust)
    with initial_weights():
        module = model.build(features)
    load_weights(module, _tensors(directory / _weights_file(directory, manifest)), directory)
    return TorchPredictor(module, features, exact=bool(manifest["extra"].get("exact")))


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    with reading(path):
        return read_tensors(path)


def load_weights(module: torch.nn.Module, weights: dict[str, torch.Tensor], where: Any) -> None:
    """Raise ArtifactError if names or shapes are those of another model, or parameters are not
    finite."""
    theirs = {name: list(getattr(each, "shape", [])) for name, each in weights.items()}
    ours = {name: list(getattr(each, "shape", [])) for name, each in module.state_dict().items()}
    differ = sorted(
        name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)
    )
    if differ:
        first = differ[0]
        raise ArtifactError(
            f"The weights in {where} are of another model than the config's: {listed(differ, 1)} "
            f"differ (there {theirs.get(first, 'missing')}, here {ours.get(first, 'missing')}). "
            "Use the config that they were trained with, and data with the same values of what is "
            "no number: each class, category and word has weights of its own."
        )
    buffers = {name for name, _ in module.named_buffers()}  # a mask of infinities may be one
    if bad := not_finite((name, each) for name, each in weights.items() if name not in buffers):
        raise ArtifactError(
            f"The weights in {where} are not finite ({listed(bad, 1)} holds NaN or infinity), so "
            f"whatever is predicted with them means nothing. Train again. {ADVICE}"
        )
    module.load_state_dict(weights)


def _weights_file(directory: Path, manifest: JSON) -> str:
    name = manifest.get("extra", {}).get("weights", {}).get("best")
    if name not in manifest["files"]:
        raise ArtifactError(
            f"{directory} holds no weights of a torch model. Give a model that a torch trainer "
            "wrote."
        )
    return str(name)


class TorchPredictor:
    """A `contracts.Predictor`.

    module: in evaluation mode from here on. exact: the same bits for any number of threads, by
        one of them."""

    def __init__(
        self, module: torch.nn.Module, features: FeatureSet, *, exact: bool = False
    ) -> None:
        self._exact = exact
        self.module = module.eval()
        self.device = torch.device("cpu")
        self._outputs = [
            (each.name, each.network(), features.metadata[each.name]) for each in features.outputs
        ]

    def to(self, device: torch.device) -> TorchPredictor:
        """Predict on another device."""
        self.module.to(device)
        self.device = device
        return self

    def predict(self, batch: Batch) -> Answers:
        """{output feature: probabilities or encoded values, [B] or [B, classes]}."""
        outputs, logits = self.outputs(batch)
        return Answers({name: each.cpu().numpy() for name, each in outputs.items()}, logits)

    @torch.inference_mode()
    def outputs(self, batch: Batch) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Outputs and logits as tensors on the device: what `Scores.update` takes."""
        if self.device.type != "cpu":
            batch = batch.to(self.device)
        with one_thread() if self._exact else nullcontext():
            logits = self.module(batch)
        return {
            name: network.output(logits[name], metadata)
            for name, network, metadata in self._outputs
        }, logits
