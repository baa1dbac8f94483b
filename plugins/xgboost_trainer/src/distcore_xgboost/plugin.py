"""What distcore-xgboost offers: the trainer `xgboost`. XGBoost is imported when a run asks for
it."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import UserError, hookimpl

DISTCORE_API = (1, 0)
EITHER = (
    "pip install xgboost-cpu (6 MB), or xgboost for NVIDIA GPUs; never both, they overwrite each "
    "other"
)


@hookimpl
def distcore_make_trainer(name: str, options: Any) -> Any:
    """The trainer, if it is the one that is wanted."""
    if name != "xgboost":
        return None
    try:
        from distcore_xgboost.trainer import XGBoostTrainer
    except ModuleNotFoundError as error:
        if error.name != "xgboost":
            raise
        raise UserError(
            f"The trainer xgboost needs XGBoost, which is not here: {EITHER}."
        ) from None
    return XGBoostTrainer(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The model that validates the trainer's options."""
    if (kind, name) != ("trainers", "xgboost"):
        return None
    from distcore_xgboost.options import XGBoostOptions

    return XGBoostOptions


@hookimpl
def distcore_diagnose() -> list[tuple[str, bool, str]]:
    """Which XGBoost is there, for `distcore doctor`."""
    from importlib import metadata

    found = []
    for name in ("xgboost-cpu", "xgboost"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    if len(found) == 1:
        return [("xgboost library", True, found[0])]
    if found:
        why = f"{' and '.join(found)} overwrite each other: uninstall both, then install one"
        return [("xgboost library", False, why)]
    return [("xgboost library", False, f"not installed: {EITHER}")]
