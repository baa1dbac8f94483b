"""The loader `recorded`: the packed loader, noting which rows each training batch has; its folder
on PYTHONPATH is all the installation it needs. While the file `slow` is in the folder, batches are
handed over slowly, so that a test can change the launcher's hosts meanwhile.

Lines of `<folder>/<process>.jsonl`: when, epoch, step in it, rank, world, and the column `z`, which
names the row.
"""

import json
import os
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from distcore_core.contracts import LOADER
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    folder: str


@hookimpl
def distcore_options_model(kind, name):
    return Options if (kind, name) == ("loaders", "recorded") else None


@hookimpl
def distcore_make_loader(name, options, request):
    if name != "recorded":
        return None
    from distcore_core.registry.manager import Plugins

    inner = Plugins().make(LOADER, "packed", {}, request=request)
    return Recorded(inner, Path(options.folder), request.rank) if request.shuffle else inner


class Recorded:
    def __init__(self, inner, folder, rank):
        self.inner, self.folder, self.rank = inner, folder, rank
        self.file = open(folder / f"{os.getpid()}.jsonl", "a")  # noqa: SIM115 - closed with the loader

    @property
    def steps(self):
        return self.inner.steps

    def batches(self, epoch, start=0):
        for step, batch in enumerate(self.inner.batches(epoch, start), start):
            if (self.folder / "slow").exists():
                time.sleep(0.25)
            said = [
                time.monotonic_ns(),
                epoch,
                step,
                self.rank.index,
                self.rank.world,
                batch["z"].tolist(),
            ]
            self.file.write(json.dumps(said) + "\n")
            self.file.flush()
            yield batch

    def close(self):
        self.file.close()
        self.inner.close()
