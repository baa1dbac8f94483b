"""A tiny table for tests, made from a seed, and a config for it: inputs of each type, targets
that depend on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def table(rows: int = 600, seed: int = 0) -> pa.Table:
    """Inputs x0, x1 (float64, 5 % missing), colour (category), words (text), tags (set); targets y
    (boolean), k (one of three classes), z (number, another in each row)."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 2))
    colour = random.choice(["red", "green", "blue"], rows, p=[0.5, 0.3, 0.2])
    signal = x[:, 0] - 0.5 * x[:, 1] + (colour == "red")
    vocabulary = np.array(["sun", "moon", "star", "sky", "sea"])
    words = [" ".join(vocabulary[random.integers(0, 5, 1 + each % 6)]) for each in range(rows)]
    tags = [
        " ".join(sorted(set(vocabulary[random.integers(0, 5, each % 3)]))) for each in range(rows)
    ]
    holes = random.random((rows, 2)) < 0.05
    return pa.table(
        {
            "x0": pa.array(x[:, 0], mask=holes[:, 0]),
            "x1": pa.array(x[:, 1], mask=holes[:, 1]),
            "colour": colour,
            "words": words,
            "tags": tags,
            "y": signal + random.normal(size=rows) > 0,
            "k": np.array(["low", "mid", "high"])[np.digitize(signal, [-0.5, 0.8])],
            "z": 3.0 * signal + 1.0,
        }
    )


def config(cache_dir: str, **changes: Any) -> dict[str, Any]:
    """A config for `table`, with its cache in `cache_dir`; `changes` replace whole sections."""
    return {
        "input_features": [
            {"name": "x0", "type": "number", "preprocessing": {"normalization": "zscore"}},
            {
                "name": "x1",
                "type": "number",
                "preprocessing": {"missing_value_strategy": "fill_with_mean"},
            },
            {
                "name": "colour",
                "type": "category",
                "encoder": {"type": "dense", "embedding_size": 4},
            },
        ],
        "output_features": [{"name": "y", "type": "binary"}],
        "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 16},
        "trainer": {"epochs": 2, "batch_size": 64},
        "backend": {"type": "local", "cache_dir": cache_dir},
    } | changes
