"""The roles that the tabular model declares: what its features are made of, by
`<feature type>.<name>`, and combiners."""

from __future__ import annotations

from typing import Any, Protocol

from distcore_core.contracts import MEMBER_HOOK, Role


class ModuleMembers(Protocol):
    """What the network needs of a `torch.nn.Module`."""

    parameters: Any
    state_dict: Any


class LayerMembers(ModuleMembers, Protocol):
    """That, and into how many columns it reads its own."""

    output_size: Any


class MetricMembers(Protocol):
    """What an evaluation needs of a `torchmetrics.Metric`."""

    update: Any
    compute: Any
    reset: Any
    metric_state: Any


ENCODER: Role[Any] = Role("tabular.encoders", MEMBER_HOOK, "encoder", LayerMembers)
"""Context: metadata. A torch.nn.Module from the column of a batch to [B, output_size], with
`output_size`."""

DECODER: Role[Any] = Role("tabular.decoders", MEMBER_HOOK, "decoder", ModuleMembers)
"""Context: metadata, input_size. A torch.nn.Module from [B, input_size] to logits, [B] or [B,
classes]."""

LOSS: Role[Any] = Role("tabular.losses", MEMBER_HOOK, "loss", object)
"""Context: none. (logits, target, metadata) → the loss of each row, [B]."""

COMBINER: Role[Any] = Role("tabular.combiners", MEMBER_HOOK, "combiner", LayerMembers)
"""Context: input_size, sizes. A torch.nn.Module from [B, input_size] to [B, output_size], with
`output_size`.

sizes: {input feature: how many columns its encoder gives}, in the order of the columns."""

TOKENIZER: Role[Any] = Role("tabular.tokenizers", MEMBER_HOOK, "tokenizer", object)
"""Context: none. (texts) → their tokens.

texts: a pyarrow.LargeStringArray without nulls, lowered already if the config says so. Tokens: a
list array of strings with a row for each text, whose empty strings count for nothing; or
`tokenizers.Tokens`, as the built-in ones give. Row by row: the tokens of a text depend on that
text alone. Texts and sets have one and the same tokenizers."""

METRIC: Role[Any] = Role("tabular.metrics", MEMBER_HOOK, "metric", MetricMembers)
"""Context: metadata, feature, loss. A fresh torchmetrics.Metric of (output, target), as
`FeatureNetwork.metrics` gives.

feature: options of the output feature. loss: (output, target) → its loss of each row, [B]."""
