"""One config, any engine, the same bits.

    import distcore

    outcome = distcore.experiment("config.yaml", dataset="data.csv")
    model = distcore.load(outcome.model)
    table = model.predict(frame)

The functions are those of `distcore.interface` and `distcore.search.run`; they are imported when
they are first used, so `import distcore` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distcore_core.lazy import on_first_use

if TYPE_CHECKING:
    from distcore.installed import __version__ as __version__
    from distcore.interface import evaluate, experiment, load, plan, predict, preprocess, train
    from distcore.search.outcome import SearchOutcome
    from distcore.search.run import hyperopt
    from distcore.workflow.difference import diff
    from distcore.workflow.outcome import Outcome
    from distcore.workflow.verify import verify

__all__ = [
    "Outcome",
    "SearchOutcome",
    "diff",
    "evaluate",
    "experiment",
    "hyperopt",
    "load",
    "plan",
    "predict",
    "preprocess",
    "train",
    "verify",
]


__getattr__ = on_first_use(
    __name__,
    {
        **dict.fromkeys(__all__, "interface"),
        "Outcome": "workflow.outcome",
        **dict.fromkeys(("SearchOutcome", "hyperopt"), "search.run"),
        "__version__": "installed",
        "diff": "workflow.difference",
        "verify": "workflow.verify",
    },
)


def __dir__() -> list[str]:
    return __all__
