"""summary.json: what a run came to, for the report and for notebooks: headline, scores, columns,
what inputs matter."""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON
from distcore_data.threads import processors, run_all

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from distcore.workflow.session import Session
    from distcore_core.contracts import TrainResult
    from distcore_data.artifact import Artifact
    from distcore_data.cache import CacheReader

NAME = "summary.json"

LOOKED_AT = 200_000
"""Rows of a split that baseline and drift are computed of: the first ones."""

IMPORTANCE_ROWS, IMPORTANCE_INPUTS = 1000, 40
"""Test rows and inputs that importance is measured with; each input costs a pass over the rows."""

WORST = 10
LARGEST_YAML = 65_536

log = logging.getLogger("distcore")


def summary_of(session: Session, trained: TrainResult) -> JSON:
    """What is known when training has ended: the run, its best round, scores, time and memory,
    the user's YAML."""
    scores = _training_scores(trained)
    stages = [each._asdict() for each in session.progress.stages_finished]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    rounds = session.progress.rounds
    return {
        "command": session.command,
        "backend": session.backend_name,
        "best": {**trained.best, "evaluation": rounds[-1].best_evaluation if rounds else None},
        "evaluations": rounds[-1].evaluation if rounds else None,
        "epochs": trained.epochs,
        "scores": scores,
        "stages": stages,
        "peak_memory_bytes": peak,
        "yaml": users_yaml(session),
    }


def of_test_split(
    session: Session, summary: JSON, reader: CacheReader, artifact: Artifact, test: JSON
) -> JSON:
    """The summary with what the test split shows. What cannot be found out is left out, and
    told."""
    for output, metrics in test.items():
        for metric, value in metrics.items():
            if value is None or isinstance(value, int | float):
                summary["scores"].setdefault(output, {}).setdefault(metric, {})["test"] = value
    for name, part in (
        ("headline", _headline),
        ("columns", _columns),
        ("importance", _importance),
        ("worst", _worst),
    ):
        try:
            found = part(session, summary, reader, artifact)
        except Exception as error:  # noqa: BLE001 - a page less must not cost a trained model
            log.warning("The summary lacks its part %r: %s: %s", name, type(error).__name__, error)
            continue
        if found is not None:
            summary[name] = found
    return summary


def users_yaml(session: Session) -> str | None:
    """The config as the user wrote it; None if it is no file, or holds credentials."""
    source = Path(session.config.source)
    if (
        session.config.backend.cache_credentials
        or not source.is_file()
        or source.stat().st_size > LARGEST_YAML
    ):
        return None
    text = source.read_text(encoding="utf-8", errors="replace")
    if "credentials" in text:
        return None
    places = session.config.source_map.values()
    settings = sorted(
        {
            str(place.path[0])
            for place in places
            if place.path and str(place.path[0]).startswith("--set ")
        }
    )
    return text + "".join(f"\n# changed by {each}=…" for each in settings)


def _training_scores(trained: TrainResult) -> JSON:
    """{output feature: {metric: {split: value in the best round}}}."""
    scores: JSON = {}
    best = trained.best
    for split, outputs in trained.statistics.items():
        for output, metrics in outputs.items():
            for metric, values in metrics.items():
                place = _best_place(trained.statistics, best, len(values))
                if place is not None and isinstance(values[place], int | float):
                    scores.setdefault(output, {}).setdefault(metric, {})[split] = values[place]
    return scores


def _best_place(statistics: JSON, best: JSON, count: int) -> int | None:
    """The index of the best round among `count`."""
    if not count:
        return None
    for split in ("validation", "training"):
        values = statistics.get(split, {}).get(best.get("feature"), {}).get(best.get("metric"), [])
        if best.get("value") in values and len(values) == count:
            return int(values.index(best["value"]))
    return count - 1


# ------------------------------------------------------------------ of the test split


def _headline(
    session: Session, summary: JSON, reader: CacheReader, artifact: Artifact
) -> JSON | None:
    """The main metric beside that of a model that knows the target's distribution alone."""
    from distcore_torch.training.scores import Scores

    feature, metric = _main(summary, artifact)
    scores = Scores(artifact.features, split="test")
    constants = {each.name: _constant(reader, each, artifact) for each in artifact.features.outputs}
    for batch, _ in _rows(reader, artifact, LOOKED_AT, forward=False):
        scores.update(
            {name: _repeated(value, batch.rows) for name, value in constants.items()}, batch
        )
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


def _higher(artifact: Artifact, feature: str, metric: str) -> bool:
    if metric == "loss":
        return False
    found = next(each for each in artifact.features.outputs if each.name == feature)
    return bool(
        found.network().metrics(artifact.features.metadata[feature])[metric].higher_is_better
    )


def _constant(reader: CacheReader, feature: Any, artifact: Artifact) -> np.ndarray:
    """The output that is best for every row alike: shares of the classes, or the mean of the
    encoded values."""
    import numpy as np

    shape = feature.output_shape(artifact.features.metadata[feature.name])
    targets = np.concatenate(
        [
            np.asarray(batch[feature.name])
            for batch, _ in _rows(reader, artifact, LOOKED_AT, "train", forward=False)
        ]
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


def _rows(
    reader: CacheReader, artifact: Artifact, rows: int, split: Any = "test", forward: bool = True
) -> Any:
    """(batch, outputs) of the first rows of a split; outputs are {} unless `forward`."""
    from distcore_torch import prediction
    from distcore_torch.packing import pack

    layout = prediction.layout_of(artifact.features, ("input", "output"))
    names = [*layout.slots, *layout.ragged]
    last = min(rows, reader.rows(split))
    for start in range(0, last, prediction.READ_ROWS):
        encoded = reader.read(split, start, min(start + prediction.READ_ROWS, last), names)
        if forward:
            yield from prediction.forward(artifact, encoded, layout, start, prediction.ROWS)
        else:
            yield pack(encoded, layout, start), {}


def _importance(
    session: Session, summary: JSON, reader: CacheReader, artifact: Artifact
) -> JSON | None:
    """How much worse the main metric is if an input's values are dealt out anew among the rows."""
    import numpy as np

    from distcore_data.arrow import from_numpy
    from distcore_torch import prediction
    from distcore_torch.training.scores import Scores

    rows = min(IMPORTANCE_ROWS, reader.rows("test"))
    inputs = [each.name for each in artifact.features.inputs]
    if rows < 2 or len(inputs) > IMPORTANCE_INPUTS:
        return None
    feature, metric = _main(summary, artifact)
    layout = prediction.layout_of(artifact.features, ("input", "output"))
    encoded = reader.read("test", 0, rows, [*layout.slots, *layout.ragged])

    scores = Scores(artifact.features, split="test")

    def score(columns: pa.RecordBatch) -> float | None:
        scores.reset()
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


def _worst(session: Session, summary: JSON, reader: CacheReader, artifact: Artifact) -> JSON | None:
    """The test rows that the model is furthest from, of each output feature."""
    import numpy as np

    found: JSON = {}
    numbers = reader.row_numbers("test")
    for feature in artifact.features.outputs:
        metadata = artifact.features.metadata[feature.name]
        labels, network = feature.labels(metadata), feature.network()
        rows: list[JSON] = []
        start = 0
        for batch, outputs in _rows(reader, artifact, LOOKED_AT):
            target, output = np.asarray(batch[feature.name]), np.asarray(outputs[feature.name])
            if target.ndim != 1 or output.ndim > 2:
                break
            told = (
                network.predictions(output, metadata)
                .column(f"{feature.name}_predictions")
                .to_pylist()
            )
            if labels is None:
                if not (told and isinstance(told[0], int | float)):
                    break
                truth = (
                    network.predictions(target.astype(output.dtype), metadata).column(0).to_pylist()
                )
                errors = np.abs(np.asarray(told, float) - np.asarray(truth, float))
            else:
                codes = np.maximum(target.astype(np.int64), 0)
                right = (
                    output[np.arange(len(output)), codes]
                    if output.ndim == 2
                    else np.where(codes == 1, output, 1 - output)
                )
                errors = np.where(target >= 0, 1.0 - right, 0.0)
                truth = [str(labels[code]) for code in codes]
            for place in np.argsort(-errors, kind="stable")[:WORST]:
                row = {
                    "row": int(numbers[start + place]),
                    "truth": truth[place],
                    "predicted": told[place],
                }
                rows.append({**row, "error": float(errors[place])})
            start += batch.rows
        if rows:
            found[feature.name] = sorted(rows, key=lambda each: -each["error"])[:WORST]
    return found or None


def _columns(
    session: Session, summary: JSON, reader: CacheReader, artifact: Artifact
) -> list[JSON]:
    """Each column: its type, the share of missing or unknown values, and how far test rows lie
    from training rows."""
    import numpy as np

    features = artifact.features
    types = {each["name"]: each["type"] for each in artifact.manifest["features"]}
    held: dict[str, dict[str, list[np.ndarray]]] = {}
    for split in ("train", "validation", "test"):
        for batch, _ in _rows(reader, artifact, LOOKED_AT, split, forward=False):
            for each in (*features.inputs, *features.outputs):
                if features.columns[each.name].width == 1:
                    held.setdefault(each.name, {}).setdefault(split, []).append(
                        np.asarray(batch[each.name]).reshape(-1)
                    )
    columns = [*features.inputs, *features.outputs]
    found = run_all(lambda each: drifts(held.get(each.name, {})), columns, processors())
    return [
        {
            "name": each.name,
            "role": "output" if each in tuple(features.outputs) else "input",
            "type": types[each.name],
            "missing": _missing(features.metadata[each.name]),
            "drift": drift,
        }
        for each, drift in zip(columns, found, strict=True)
    ]


def _missing(metadata: JSON) -> float | None:
    """The share of values that are missing, or unknown to the vocabulary."""
    counts = metadata.get("counts")
    if isinstance(counts, Sequence) and counts and str(metadata.get("idx2str", [""])[0]) == "<UNK>":
        return float(counts[0]) / max(1, sum(counts))
    if isinstance(metadata.get("count"), int) and isinstance(metadata.get("missing"), int):
        return float(metadata["missing"]) / max(1, metadata["missing"] + metadata["count"])
    return None


def drifts(batches: Mapping[str, Sequence[np.ndarray]]) -> dict[str, float]:
    """Of each split but `train`, how far its values lie from those of `train`, if there are any.

    Args:
        batches: Of each split: numbers or codes, [n] each.

    Returns:
        {split: from 0, the same, to 1, nothing in common}.
    """
    import numpy as np

    parts = {split: np.concatenate(values) for split, values in batches.items()}
    train = parts.pop("train", None)
    if train is None:
        return {}
    apart = _codes_apart
    if train.dtype.kind == "f":
        train.sort()
        apart = _numbers_apart
    return {split: apart(train, each) for split, each in parts.items()}


def _codes_apart(train: np.ndarray, other: np.ndarray) -> float:
    """The half of the sum of differences of shares; 0: the same, 1: nothing in common."""
    import numpy as np

    size = int(max(train.max(initial=0), other.max(initial=0))) + 1
    shares = [
        np.bincount(np.maximum(each, 0), minlength=size) / max(1, len(each))
        for each in (train, other)
    ]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _numbers_apart(train: np.ndarray, other: np.ndarray) -> float:
    """The largest difference of two distributions' shares below a value (Kolmogorov–Smirnov); 0:
    the same, 1: nothing in common. train: sorted."""
    import numpy as np

    if not len(other):
        return float(len(train) > 0)
    # Between two values of `other` its share stays and that of `train` rises: they lie furthest
    # apart at one of these values or right below it.
    values, counts = np.unique(other, return_counts=True)
    below, up_to = (
        np.searchsorted(train, values, side=side) / max(1, len(train)) for side in ("left", "right")
    )
    share = counts.cumsum() / len(other)
    before = np.concatenate([[0.0], share[:-1]])
    return float(np.maximum(np.abs(below - before), np.abs(up_to - share)).max())
