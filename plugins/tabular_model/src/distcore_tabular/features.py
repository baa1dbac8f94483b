"""The features of this plugin by type; a type's module is imported when a feature of that type
is made."""

from __future__ import annotations

from importlib import import_module
from typing import Any

CLASSES = {
    "number": "number:NumberFeature",
    "binary": "binary:BinaryFeature",
    "category": "category:CategoryFeature",
    "text": "text:TextFeature",
    "set": "set:SetFeature",
    "date": "date:DateFeature",
}
"""Type → module:class; a class takes (name, role, options)."""


def make(name: str, column: str, role: str, options: Any, block: tuple[str, ...] = ()) -> Any:
    """The feature of type `name` for the column; None for a type that is not ours. role: "input" or
    "output".

    block: plugins that its encoder and loss must not be of."""
    if name not in CLASSES:
        return None
    module, kind = CLASSES[name].split(":")
    made = getattr(import_module(f"distcore_tabular.{module}"), kind)(column, role, options)
    made.block = block
    return made
