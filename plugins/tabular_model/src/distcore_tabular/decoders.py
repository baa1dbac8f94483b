"""Decoders: from the combiner's output to logits, through fully connected layers if the config
asks for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from distcore_tabular.layers import Linear, fc_stack, initialize
from distcore_tabular.options_network import FCStackOptions


class Decoder(nn.Module):
    """[B, input_size] → [B, outputs], or [B] if `squeeze` is set (outputs is then 1).

    options: fc_layers, num_fc_layers and the fc_… defaults of the layers; use_bias,
    weights_initializer and bias_initializer of the last, linear one.
    """

    def __init__(self, input_size: int, outputs: int, options: Any, squeeze: bool = False) -> None:
        super().__init__()
        names = [name for name in FCStackOptions.model_fields if name != "fc_layers"]
        defaults = {name: getattr(options, f"fc_{name}") for name in names}
        stack = FCStackOptions.model_construct(fc_layers=options.fc_layers, **defaults)
        self.fc_stack = fc_stack(input_size, stack, options.num_fc_layers)
        self.linear = Linear(self.fc_stack.output_size, outputs, bias=options.use_bias)
        self.squeeze = squeeze
        initialize(self.linear.weight.data, options.weights_initializer)
        if options.use_bias:
            initialize(self.linear.bias.data, options.bias_initializer)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = self.linear(self.fc_stack(hidden))
        return logits.squeeze(-1) if self.squeeze else logits


def regressor(input_size: int, options: Any) -> Decoder:
    """Decoder `regressor` of numbers and binaries: [B, input_size] → [B]."""
    return Decoder(input_size, 1, options, squeeze=True)


def classifier(input_size: int, classes: int, options: Any) -> Decoder:
    """Decoder `classifier` of categories: [B, input_size] → [B, classes]."""
    return Decoder(input_size, classes, options)
