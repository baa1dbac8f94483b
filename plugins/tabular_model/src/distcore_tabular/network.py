"""The network that the features declare: encoders side by side, a combiner, a decoder for each
output.

What makes it fast: columns that pass through are read as one strided view, embeddings of one size
lie in one table, so that many small lookups become one, and neighbouring numbers in bins go through
one product (`alike`). Weights are still saved by feature, whatever shares a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.nn import functional as F

from distcore_core.contracts import Column, ModelBase
from distcore_core.errors import ConfigError, ConfigIssue, PluginBroken
from distcore_core.registry.manager import environment_plugins
from distcore_data.members import make_named
from distcore_tabular.alike import Alike, shape_of, stretches
from distcore_tabular.encoders import (
    CategoryEmbed,
    OneHot,
    Passthrough,
    Ple,
    even_cuts,
    lookup_rows,
)
from distcore_tabular.roles import COMBINER

if TYPE_CHECKING:
    from distcore_core.contracts import FeatureSet
    from distcore_tabular.options_network import TabularOptions
    from distcore_torch.batch import Batch


def module_key(name: str) -> str:
    """A feature's name as a key that torch takes: no dot in it, and no clash with a module's own
    attributes."""
    return "feature_" + name.replace("%", "%25").replace(".", "%2E")


class TabularModel(ModelBase):
    """The model `tabular`. options: combiner. block: plugins that it must not be of."""

    def __init__(self, options: TabularOptions, block: tuple[str, ...] = ()) -> None:
        self.options = options
        self.block = block

    def build(self, features: FeatureSet) -> nn.Module:
        """The network for the fitted features; the same weights for the same torch seed.

        Raises ConfigError if an output depends on another output, PluginBroken if a feature gives
        no encoder or decoder."""
        for index, feature in enumerate(features.outputs):
            if getattr(feature.options, "dependencies", None):
                path = f"output_features[{index}].dependencies"
                message = (
                    "known in Ludwig, but not carried out here; every output reads the combiner's "
                    "output. Remove it"
                )
                raise ConfigError([ConfigIssue(0, path, message)])
        encoders = {
            feature.name: _encoder(feature, features.metadata[feature.name])
            for feature in features.inputs
        }
        inputs = Inputs(encoders, {name: features.columns[name] for name in encoders})
        combiner = self._combiner(inputs)
        decoders = {
            feature.name: half(
                feature, "decoder", features.metadata[feature.name], combiner.output_size
            )
            for feature in features.outputs
        }
        network = TabularNetwork(inputs, combiner, decoders)
        losses = [getattr(each.options, "loss", None) for each in features.outputs]
        known = [*network.modules(), *features.outputs, *losses]
        network.replayable = all(_ours(each) for each in known)
        return network

    def _combiner(self, inputs: Inputs) -> Any:
        options, plugins = self.options.combiner, environment_plugins(self.block)
        context = {"input_size": inputs.output_size, "sizes": inputs.sizes}
        return make_named(plugins, COMBINER, options.type, options, **context)


def _encoder(feature: Any, metadata: Any) -> nn.Module:
    """An input's encoder, whose outputs are looked at if it is none of ours."""
    encoder = half(feature, "encoder", metadata)
    size = getattr(encoder, "output_size", None)
    if not isinstance(size, Integral) or size < 1:
        fault = f"the `output_size` of its encoder is {size!r}, and not how many columns it gives"
        raise _broken(feature, fault)
    if not type(encoder).__module__.startswith("distcore_tabular."):
        encoder.register_forward_hook(partial(_fitting, feature))
    return encoder


def half(feature: Any, name: str, *given: Any) -> nn.Module:
    """The feature's encoder or decoder. Raises PluginBroken if it is none."""
    network = feature.network()
    if network is None:
        raise _broken(feature, f"its `network()` is None, and not an object with `{name}`")
    made = getattr(network, name)(*given)
    if not isinstance(made, nn.Module):
        raise _broken(feature, f"its `{name}` is {_told(made)}, and no torch.nn.Module")
    return made


def _fitting(feature: Any, encoder: Any, arguments: tuple[Any, ...], output: Any) -> None:
    """A forward hook. Raises PluginBroken if the encoder gives other than [B, output_size]."""
    column, size = arguments[0], encoder.output_size
    rows = len(column) if isinstance(column, torch.Tensor) else len(column.offsets) - 1
    found = output.shape if isinstance(output, torch.Tensor) else None
    if found != (rows, size) or output.dtype == torch.float64:
        fault = f"its encoder gave {_told(output)}, and not torch.float32 {(rows, size)}"
        raise _broken(feature, f"{fault}: `output_size` columns for each row")


def _told(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _broken(feature: Any, fault: str) -> PluginBroken:
    """What to raise for a feature whose half for the network gives what its role does not allow."""
    name = f"{type(feature).__module__}.{type(feature).__qualname__}"
    return PluginBroken(f"{name} of {feature.name!r}: {fault}. Report this to its authors.")


class TabularNetwork(nn.Module):
    """forward(batch) → {output feature: logits, [B] or [B, classes]}.

    Attributes:
        replayable: Whether a number of rows always makes the same kernels, in the losses too, so
            that a GPU may replay them. Known of torch's layers and of ours.
    """

    replayable = False

    def __init__(
        self, encoders: Inputs, combiner: nn.Module, decoders: Mapping[str, nn.Module]
    ) -> None:
        super().__init__()
        self.encoders = encoders
        self.combiner = combiner
        self.decoders = nn.ModuleDict(
            {module_key(name): decoder for name, decoder in decoders.items()}
        )
        self.outputs = tuple(decoders)
        hot = [each for each in encoders.modules() if isinstance(each, OneHot)]
        self._row_bytes = sum(each.class_bytes * each.output_size for each in hot)

    def forward(self, batch: Batch) -> dict[str, torch.Tensor]:
        cuts = even_cuts(batch.rows, self._row_bytes) if self._row_bytes else []
        if len(cuts) < 3:
            return self._decoded(self.combiner(self.encoders(batch)))
        # A number for each value of the data's: what a row needs has no bound of its own.
        parts = [self.combiner(self.encoders(batch.part(*each))) for each in pairwise(cuts)]
        return self._decoded(torch.cat(parts))

    def _decoded(self, hidden: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            name: decoder(hidden)
            for name, decoder in zip(self.outputs, self.decoders.values(), strict=True)
        }


class Inputs(nn.Module):
    """All encoders side by side: a batch → [B, output_size], float32.

    Encoders that can be computed together are, at the place of the first of them:
    - columns of one dtype that pass through are one strided view of the batch;
    - embeddings of one size are one table, a feature's rows behind another's, read with one lookup.
    Neighbours of one shape among the others are one product (`alike`), where that costs no bit.

    state_dict is by feature all the same (`feature_<name>.weight`): how tables are shared is no
    part of an artifact.

    encoders: by feature name, in the order of the config. columns: their encoded columns.
    """

    def __init__(self, encoders: Mapping[str, nn.Module], columns: Mapping[str, Column]) -> None:
        super().__init__()
        self.output_size = sum(cast("int", encoder.output_size) for encoder in encoders.values())
        self.plan: list[tuple[str, tuple[str, ...], Any]] = []
        self.shared: list[tuple[str, list[tuple[str, int, int]]]] = []
        # Where each feature's rows start. No buffers: DDP would broadcast them in every step.
        self.starts: list[torch.Tensor] = []
        self.alike: list[Alike] = []
        self.sizes: dict[str, int] = {}
        for group, names in _groups(encoders, columns).items():
            self.sizes |= {name: cast("int", encoders[name].output_size) for name in names}
            batch_names = tuple(columns[name].name for name in names)
            if group[0] == "passthrough":
                self.plan.append(("block", batch_names, columns[names[0]].dtype != "float32"))
            elif group[0] == "table" and len(names) > 1:
                table = self._share(
                    names, cast("list[CategoryEmbed]", [encoders[name] for name in names])
                )
                self.plan.append(("table", batch_names, table))
            else:
                for name in names:
                    self.add_module(module_key(name), encoders[name])
                    self.plan.append(("one", (columns[name].name,), module_key(name)))
        self._join_alike({columns[name].name: encoders[name] for name in encoders})

    def _join_alike(self, by_column: Mapping[str, nn.Module]) -> None:
        """Put neighbours that can be computed as one into one step of the plan."""
        shapes = [
            shape_of(by_column[names[0]]) if kind == "one" else None for kind, names, _ in self.plan
        ]
        for start, stop in reversed(stretches(shapes)):
            names = tuple(names[0] for _, names, _ in self.plan[start:stop])
            keys = [key for _, _, key in self.plan[start:stop]]
            together = Alike([cast("Ple", by_column[name]) for name in names])
            self.alike.append(together)
            self.plan[start:stop] = [("alike", names, (together, keys))]

    def _share(
        self, names: Sequence[str], encoders: Sequence[CategoryEmbed]
    ) -> tuple[int, float, int]:
        """Lay the embeddings into one table; returns its index, the dropout, and how many numbers
        a row of the batch finds in it."""
        index = len(self.shared)
        weight = torch.cat([encoder.weight.detach() for encoder in encoders])
        self.register_parameter(
            f"table_{index}", nn.Parameter(weight, encoders[0].weight.requires_grad)
        )
        rows, start = [], 0
        for name, encoder in zip(names, encoders, strict=True):
            rows.append((f"{module_key(name)}.weight", start, start + encoder.weight.shape[0]))
            start = rows[-1][2]
        self.starts.append(torch.tensor([first for _, first, _ in rows]))
        self.shared.append((f"table_{index}", rows))
        return index, encoders[0].dropout, len(names) * encoders[0].output_size

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Inputs:
        super()._apply(fn, recurse)
        self.starts = [fn(starts) for starts in self.starts]
        for together in self.alike:
            together.moved(fn)
        return self

    def forward(self, batch: Batch) -> torch.Tensor:
        # No step and no attribute of a tensor too many: where functions are looked at (exact
        # training), each costs five microseconds.
        parts = []
        for kind, names, detail in self.plan:
            if kind == "block":
                block = batch.block(names)
                parts.append(block.float() if detail else block)
            elif kind == "table":
                index, dropout, width = detail
                rows = batch.block(names) + self.starts[index]
                found = lookup_rows(getattr(self, f"table_{index}"), rows.reshape(-1))
                hidden = found.view(-1, width)
                parts.append(F.dropout(hidden, dropout, self.training) if dropout else hidden)
            elif kind == "alike":
                together, keys = detail
                if together.can(batch.rows):
                    parts.append(together(batch.block(names)))
                else:
                    each = zip(keys, names, strict=True)
                    parts += [getattr(self, key)(batch[name]) for key, name in each]
            else:
                parts.append(getattr(self, detail)(batch[names[0]]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for table, rows in self.shared:
            weight = destination.pop(prefix + table)
            for name, start, stop in rows:
                destination[prefix + name] = weight[start:stop]

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for table, rows in self.shared:
            weight = getattr(self, table).detach().clone()
            for name, start, stop in rows:
                piece = state_dict.pop(prefix + name, None)
                if piece is None:
                    missing_keys.append(prefix + name)
                elif piece.shape != weight[start:stop].shape:
                    shapes = (
                        f"{tuple(piece.shape)} was saved, {tuple(weight[start:stop].shape)} is "
                        "needed"
                    )
                    error_msgs.append(f"size mismatch for {prefix}{name}: {shapes}.")
                else:
                    weight[start:stop] = piece
            state_dict[prefix + table] = weight
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def _ours(part: object) -> bool:
    return type(part).__module__.partition(".")[0] in ("torch", __name__.partition(".")[0])


def _groups(
    encoders: Mapping[str, nn.Module], columns: Mapping[str, Column]
) -> dict[tuple[Any, ...], list[str]]:
    """Names of features that are read together, each group at the place of its first feature."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, encoder in encoders.items():
        column = columns[name]
        key: tuple[Any, ...] = ("one", name)
        if type(encoder) is Passthrough and column.width is not None:
            key = ("passthrough", column.dtype)
        elif type(encoder) is CategoryEmbed and column.width == 1 and column.dtype == "int32":
            key = ("table", encoder.output_size, encoder.weight.requires_grad, encoder.dropout)
        groups.setdefault(key, []).append(name)
    return groups
