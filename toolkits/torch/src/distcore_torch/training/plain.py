"""What ranks tell each other, as bytes that can only become plain data: whatever arrives, nothing
of it is ever run.

Eight bytes (length of the header, little-endian), a header of JSON, then the tensors' bytes one
after another. In the header None, booleans, numbers, text and lists are themselves; everything else
is an object with one key that says what.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from distcore_core import errors
from distcore_core.errors import DistcoreError, TrainingError
from distcore_data.travelling import plain_class
from distcore_torch.training.raw import raw_bytes

HEADER_BYTES = 1 << 30
"""The longest header: everything but tensors."""

MOST_BYTES = 1 << 36
"""The largest value of one rank."""

DTYPES = {
    str(each).removeprefix("torch."): each
    for each in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.complex64, torch.complex128),
    )
}


def packed(value: Any) -> torch.Tensor:
    """The value as bytes: uint8 [n]. Tensors travel without their device and their gradient.

    Args:
        value: None, booleans, numbers, text, paths, tensors, distcore's errors (class and text),
            and lists, tuples and mappings with keys of text or whole numbers of these.

    Raises:
        TrainingError: It holds something else; the message says of what class.
    """
    tensors: list[torch.Tensor] = []
    header = json.dumps(_node(value, tensors)).encode()
    parts = [
        torch.frombuffer(bytearray(len(header).to_bytes(8, "little") + header), dtype=torch.uint8)
    ]
    return torch.cat([*parts, *tensors])


def unpacked(data: torch.Tensor) -> Any:
    """The value of `packed`; named tuples come back as tuples, subclasses of mappings as dicts.

    Raises:
        TrainingError: The bytes are not what `packed` makes.
    """
    try:
        length = int.from_bytes(bytes(data[:8].tolist()), "little")
        if not 0 < length <= min(HEADER_BYTES, data.numel() - 8):
            raise ValueError("its header has an impossible length")
        reader = _Reader(data[8 + length :])
        value = reader.value(json.loads(data[8 : 8 + length].numpy().tobytes()))
        if reader.at != reader.data.numel():
            raise ValueError("bytes are left over")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TrainingError(
            f"What another rank sent cannot be read ({error}). All ranks must run the same version "
            "of distcore; if they do, something else writes to the ranks' connections."
        ) from error
    return value


def check_size(numel: int) -> int:
    """The length that another rank gives for its value. Raises TrainingError if it is
    impossible."""
    if not 8 < numel <= MOST_BYTES:
        raise TrainingError(
            f"Another rank wants to send {numel} bytes, which no value of a run has."
        )
    return numel


def _node(value: Any, tensors: list[torch.Tensor]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        tensors.append(raw_bytes(value.cpu()))
        return {"tensor": [str(value.dtype).removeprefix("torch."), list(value.shape)]}
    if isinstance(value, list | tuple):
        items = [_node(each, tensors) for each in value]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, Mapping) and all(isinstance(key, str | int) for key in value):
        return {"dict": [[key, _node(each, tensors)] for key, each in value.items()]}
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, DistcoreError):
        return {"error": [plain_class(value).__name__, str(value)]}
    raise TrainingError(
        f"A value of class {type(value).__module__}.{type(value).__qualname__} cannot travel "
        "between ranks. Metrics and strategies may share numbers, text, paths, tensors, and lists "
        "and mappings of these."
    )


class _Reader:
    """data: the tensors' bytes. at: how far they were read."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.at = data, 0

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.value(each) for each in node]
        if not isinstance(node, dict):
            return node
        ((kind, content),) = node.items()
        return getattr(self, f"_{kind}")(content) if kind in KINDS else self._unknown(kind)

    def _unknown(self, kind: str) -> Any:
        raise ValueError(f"there is no kind of value {kind!r:.40}")

    def _tuple(self, content: Any) -> tuple[Any, ...]:
        return tuple(self.value(each) for each in content)

    def _dict(self, content: Any) -> dict[Any, Any]:
        return {key: self.value(each) for key, each in content}

    def _path(self, content: Any) -> Path:
        return Path(content)

    def _error(self, content: Any) -> DistcoreError:
        name, text = content
        found = getattr(errors, name) if name.isidentifier() else None
        if not (isinstance(found, type) and issubclass(found, DistcoreError)):
            raise ValueError(f"there is no error {name!r:.40}")
        made: DistcoreError = found(str(text))
        return made

    def _tensor(self, content: Any) -> torch.Tensor:
        name, shape = content
        dtype = DTYPES[name]
        if any(not isinstance(each, int) or each < 0 for each in shape):
            raise ValueError(f"a tensor has the shape {shape!r:.40}")
        size = math.prod(shape) * dtype.itemsize
        if size > self.data.numel() - self.at:
            raise ValueError(f"a tensor has the shape {shape!r:.40} and less data")
        raw = self.data[self.at : self.at + size].clone()
        self.at += size
        return raw.view(dtype).reshape(shape)


KINDS = frozenset({"tuple", "dict", "path", "error", "tensor"})
