"""The roles that plugins play, and the values that cross between them.

Each role is a Protocol of at most six methods; a plugin need not inherit from anything here. The
values are frozen dataclasses that pickle and compare by content, because they travel to other
processes; they are made by keyword, so that a field can be added anywhere without breaking anyone.
Nothing here imports an engine, torch or Arrow: the annotations are for readers and type checkers.

    backends.py   where work runs                        Backend
    caching.py    from a dataset to a cache              Source, Processor, CacheFormat
    features.py   one column's type                      Feature, FeatureNetwork
    loading.py    from a cache to batches                Loader, Batch
    results.py    where results go                       ResultsStore
    models.py     what is fitted                         Model, Predictor
    training.py   from batches to a model                Trainer, TrainJob, OpenJob
    search.py     the search for better parameters       Executor
    roles.py      each role as one object                Role, ROLES, Command
    values.py     what several of them speak of

Shapes: n is rows of a dataset, B rows of a batch, W 32-bit words of one encoded row.
"""

from __future__ import annotations

from distcore_core.contracts import (
    backends,
    caching,
    features,
    loading,
    models,
    results,
    roles,
    search,
    training,
    values,
)
from distcore_core.contracts.backends import *  # noqa: F403
from distcore_core.contracts.caching import *  # noqa: F403
from distcore_core.contracts.features import *  # noqa: F403
from distcore_core.contracts.loading import *  # noqa: F403
from distcore_core.contracts.models import *  # noqa: F403
from distcore_core.contracts.results import *  # noqa: F403
from distcore_core.contracts.roles import *  # noqa: F403
from distcore_core.contracts.search import *  # noqa: F403
from distcore_core.contracts.training import *  # noqa: F403
from distcore_core.contracts.values import *  # noqa: F403

__all__: list[str] = []
__all__ += backends.__all__
__all__ += caching.__all__
__all__ += features.__all__
__all__ += loading.__all__
__all__ += models.__all__
__all__ += results.__all__
__all__ += roles.__all__
__all__ += search.__all__
__all__ += training.__all__
__all__ += values.__all__
