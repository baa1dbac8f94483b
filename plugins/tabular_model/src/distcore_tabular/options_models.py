"""The table of every options model of this plugin."""

from __future__ import annotations

from pydantic import BaseModel

from distcore_tabular import options, options_network, options_text

MODELS: dict[tuple[str, str, str], type[BaseModel]] = {
    **options.MODELS,
    **options_network.MODELS,
    **options_text.MODELS,
}


def model_of(kind: str, name: str, role: str = "") -> type[BaseModel] | None:
    """The options model of what this plugin offers: kind "features" (role "input" or "output") or "models"."""
    return MODELS.get((kind, name, role))
