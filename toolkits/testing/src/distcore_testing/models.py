"""What every model must hold: weights by the seed, logits of the right shape, a state that can
be saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from distcore_core.contracts import MODEL
from distcore_testing import data
from distcore_testing.app import app

OUTPUTS = (
    {"name": "y", "type": "binary"},
    {"name": "k", "type": "category"},
    {"name": "z", "type": "number"},
)


class ModelSuite:
    """Subclass with `name` and `options`: what the config's `model` section holds."""

    name: str
    options: Mapping[str, Any] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
        """(features, a batch of 8 rows) of the tiny data."""
        import pyarrow as pa

        from distcore_core.registry.manager import Plugins
        from distcore_data.cache import open_cache
        from distcore_data.features import Features
        from distcore_torch.batch import Layout
        from distcore_torch.packing import pack

        config = data.config(
            str(tmp_path_factory.mktemp("cache")), output_features=[dict(each) for each in OUTPUTS]
        )
        config["input_features"].append({"name": "tags", "type": "set"})
        cache = app().preprocess(config, dataset=data.table())
        with open_cache(cache) as reader:
            features = Features.of(config, Plugins()).fitted(reader.metadata)
            table = pa.record_batch(reader.read("train", 0, 8))
        return features, pack(table, Layout.of(features.columns.values()))

    def module(self, features: Any, seed: int = 1) -> Any:
        """A module with the weights of a seed."""
        import torch

        from distcore_core.registry.manager import Plugins

        torch.manual_seed(seed)
        return Plugins().make(MODEL, self.name, self.options).build(features)

    def test_logits_for_every_output_and_gradients_for_every_weight(
        self, fitted: tuple[Any, Any]
    ) -> None:
        import torch

        features, batch = fitted
        module = self.module(features)
        logits = module(batch)
        classes = features.metadata["k"]["vocab_size"]
        shapes = {name: tuple(each.shape) for name, each in logits.items()}
        assert shapes == {"y": (8,), "k": (8, classes), "z": (8,)}
        assert all(torch.isfinite(each).all() for each in logits.values())
        sum(each.sum() for each in logits.values()).backward()
        unused = [
            name
            for name, each in module.named_parameters()
            if each.requires_grad and each.grad is None
        ]
        assert not unused, "DDP cannot train weights that no loss depends on"

    def test_the_seed_decides_the_weights(self, fitted: tuple[Any, Any]) -> None:
        import torch

        first, second, other = (self.module(fitted[0], seed).state_dict() for seed in (1, 1, 2))
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert any(not torch.equal(first[name], other[name]) for name in first)

    def test_its_state_can_be_saved_and_loaded(self, fitted: tuple[Any, Any]) -> None:
        """By safetensors: tensors by name, nothing else."""
        import torch
        from safetensors.torch import load, save

        features, batch = fitted
        module, other = self.module(features, 1).eval(), self.module(features, 2).eval()
        other.load_state_dict(
            load(save({name: each.contiguous() for name, each in module.state_dict().items()}))
        )
        assert all(
            torch.equal(a, b)
            for a, b in zip(module(batch).values(), other(batch).values(), strict=True)
        )

    def test_a_row_is_predicted_alike_whatever_else_is_in_its_batch(
        self, fitted: tuple[Any, Any]
    ) -> None:
        import torch

        from distcore_torch.batch import Batch, Ragged

        features, batch = fitted
        module = self.module(features).eval()
        whole = module(batch)
        ragged = {
            name: Ragged(column.values[: column.offsets[3]], column.offsets[:4])
            for name, column in batch.ragged.items()
        }
        few = module(Batch(batch.packed[:3], batch.layout, ragged))
        assert all(torch.allclose(whole[name][:3], few[name], atol=1e-5) for name in whole)
