"""What distcore-local offers: this machine as backend and processor, the packed loader, two
trainers."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_backend(name: str, options: Any) -> Any:
    if name != "local":
        return None
    from distcore_local.backend import LocalBackend

    return LocalBackend(options)


@hookimpl
def distcore_make_processor(name: str, options: Any) -> Any:
    if name != "local":
        return None
    from distcore_local.processor import LocalProcessor

    return LocalProcessor(options)


@hookimpl
def distcore_make_loader(name: str, options: Any, request: Any) -> Any:
    if name != "packed":
        return None
    from distcore_local.loader import PackedLoader

    return PackedLoader(request, options)


@hookimpl
def distcore_make_trainer(name: str, options: Any) -> Any:
    if name not in ("local", "data_parallel", "ddp"):
        return None
    from distcore_local import trainers

    return trainers.make(name, options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    from distcore_local import options

    return options.MODELS.get((kind, name))


@hookimpl
def distcore_diagnose() -> list[tuple[str, bool, str]]:
    from distcore_local.diagnose import checks

    return checks()
