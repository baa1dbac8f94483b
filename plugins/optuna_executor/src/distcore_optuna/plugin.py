"""What distcore-optuna offers: the executor of one machine, as `local` and by Ludwig's name
`optuna`."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_executor(name: str, options: Any) -> Any:
    if name not in ("local", "optuna"):
        return None
    from distcore_optuna.executor import LocalExecutor

    return LocalExecutor(name, options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    from distcore_optuna import options

    return options.MODELS.get((kind, name))
