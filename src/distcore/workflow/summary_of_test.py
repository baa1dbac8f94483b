"""What the test split shows of a run, for summary.json: the headline, its columns, what inputs
matter; the worst rows are found by `worst_rows.py`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from distcore.workflow.drift import LOOKED_AT, drifts_of
from distcore.workflow.split_scores import read_stretches, stretches
from distcore.workflow.worst_rows import LACKS, Worst
from distcore_core.contracts import JSON, Batch, Split

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from distcore.workflow.session import Session
    from distcore_core.contracts import Feature
    from distcore_data.artifact import Artifact
    from distcore_data.cache import CacheReader
    from distcore_data.features import Features

IMPORTANCE_ROWS, IMPORTANCE_INPUTS = 1000, 40
"""Test rows and inputs that importance is measured with; each input costs a pass over the rows."""

REPEATED_VALUES = 1 << 22
"""Of an output that is the same for every row, that lie in memory at once: 200,000 rows of 20,000
classes would be 16 GB."""

log = logging.getLogger("distcore")


def of_test_split(
    session: Session,
    summary: JSON,
    reader: CacheReader,
    artifact: Artifact,
    test: JSON,
    worst: Worst,
) -> JSON:
    """The summary with what the test split shows. What cannot be found out is left out, and
    told. worst: that saw the whole split."""
    for output, metrics in test.items():
        for metric, value in metrics.items():
            if value is None or isinstance(value, int | float):
                summary["scores"].setdefault(output, {}).setdefault(metric, {})["test"] = value
    for name, part in (
        ("headline", _headline),
        ("columns", _columns),
        ("importance", _importance),
    ):
        try:
            found = part(session, summary, reader, artifact)
        except Exception as error:  # noqa: BLE001 - a page less must not cost a trained model
            log.warning(LACKS, name, type(error).__name__, error)
            continue
        if found is not None:
            summary[name] = found
    if rows := worst.told():
        summary["worst"] = rows
        of_data = reader.manifest["source"]["digest"]
        summary["given_sets"] = of_data.startswith("train:") and "+" in of_data
    return summary


def _headline(
    session: Session, summary: JSON, reader: CacheReader, artifact: Artifact
) -> JSON | None:
    """The main metric beside that of a model that knows the target's distribution alone."""
    from distcore_torch.training.scores import Scores

    feature, metric = _main(summary, artifact)
    alone = _alone(artifact, feature)
    scores = Scores(alone, split="test")
    constant = _constant(reader, alone)
    at_once = max(1, REPEATED_VALUES // constant.size)
    for batch in _targets(reader, alone, "test", at_once):
        scores.update({feature: _repeated(constant, batch.rows)}, batch)
    baseline = scores.compute().get(feature, {}).get(metric)
    value = summary["scores"].get(feature, {}).get(metric, {}).get("test")
    higher = _higher(artifact, feature, metric)
    better = (
        value is not None
        and baseline is not None
        and (value > baseline if higher else value < baseline)
    )
    return {
        "target": feature,
        "type": next(
            each["type"] for each in artifact.manifest["features"] if each["name"] == feature
        ),
        "metric": metric,
        "higher_is_better": higher,
        "value": value,
        "baseline": baseline,
        "better": better if value is not None and baseline is not None else None,
        "rows": {split: reader.rows(split) for split in ("train", "validation", "test")},
    }


def _main(summary: JSON, artifact: Artifact) -> tuple[str, str]:
    """(output feature, metric) that picked the best round; the combined loss is that of the
    first output."""
    best, outputs = summary["best"], [each.name for each in artifact.features.outputs]
    feature = best.get("feature")
    return (feature, best["metric"]) if feature in outputs else (outputs[0], "loss")


def _alone(artifact: Artifact, output: str) -> Features:
    """The model's features, of whose outputs this one alone is read and scored."""
    features = artifact.features
    return replace(features, outputs=[each for each in features.outputs if each.name == output])


def _higher(artifact: Artifact, feature: str, metric: str) -> bool:
    if metric == "loss":
        return False
    found = next(each for each in artifact.features.outputs if each.name == feature)
    return bool(
        found.network().metrics(artifact.features.metadata[feature])[metric].higher_is_better
    )


def _constant(reader: CacheReader, features: Features) -> np.ndarray:
    """The output that is best for every row alike: shares of the classes, or the mean of the
    encoded values.

    features: with one output."""
    import numpy as np

    (feature,) = features.outputs
    shape = feature.output_shape(features.metadata[feature.name])
    targets = np.concatenate(
        [np.asarray(batch[feature.name]) for batch in _targets(reader, features, "train")]
    )
    if shape and targets.ndim == 1:
        counts = np.bincount(targets[targets >= 0].astype(np.int64), minlength=shape[0])
        return (counts / max(1, counts.sum())).astype(np.float32)
    known = targets[targets >= 0] if targets.dtype.kind == "i" else targets[np.isfinite(targets)]
    return np.float32(known.mean() if targets.ndim == 1 else targets.mean(0)) * np.ones(
        shape, np.float32
    )


def _repeated(value: np.ndarray, rows: int) -> np.ndarray:
    import numpy as np

    return np.broadcast_to(value, (rows, *value.shape)).copy()


def _targets(
    reader: CacheReader, features: Features, split: Split, at_once: int = LOOKED_AT
) -> Iterator[Batch]:
    """LOOKED_AT rows of a split, without inputs. at_once: of a batch, at most."""
    from distcore_torch import prediction
    from distcore_torch.packing import pack

    layout = prediction.layout_of(features, ("output",))
    names = [*layout.slots, *layout.ragged]
    rows = min(at_once, prediction.READ_ROWS)
    for first, last in stretches(reader.rows(split), LOOKED_AT):
        for start in range(first, last, rows):
            stop = min(start + rows, last)
            yield pack(reader.read(split, start, stop, names), layout, start)


def _importance(
    session: Session, summary: JSON, reader: CacheReader, artifact: Artifact
) -> JSON | None:
    """How much worse the main metric is if an input's values are dealt out anew among the rows;
    of very many inputs only why that is left out."""
    import numpy as np

    from distcore_data.arrow import from_numpy
    from distcore_torch import prediction
    from distcore_torch.training.scores import Scores

    inputs = [each.name for each in artifact.features.inputs]
    if reader.rows("test") < 2:
        return None
    if len(inputs) > IMPORTANCE_INPUTS:
        why = f"each costs a pass over the rows, and more than {IMPORTANCE_INPUTS} are not measured"
        return {"inputs": [], "left_out": f"There are {len(inputs):,} inputs: {why}."}
    feature, metric = _main(summary, artifact)
    alone = _alone(artifact, feature)
    layout = prediction.layout_of(alone, ("input", "output"))
    names = [*layout.slots, *layout.ragged]
    encoded = read_stretches(reader, "test", IMPORTANCE_ROWS, names)
    rows = encoded.num_rows

    scores = Scores(alone, split="test")

    def score(columns: pa.RecordBatch) -> float | None:
        for batch, outputs in prediction.forward(artifact, columns, layout, 0, prediction.ROWS):
            scores.update(outputs, batch)
        return scores.compute().get(feature, {}).get(metric)

    whole, sign = score(encoded), 1.0 if _higher(artifact, feature, metric) else -1.0
    if whole is None:
        return None
    found = []
    order = from_numpy(np.random.default_rng(session.config.random_seed).permutation(rows))
    for name in inputs:
        place = encoded.schema.get_field_index(name)
        dealt = encoded.set_column(
            place, encoded.schema.field(place), encoded.column(place).take(order)
        )
        value = score(dealt)
        if value is not None:
            found.append({"input": name, "worse_by": sign * (whole - value)})
    return {
        "metric": metric,
        "rows": rows,
        "inputs": sorted(found, key=lambda each: -each["worse_by"]),
    }


def _columns(
    session: Session, summary: JSON, reader: CacheReader, artifact: Artifact
) -> list[JSON]:
    """Each column: its type, the share of missing or unknown values, and how far test rows lie
    from training rows."""
    features = artifact.features
    types = {each["name"]: each["type"] for each in artifact.manifest["features"]}
    columns = [*features.inputs, *features.outputs]
    held = {each.name: features.columns[each.name] for each in columns}
    drift = drifts_of(reader, [each.name for each in held.values() if each.width == 1])
    return [
        {
            "name": each.name,
            "role": "output" if each in tuple(features.outputs) else "input",
            "type": types[each.name],
            "missing": _missing(each, features.metadata[each.name]),
            "drift": drift.get(held[each.name].name, {}),
        }
        for each in columns
    ]


def _missing(feature: Feature, metadata: JSON) -> float | None:
    """The share of values that are missing, or unknown to the vocabulary; None if nobody knows, as
    where missing ones count as the class that they are filled with."""
    from distcore_data.encoding.missing import DROP, FILLS

    if feature.missing in FILLS:  # its statistics are of what was filled
        return None
    counts, missing = metadata.get("counts"), metadata.get("missing")
    if isinstance(counts, Sequence) and counts and str(metadata.get("idx2str", [""])[0]) == "<UNK>":
        if missing or feature.missing == DROP:
            return None
        return float(counts[0]) / max(1, sum(counts))
    if isinstance(missing, int) and isinstance(metadata.get("rows"), int):
        return missing / max(1, metadata["rows"])
    if isinstance(missing, int) and isinstance(metadata.get("count"), int):
        return missing / max(1, missing + metadata["count"])
    return None
