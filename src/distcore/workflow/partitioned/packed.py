"""What a task found about its piece of the rows, as bytes that travel and lie on disk: digested,
and without a pickle.

xxh3 (128 bits, hex) of all that follows, and a newline
a line of JSON: rows, rows left out, lengths of the two parts, and the evaluation with numbers in
place of arrays the predictions as an Arrow stream, their batches as the model gave them
the evaluation's arrays as safetensors
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xxhash

from distcore_core.contracts import JSON
from distcore_core.errors import DistcoreError
from distcore_data.seals import parse_json

if TYPE_CHECKING:
    import torch

    from distcore_torch.evaluation import EvaluationState

HEX = 32


@dataclass(frozen=True)
class Found:
    """What was found about a piece.

    rows: read. left_out: how many of them miss a value of a drop_row column; first: place of the
        first of these, or -1. unknown: inputs of whose values in the others the model knows none.
    batches: decoded predictions, in order. evaluation: None for a prediction.
    """

    rows: int
    left_out: int
    first: int
    unknown: Sequence[str]
    batches: Sequence[pa.RecordBatch]
    evaluation: EvaluationState | None = None


def packed(found: Found) -> bytes:
    """As bytes."""
    tensors: list[torch.Tensor] = []
    evaluation = None if found.evaluation is None else _apart(found.evaluation, tensors)
    predictions, arrays = _stream(found.batches), _tensor_bytes(tensors)
    header = {
        "rows": found.rows,
        "left_out": found.left_out,
        "first": found.first,
        "unknown": list(found.unknown),
        "predictions": len(predictions),
        "evaluation": evaluation,
    }
    body = b"".join([json.dumps(header).encode(), b"\n", predictions, arrays])
    return xxhash.xxh3_128_hexdigest(body).encode() + b"\n" + body


def unpacked(content: bytes) -> Found:
    """The other way round. Raises DistcoreError if these are not the bytes that `packed` gave."""
    body = memoryview(content)[HEX + 1 :]
    if not body or xxhash.xxh3_128_hexdigest(body).encode() != content[:HEX]:
        raise DistcoreError(
            "What a task found about a piece is damaged. Run the same command again."
        )
    end = content.index(b"\n", HEX + 1)
    header = parse_json(content[HEX + 1 : end], finite=False)
    middle = end + 1 + header["predictions"]
    batches = list(_batches(memoryview(content)[end + 1 : middle]))
    return Found(
        header["rows"],
        header["left_out"],
        header["first"],
        header["unknown"],
        batches,
        _evaluation(header["evaluation"], content[middle:]),
    )


def _stream(batches: Sequence[pa.RecordBatch]) -> bytes:
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _batches(stream: memoryview) -> Iterator[pa.RecordBatch]:
    if stream:
        yield from pa.ipc.open_stream(pa.py_buffer(stream))


# ------------------------------------------------------------------ evaluation


def _evaluation(written: JSON | None, arrays: bytes) -> EvaluationState | None:
    if written is None:
        return None
    from safetensors.torch import load

    from distcore_torch.evaluation import EvaluationState
    from distcore_torch.training.scores import OutputState, ScoresState

    tensors = load(arrays)
    rows, (scored, outputs), drawings = _together(
        written, [tensors[str(number)] for number in range(len(tensors))]
    )
    state = ScoresState(scored, [OutputState(*each) for each in outputs])
    return EvaluationState(rows, state, drawings)


def _tensor_bytes(tensors: Sequence[torch.Tensor]) -> bytes:
    from distcore_torch.training.tensorfile import tensor_writer

    file = io.BytesIO()
    tensor_writer({str(number): tensor for number, tensor in enumerate(tensors)})(file)
    return file.getvalue()


def _apart(value: Any, tensors: list[torch.Tensor]) -> Any:
    """JSON in which {"tensor": n} or {"array": n} stands for what was appended to the tensors."""
    import torch

    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, np.ndarray):
        tensors.append(torch.from_numpy(np.ascontiguousarray(value)))
        return {"array": len(tensors) - 1}
    if isinstance(value, Mapping):
        return {"map": {name: _apart(each, tensors) for name, each in value.items()}}
    if isinstance(value, list | tuple):
        return [_apart(each, tensors) for each in value]
    return value


def _together(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_together(each, tensors) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "map":
        return {name: _together(each, tensors) for name, each in inner.items()}
    return tensors[inner] if kind == "tensor" else tensors[inner].numpy()
