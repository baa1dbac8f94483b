"""What every model must hold: weights by the seed, logits of the right shape for any batch, a
state that can be saved and loaded, nothing changed that is not its own."""

from __future__ import annotations

import json
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
    def prepared(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
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

    @pytest.fixture
    def fitted(self, prepared: tuple[Any, Any]) -> tuple[Any, Any]:
        """The same, the batch in memory of the test's own."""
        features, batch = prepared
        return features, batch.copy()

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
        """By safetensors, after some steps: tensors by name are all that it learned."""
        import torch
        from safetensors.torch import load, save

        features, batch = fitted
        module, other = self.module(features, 1), self.module(features, 2)
        steps(module, batch, 3)
        state = {name: each.contiguous().clone() for name, each in module.state_dict().items()}
        other.load_state_dict(load(save(state)))
        module.eval(), other.eval()
        with torch.no_grad():
            check_alike(module(batch), other(batch))

    def test_a_row_is_predicted_alike_whatever_else_is_in_its_batch(
        self, fitted: tuple[Any, Any]
    ) -> None:
        """And one row, or none, is a batch too."""
        import torch

        features, batch = fitted
        module = self.module(features)
        steps(module, batch, 2)
        module.eval()
        classes = features.metadata["k"]["vocab_size"]
        with torch.no_grad():
            whole = module(batch)
            for start, stop in ((0, 3), (2, 8), (5, 6), (0, 0)):
                few = module(batch.part(start, stop))
                rows = stop - start
                shapes = {name: tuple(each.shape) for name, each in few.items()}
                assert shapes == {"y": (rows,), "k": (rows, classes), "z": (rows,)}
                check_alike({name: each[start:stop] for name, each in whole.items()}, few, 1e-5)

    def test_targets_are_neither_needed_nor_looked_at(self, fitted: tuple[Any, Any]) -> None:
        """Whoever predicts has none, and a model that sees them learns nothing else."""
        import torch

        features, batch = fitted
        module = self.module(features).eval()
        with torch.no_grad():
            whole = module(batch)
            check_alike(whole, module(without_targets(features, batch)))
            others = batch.copy()
            for each in features.outputs:
                others[each.name].copy_(others[each.name].flip(0))
            check_alike(whole, module(others))

    def test_it_predicts_from_its_inputs(self, fitted: tuple[Any, Any]) -> None:
        """Rows that differ get different logits, of every output."""
        import torch

        features, batch = fitted
        module = self.module(features).eval()
        with torch.no_grad():
            logits = module(batch)
        for name, each in logits.items():
            assert len(torch.unique(each, dim=0)) > 1, f"{name} is the same for every row"
            assert each.dtype == torch.float32

    def test_evaluating_changes_nothing_and_gives_the_same_again(
        self, fitted: tuple[Any, Any]
    ) -> None:
        """Neither its state nor the batch, the metadata or torch's random numbers."""
        import torch

        features, batch = fitted
        module = self.module(features)
        steps(module, batch.copy(), 1)
        module.eval()
        before = {name: each.clone() for name, each in module.state_dict().items()}
        mine, random, told = batch.copy(), torch.get_rng_state(), told_of(features)
        with torch.no_grad():
            check_alike(module(mine), module(mine))
        check_alike(before, module.state_dict())
        assert random.equal(torch.get_rng_state())
        check_batch(mine, batch)
        assert told_of(features) == told

    def test_training_follows_torchs_seed_and_leaves_the_batch_as_it_is(
        self, fitted: tuple[Any, Any]
    ) -> None:
        """Dropout too: a resumed run goes on with the same numbers."""
        import torch

        features, batch = fitted
        found = []
        for _ in range(2):
            module, mine = self.module(features), batch.copy()
            torch.manual_seed(7)
            steps(module, mine, 3)
            check_batch(mine, batch)
            found.append(module.state_dict())
        check_alike(*found)

    def test_two_models_share_nothing_and_torch_stays_as_it_is(
        self, fitted: tuple[Any, Any]
    ) -> None:
        import torch

        def settings() -> tuple[Any, ...]:
            return (
                torch.get_default_dtype(),
                torch.get_num_threads(),
                torch.is_grad_enabled(),
                torch.are_deterministic_algorithms_enabled(),
            )

        features, batch = fitted
        before, told = settings(), told_of(features)
        module, other = self.module(features), self.module(features, 2)
        kept = {name: each.clone() for name, each in other.state_dict().items()}
        steps(module, batch, 2)
        check_alike(kept, other.state_dict())
        assert settings() == before
        assert told_of(features) == told, "building changes the features' metadata"

    def test_it_learns_the_rows_of_a_batch(self, fitted: tuple[Any, Any]) -> None:
        """The logits of every output can be moved where its loss asks for."""
        features, batch = fitted
        module = self.module(features)
        first = steps(module, batch, 1)
        last = steps(module, batch, 60)
        for name in first:
            assert last[name] < first[name], f"the loss of {name} does not fall"


# ------------------------------------------------------------------ parts


def steps(module: Any, batch: Any, count: int) -> dict[str, float]:
    """Train for some steps on plain losses; {output: its loss before the last step}."""
    import torch
    from torch.nn import functional

    module.train()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    target = {"y": batch["y"].float(), "k": batch["k"].long(), "z": batch["z"].float()}
    scale = target["z"].abs().mean().clamp_min(1e-6)
    found: dict[str, float] = {}
    for _ in range(count):
        logits = module(batch)
        losses = {
            "y": functional.binary_cross_entropy_with_logits(logits["y"], target["y"]),
            "k": functional.cross_entropy(logits["k"], target["k"]),
            "z": functional.mse_loss(logits["z"], target["z"] / scale),
        }
        found = {name: float(each.detach()) for name, each in losses.items()}
        optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        optimizer.step()
    return found


def check_alike(left: Mapping[str, Any], right: Mapping[str, Any], reach: float = 0.0) -> None:
    """Tensors of the same names are equal, or as close as `reach`."""
    import torch

    assert list(left) == list(right)
    for name in left:
        alike = torch.allclose(left[name], right[name], atol=reach, rtol=reach)
        assert alike if reach else left[name].equal(right[name]), f"{name} differs"


def without_targets(features: Any, batch: Any) -> Any:
    """The inputs of a batch, as a prediction has them."""
    import torch

    from distcore_torch.batch import Batch, Layout

    layout = Layout.of([features.columns[each.name] for each in features.inputs])
    slots = batch.layout.slots
    words = [
        batch.packed[:, slots[name].start : slots[name].start + slots[name].width]
        for name in layout.slots
    ]
    return Batch(torch.cat(words, 1), layout, {name: batch.ragged[name] for name in layout.ragged})


def check_batch(batch: Any, told: Any) -> None:
    """A batch has the rows that another has."""
    assert batch.packed.equal(told.packed), "it changes the batch"
    for name, column in told.ragged.items():
        assert batch.ragged[name].values.equal(column.values), "it changes the batch"


def told_of(features: Any) -> str:
    """The metadata of all features, to be compared."""
    return json.dumps({name: repr(each) for name, each in features.metadata.items()})
