"""The halves of features that need torch; their parts are members of the plugin's roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON

if TYPE_CHECKING:
    import torch


class EncoderNetwork:
    """Of a feature that is an input alone (dates, texts, sets): the encoder that its options
    name."""

    def __init__(self, feature: Any) -> None:
        self.feature = feature

    def encoder(self, metadata: JSON) -> torch.nn.Module:
        """The column's batch value → [B, output_size]."""
        found: torch.nn.Module = self.feature.encoder(metadata)
        return found


class MemberNetwork(EncoderNetwork):
    """Of a feature that may be an output, too (numbers, binaries, categories): also the decoder and
    the loss that its options name."""

    _loss: Any = None

    def decoder(self, metadata: JSON, input_size: int) -> torch.nn.Module:
        """[B, input_size] → logits: [B], or [B, classes] of a category."""
        found: torch.nn.Module = self.feature.decoder(metadata, input_size)
        return found

    def loss(self, logits: torch.Tensor, target: torch.Tensor, metadata: JSON) -> torch.Tensor:
        """Loss of each row, [B]; of a category 0 for a row whose target is NO_CLASS."""
        if self._loss is None:
            self._loss = self.feature.loss()
        rows: torch.Tensor = self._loss(logits, target, metadata)
        return rows
