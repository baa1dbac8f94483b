"""Names, types and shapes of a model's tensors, read from the head of its file alone."""

from __future__ import annotations

import json
import math
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from distcore_core.plugin import UserError

LARGEST = 100 << 20
"""Most bytes that the format allows its head."""


class WeightsCommand:
    """`distcore weights MODEL`."""

    help = "list the tensors of a model"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The model."""
        parser.add_argument("model", metavar="MODEL", help="folder of a model or of its run")

    def run(self, arguments: Namespace) -> int:
        """A line for each tensor, and one for all. Raises UserError."""
        total = 0
        for name, tensor in sorted(tensors(found(Path(arguments.model))).items()):
            values = math.prod(tensor["shape"])
            print(f"{values:>12,}  {tensor['dtype']:<5} {name} {tensor['shape']}")
            total += values
        print(f"{total:>12,}  in all")
        return 0


def found(folder: Path) -> Path:
    """The file of weights. Raises UserError if there is none."""
    for path in (folder / "weights.safetensors", folder / "model" / "weights.safetensors"):
        if path.is_file():
            return path
    raise UserError(f"{folder} holds no weights.safetensors. Give the folder of a trained model.")


def tensors(path: Path) -> dict[str, dict[str, Any]]:
    """{name: {"dtype", "shape", …}}. Raises UserError for what is no file of safetensors."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        text = file.read(size) if size <= LARGEST else b""
    try:
        head = {**json.loads(text)}
        head.pop("__metadata__", None)
        if all(set(map(type, each["shape"])) <= {int} and each["dtype"] for each in head.values()):
            return head
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise UserError(f"{path} is no file of safetensors. Train the model again.")
