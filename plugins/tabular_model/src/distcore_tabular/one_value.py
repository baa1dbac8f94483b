"""What the networks of numbers and binaries share: one float a row in, one logit a row out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON

if TYPE_CHECKING:
    import torch


class OneValueNetwork:
    """The encoder and decoder of a column that is one float32 a row. feature: its options name them."""

    feature: Any

    def encoder(self, metadata: JSON) -> torch.nn.Module:
        """[B] float32 → [B, output_size]."""
        from distcore_tabular import encoders

        options = self.feature.options.encoder
        return encoders.passthrough(1) if options.type == "passthrough" else encoders.dense(1, options)

    def decoder(self, metadata: JSON, input_size: int) -> torch.nn.Module:
        """[B, input_size] → [B]: the log-odds of true, or values in encoded units."""
        from distcore_tabular import decoders

        return decoders.regressor(input_size, self.feature.options.decoder)
