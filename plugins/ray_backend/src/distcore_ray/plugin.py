"""What distcore-ray offers: a Ray cluster as backend, and Ray Tune as executor of a search."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import Detection, hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_backend(name: str, options: Any) -> Any:
    if name != "ray":
        return None
    from distcore_ray.backend import RayBackend

    return RayBackend(options)


@hookimpl
def distcore_make_executor(name: str, options: Any) -> Any:
    if name != "ray":
        return None
    from distcore_ray.tune import TuneExecutor

    return TuneExecutor(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    if (kind, name) == ("executors", "ray"):
        from distcore_ray.tune_options import TuneOptions

        return TuneOptions
    from distcore_ray import options

    return options.MODELS.get((kind, name))


@hookimpl
def distcore_detect() -> Detection | None:
    from distcore_ray.address import detect

    found = detect()
    return (
        None
        if found is None
        else Detection(backend="ray", priority=found.priority, reason=found.reason)
    )


@hookimpl
def distcore_diagnose() -> list[tuple[str, bool, str]]:
    from distcore_ray.diagnose import checks

    return checks()
