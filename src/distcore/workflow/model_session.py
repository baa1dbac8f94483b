"""What `predict` and `evaluate` set up before their work and take down after it: model, backend,
who listens."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distcore.workflow.backend_choice import choose_backend, make_backend
from distcore.workflow.limited_gpus import check_gpus, limited_gpus
from distcore.workflow.session import tell_started, under_way
from distcore_core.contracts import JSON, Backend
from distcore_core.errors import UserError
from distcore_core.progress import Progress
from distcore_core.registry.index import DEFAULTS
from distcore_core.registry.manager import Plugins
from distcore_data.artifact import Artifact, open_artifact
from distcore_data.stores import Credentials
from distcore_data.stores.run_sync import Mirror

log = logging.getLogger("distcore")


@dataclass
class ModelSession:
    """One command on a saved model under way.

    reason: why this backend. trust: whether the model may be of a class from outside the installed
    plugins, and have its extensions listen.
    directory: where results go. mirror: the bucket that they are copied to, or None.
    """

    command: str
    artifact: Artifact
    trust: bool
    backend: Backend
    backend_name: str
    reason: str
    progress: Progress
    directory: Path | None
    mirror: Mirror | None = None

    @property
    def plugins(self) -> Plugins:
        return self.artifact.plugins


@contextmanager
def open_model(
    command: str,
    path: str | Path,
    directory: Path,
    *,
    mirror: Mirror | None,
    credentials: Credentials | None,
    backend: str | Mapping[str, Any] | None,
    trust: bool,
    gpus: Any,
    listen: bool,
    view: str,
) -> Iterator[ModelSession]:
    """Open a model, choose the backend, let its extensions listen if it is trusted; close
    everything at the end.

    mirror: the bucket that what comes into the directory is copied to. credentials: of the bucket
        the model lies in.
    backend: a name, or {"type": name, option: value}; None: the one that is detected, else `local`.
    The one that the model was trained on is not asked for: a model must open where its cluster
    is not."""
    with limited_gpus(gpus):
        plugins = Plugins()
        name, reason, options = _chosen(backend, plugins)
        artifact = open_artifact(path, plugins=plugins, trust=trust, credentials=credentials)
        made = make_backend(plugins, name, options)
        session = ModelSession(
            command, artifact, trust, made, name, reason, Progress(), directory, mirror
        )
        if name != DEFAULTS["backends"]:
            log.info("Backend %s: %s.", name, reason)
        with under_way(session, _listeners(artifact, trust) if listen else [], view):
            check_gpus(gpus, made)
            tell_started(session, told_config(artifact.manifest))
            yield session


def _chosen(backend: str | Mapping[str, Any] | None, plugins: Plugins) -> tuple[str, str, JSON]:
    """(name, why, options) of the backend."""
    if backend is None or isinstance(backend, str):
        name, reason = choose_backend(backend, plugins)
        return name, reason, {}
    options = dict(backend)
    named = options.pop("type", None)
    if not isinstance(named, str):
        raise UserError(
            f"backend {backend!r} names no type. Give a name, or a mapping such as {{'type': "
            "'local'}."
        )
    return *choose_backend(named, plugins), options


def _listeners(artifact: Artifact, trust: bool) -> list[JSON]:
    """The extensions of the model's config, if the user trusts it: their options are paths that are
    written and addresses that are called. Those that are not installed are left out; a model
    must open where its logger is not."""
    found: list[JSON] = []
    for each in artifact.manifest.get("extensions", []):
        if not trust:
            log.warning(
                "Nothing is told to extension %r, which listened when the model was trained: a "
                "model does not decide what is run and written here. If it is yours, say so with "
                "--trust.",
                each["type"],
            )
        elif each["type"] in artifact.plugins.names("extensions"):
            found.append(each)
        else:
            log.warning(
                "Nothing is told to extension %r, which listened when the model was trained: it is "
                "not installed here.",
                each["type"],
            )
    return found


def told_config(manifest: JSON) -> JSON:
    """What a model knows of the config that it was trained with, in the words of a config file."""
    features: dict[str, list[JSON]] = {"input": [], "output": []}
    for each in manifest["features"]:
        features[each["role"]].append(
            {name: each[name] for name in ("name", "type", "column")} | each["options"]
        )
    model = dict(manifest["model"])
    return {
        "input_features": features["input"],
        "output_features": features["output"],
        "preprocessing": manifest["preprocessing"],
        "combiner": model.pop("combiner", None),
        "model": model,
        "random_seed": manifest["random_seed"],
    }
