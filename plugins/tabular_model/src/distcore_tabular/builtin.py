"""The plugin's own encoders, decoders, losses, metrics, combiners and tokenizers, by entry
point."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any


def make(kind: str, name: str, options: Any, context: Mapping[str, Any]) -> Any:
    """The member of a role, or None for a name that is not ours."""
    feature, _, short = name.partition(".")
    if kind == "tabular.encoders":
        return _encoder(feature, short, options, context["metadata"])
    if kind == "tabular.decoders":
        return _decoder(feature, options, context["metadata"], context["input_size"])
    if kind == "tabular.losses":
        return _loss(feature, options)
    if kind == "tabular.metrics":
        return _metric(feature, short, **context)
    if kind == "tabular.tokenizers":
        from distcore_tabular.tokenizers import TOKENIZERS

        return TOKENIZERS.get(name)
    if kind == "tabular.combiners" and name == "concat":
        from distcore_tabular.layers import fc_stack

        return fc_stack(context["input_size"], options, options.num_fc_layers, options.residual)
    return None


def _encoder(feature: str, name: str, options: Any, metadata: Mapping[str, Any]) -> Any:
    from distcore_tabular import date_encoders, encoders, text_encoders

    if feature == "text":
        kinds = {"embed": text_encoders.embed, "parallel_cnn": text_encoders.parallel_cnn}
        length, left = metadata["max_sequence_length"], metadata["padding"] == "left"
        return kinds[name](len(metadata["idx2str"]), options, length, left)
    if feature == "set":
        return text_encoders.set_embed(len(metadata["idx2str"]), options)
    if feature == "date":
        dated = {"embed": date_encoders.DateEmbed, "wave": date_encoders.DateWave}
        return dated[name](dict(metadata), options)
    if name == "passthrough":
        return encoders.Passthrough()
    if name == "ple":
        from distcore_tabular.number import edges

        return encoders.Ple(edges(dict(metadata)), options)
    if feature != "category":
        return encoders.Dense(options)
    if name == "onehot":
        return encoders.OneHot(metadata["vocab_size"])
    if name == "sparse":
        return encoders.category_sparse(metadata["vocab_size"], options)
    encoder = encoders.category_embed(metadata["vocab_size"], options)
    if metadata["counts"][0] == 0:  # a vector that no row trains: the mean of how all start
        encoder.state_dict()["weight"][0].zero_()
    return encoder


def _decoder(feature: str, options: Any, metadata: Mapping[str, Any], input_size: int) -> Any:
    from distcore_tabular import decoders

    if feature == "category":
        return decoders.classifier(input_size, metadata["vocab_size"], options)
    return decoders.regressor(input_size, options)


def _loss(feature: str, options: Any) -> Any:
    from distcore_tabular import losses

    rows = {"number": losses.number, "binary": losses.binary}.get(feature)
    return partial(_of_rows, rows, options) if rows is not None else losses.CategoryLoss(options)


def _of_rows(rows: Any, options: Any, logits: Any, target: Any, metadata: Any) -> Any:
    return rows(logits, target, options, metadata)


def _metric(kind: str, name: str, metadata: Mapping[str, Any], feature: Any, loss: Any) -> Any:
    from distcore_tabular import losses, metrics

    if kind == "number":
        spread = metadata["mean"], metadata["std"]
        return metrics.number(loss, losses.is_root(feature.loss), *spread)[name]()
    if kind == "binary":
        return metrics.binary(feature.threshold, loss)[name]()
    return metrics.category(metadata["vocab_size"], feature.top_k, loss)[name]()
