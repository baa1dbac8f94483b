"""Tensors in one safetensors file: written as a stream through whatever file hashes it, read
without a pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import BinaryIO

import torch

from distcore_torch.training.raw import raw_bytes

DTYPES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The format's names of torch's types (https://github.com/huggingface/safetensors)."""


def tensor_writer(
    tensors: Mapping[str, torch.Tensor], going_on: Callable[[], None] = lambda: None
) -> Callable[[BinaryIO], None]:
    """A function that writes the tensors to a file, for `atomic.write_new_file` and
    `artifact.write_artifact`.

    Equal tensors give equal bytes; one tensor at a time is in memory a second time. Raises
    TypeError for a type of tensor that the format does not know, and what `going_on` raises, which
    is called before each tensor."""

    def write(file: BinaryIO) -> None:
        # Wide types first keep every tensor aligned, as the format's own writer does.
        names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
        header, offset = {}, 0
        for name in names:
            tensor = tensors[name]
            if tensor.dtype not in DTYPES:
                raise TypeError(f"{name} is {tensor.dtype}, which cannot be saved")
            end = offset + tensor.numel() * tensor.element_size()
            header[name] = {
                "dtype": DTYPES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [offset, end],
            }
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in names:
            going_on()
            file.write(raw_bytes(tensors[name].cpu()).numpy().data)

    return write


def read_tensors(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """All tensors of a file, on the CPU. Raises `safetensors.SafetensorError` or OSError if it
    cannot be read."""
    from safetensors.torch import load, load_file

    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:  # a name that is not UTF-8, which the library cannot open
        with open(path, "rb") as file:
            return load(file.read())
    return load_file(path)
