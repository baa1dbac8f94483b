"""A plugin of the tests: the packed loader, which writes down the rows it gives, and takes a
node away when told."""

import json
import os
import signal
import time
from pathlib import Path

from pydantic import BaseModel

from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


class Options(BaseModel):
    """folder: for a file of each process. lose: [epoch, step] before which the last rank's node
    is killed, once."""

    folder: str
    lose: tuple[int, int] | None = None


def install(folder):
    """Lay down the metadata of a distribution that offers the loader `recorded`; to be put on
    sys.path."""
    from distcore_testing.installed import lay_metadata

    lay_metadata(folder, "recorded", {"loaders": {"recorded": "recorded"}})


@hookimpl
def distcore_make_loader(name, options, request):
    if name != "recorded":
        return None
    from distcore_local.loader import PackedLoader
    from distcore_local.options import LoaderOptions

    made = PackedLoader(request, LoaderOptions())
    return (
        Recorded(made, options, request.rank)
        if request.split == "train" and request.shuffle
        else made
    )


@hookimpl
def distcore_options_model(kind, name):
    return Options if (kind, name) == ("loaders", "recorded") else None


class Recorded:
    """Rows are known by their z, which is another number in each."""

    def __init__(self, inner, options, rank):
        self.inner, self.options, self.rank = inner, options, rank

    def batches(self, epoch, start=0):
        path = Path(self.options.folder, f"rows-{os.getpid()}.jsonl")
        for step, batch in enumerate(self.inner.batches(epoch, start), start):
            if self.options.lose == (epoch, step) and self.rank.index == self.rank.world - 1:
                self._lose_node()
            line = {
                "epoch": epoch,
                "step": step,
                "rank": self.rank.index,
                "world": self.rank.world,
                "attempt": os.environ.get("MASTER_PORT", ""),
                "time": time.time_ns(),
                "rows": batch["z"].tolist(),
            }
            with open(path, "a") as file:
                file.write(json.dumps(line) + "\n")
            yield batch

    def _lose_node(self):
        try:
            os.close(os.open(Path(self.options.folder, "lost"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(int(os.environ["RAY_RAYLET_PID"]), signal.SIGKILL)
        time.sleep(600)

    def close(self):
        self.inner.close()


def read(folder):
    """What was written down, in the order of time."""
    lines = [
        json.loads(line)
        for path in folder.glob("rows-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted(lines, key=lambda line: line["time"])


def used(folder):
    """{(epoch, step): sorted rows over all ranks} of the attempt that made the step last, and
    its number of ranks."""
    found = {}
    for line in read(folder):
        attempt, ranks = found.get((line["epoch"], line["step"]), (None, {}))
        if attempt != line["attempt"]:
            ranks = {}
        ranks[line["rank"]] = line["rows"]
        found[line["epoch"], line["step"]] = (line["attempt"], ranks)
    return {
        key: sorted(row for rows in ranks.values() for row in rows)
        for key, (_, ranks) in found.items()
    }
