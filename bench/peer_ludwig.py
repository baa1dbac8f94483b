"""Ludwig's `experiment` on the same config and data; run by a Python that has Ludwig, never by
ours.

    PYTHON bench/peer_ludwig.py CONFIG DATASET HOLDOUT SEED OUT_DIR [WORKERS CPUS]

WORKERS, CPUS: on its backend `ray` with so many workers of a CPU each, on a cluster of this machine
that is told to have so many CPUs; else on its backend `local`.
Ludwig imports torchvision, torchaudio and torchcodec whatever the features are. Their wheels for
CUDA cannot be loaded beside a torch for the CPU, so if that is so, empty modules stand in for them:
nothing here uses images or sound. It keeps what it preprocessed beside the dataset and takes it
from there the next time, so it gets the dataset under a name in a new folder.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

MEDIA = ("torchvision", "torchaudio", "torchcodec")


class Absent(type):
    """A class whose every attribute is another such class; a stand-in for whatever a stand-in
    module is asked for."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name, (), {})


class StandIn(types.ModuleType):
    """An empty module."""

    __version__ = "0"
    __path__: list[str] = []  # noqa: RUF012 - what makes it a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stand-ins for everything below these packages."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


def stand_in() -> tuple[str, ...]:
    """Put stand-ins in the place of the media packages, if one of them cannot be loaded; which
    ones."""
    marker = Path(sys.prefix) / "media_packages_load.json"
    if not marker.exists():  # looked at once: loading them would count as Ludwig's time
        import subprocess

        marker.write_text(json.dumps([name for name in MEDIA if subprocess.run(
            [sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode]))  # fmt: skip
    names = tuple(json.loads(marker.read_text()))
    if names:
        sys.meta_path.insert(0, Finder(names))
    return names


def on_ray(workers: int, cpus: int) -> dict[str, Any]:
    """Start a cluster; Ludwig's `backend` section for it."""
    import ray

    everywhere = {"worker_process_setup_hook": stand_in}
    ray.init(
        num_cpus=cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        runtime_env=everywhere,
    )
    trainer = {"use_gpu": False, "num_workers": workers, "resources_per_worker": {"CPU": 1}}
    return {"type": "ray", "processor": {"type": "dask"}, "trainer": trainer}


def main() -> None:
    config, dataset, holdout, seed, out, *cluster = sys.argv[1:]
    stand_in()
    started = time.perf_counter()
    from ludwig.api import LudwigModel

    imported = time.perf_counter()
    import yaml
    from ludwig.globals import LUDWIG_VERSION

    backend = on_ray(*map(int, cluster)) if cluster else "local"
    model = LudwigModel(yaml.safe_load(Path(config).read_text()), logging_level=30, backend=backend)
    with tempfile.TemporaryDirectory(prefix="ludwig-data-", dir=Path(dataset).parent) as fresh:
        data = os.path.join(fresh, Path(dataset).name)
        os.link(dataset, data)
        _, statistics, _, _ = model.experiment(
            dataset=data, random_seed=int(seed), output_directory=out
        )
        done = time.perf_counter()
    figures: dict[str, Any] = {"imports": imported - started, "seconds": done - imported}
    figures["version"] = LUDWIG_VERSION
    validation = (
        statistics.validation if hasattr(statistics, "validation") else statistics["validation"]
    )
    figures["validation_roc_auc"] = float(validation["target"]["roc_auc"][-1])
    if holdout != "-":
        found, _, _ = model.evaluate(dataset=holdout, skip_save_unprocessed_output=True)
        figures["holdout_roc_auc"] = float(found["target"]["roc_auc"])
    sys.stdout.flush()
    os.write(1, f"RESULT {json.dumps(figures)}\n".encode())


if __name__ == "__main__":
    main()
