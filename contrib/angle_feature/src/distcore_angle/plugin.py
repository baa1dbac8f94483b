"""What distcore-angle offers: the feature type `angle`. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)
DATA_VERSION = 1


@hookimpl
def distcore_make_feature(name: str, column: str, options: Any) -> Any:
    """The feature of a column, if it is of this type."""
    if name != "angle":
        return None
    from distcore_angle.feature import Angle

    return Angle(column, options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """What the config may say of it."""
    if (kind, name) != ("features", "angle"):
        return None
    from distcore_angle.feature import AngleOptions

    return AngleOptions
