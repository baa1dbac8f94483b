"""One config, any engine, the same bits.

    import distcore

    outcome = distcore.experiment("config.yaml", dataset="data.csv")
    model = distcore.load(outcome.model)
    table = model.predict(frame)

The functions are those of `distcore.workflow.run` and `distcore.search.run`; they are imported when they are first
used, so `import distcore` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distcore.search.outcome import SearchOutcome
    from distcore.search.run import hyperopt
    from distcore.workflow.run import Outcome, evaluate, experiment, load, plan, predict, preprocess, train

__all__ = [
    "Outcome",
    "SearchOutcome",
    "evaluate",
    "experiment",
    "hyperopt",
    "load",
    "plan",
    "predict",
    "preprocess",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in ("SearchOutcome", "hyperopt"):
        from distcore.search import run as search

        return getattr(search, name)
    if name in __all__:
        from distcore.workflow import run

        return getattr(run, name)
    raise AttributeError(f"module 'distcore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
