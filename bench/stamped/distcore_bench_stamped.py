"""The loader `stamped`: the packed loader, noting when it hands each training batch over; a plugin
as third parties write.

Its folder on PYTHONPATH is all the installation it needs: the metadata beside it names its entry
point. Stamps (seconds since 1970) are written as JSON to `<path>.<rank>` when the loader is closed.
`settle` names the batches before whose hand-over a GPU is waited for; with `repeat` so many batches
are made first and handed over again and again, so that nothing is loaded.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from distcore_core.contracts import LOADER
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    from pydantic import BaseModel, ConfigDict

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")
        path: str
        packed: dict[str, Any] = {}
        settle: tuple[int, ...] = ()
        repeat: int = 0

    return Options if (kind, name) == ("loaders", "stamped") else None


@hookimpl
def distcore_make_loader(name: str, options: Any, request: Any) -> Any:
    if name != "stamped":
        return None
    from distcore_core.registry.manager import Plugins

    inner = Plugins().make(LOADER, "packed", options.packed, request=request)
    if not request.shuffle:
        return inner
    return Stamped(inner, f"{options.path}.{request.rank.index}", options.settle, options.repeat)


class Stamped:
    """A `contracts.Loader` around another."""

    def __init__(self, inner: Any, path: str, settle: Sequence[int] = (), repeat: int = 0) -> None:
        self.inner, self.path, self.settle, self.repeat = inner, path, settle, repeat
        self.stamps: list[float] = []

    @property
    def steps(self) -> int:
        return self.inner.steps

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        batches = self.inner.batches(epoch, start)
        if self.repeat:
            kept = list(itertools.islice(batches, self.repeat))
            batches = itertools.islice(itertools.cycle(kept), self.steps - start)
        for batch in batches:
            if len(self.stamps) in self.settle:
                import torch

                torch.cuda.synchronize()
            self.stamps.append(time.time())
            yield batch

    def close(self) -> None:
        with open(self.path, "w") as file:
            json.dump(self.stamps, file)
        self.inner.close()
