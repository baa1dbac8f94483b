"""The roles that plugins play, and the values that cross between them.

Each role is a Protocol of at most six methods; a plugin need not inherit from anything here. The values are frozen
dataclasses that pickle and compare by content, because they travel to other processes; they are made by keyword, so
that a field can be added anywhere without breaking anyone. Nothing here imports an engine, torch or Arrow: the
annotations are for readers and type checkers.

    backends.py   where work runs                        Backend
    caching.py    from a dataset to a cache              Source, Processor, CacheFormat
    features.py   one column's type                      Feature, FeatureNetwork
    loading.py    from a cache to batches                Loader, Batch
    training.py   from batches to a model                Model, Trainer, Predictor
    search.py     the search for better parameters       Executor
    roles.py      each role as one object                Role, ROLES, Command
    values.py     what several of them speak of

Shapes: n is rows of a dataset, B rows of a batch, W 32-bit words of one encoded row.
"""

from __future__ import annotations

from distcore_core.contracts.backends import (
    Backend,
    BackendBase,
    Detection,
    ProgressChannel,
    Rank,
    Resources,
    WorkerGroup,
)
from distcore_core.contracts.caching import (
    CacheFormat,
    Partition,
    Processor,
    ShardReader,
    Source,
    SourceBase,
)
from distcore_core.contracts.features import Feature, FeatureBase, FeatureNetwork, FeatureSet
from distcore_core.contracts.loading import Batch, CachedRows, Loader, LoadRequest
from distcore_core.contracts.roles import (
    BACKEND,
    CACHE_FORMAT,
    COMMAND,
    EXECUTOR,
    EXTENSION,
    FEATURE,
    LOADER,
    MEMBER_HOOK,
    MODEL,
    PROCESSOR,
    ROLES,
    SECTION,
    TRAINER,
    UPGRADE,
    Command,
    Role,
)
from distcore_core.contracts.roles import (
    singular as singular,
)
from distcore_core.contracts.search import Axis, Executor, SearchJob
from distcore_core.contracts.training import (
    Model,
    ModelBase,
    OpenJob,
    Predictor,
    ResultsStore,
    Trainer,
    TrainerBase,
    TrainJob,
    TrainResult,
)
from distcore_core.contracts.values import (
    JSON,
    SPLITS,
    Block,
    CacheRef,
    Column,
    Credentials,
    PluginRef,
    ShardPlan,
    Split,
)
from distcore_core.contracts.values import (
    T as T,
)

__all__ = [
    "API_VERSION",
    "BACKEND",
    "CACHE_FORMAT",
    "COMMAND",
    "EXECUTOR",
    "EXTENSION",
    "FEATURE",
    "JSON",
    "LOADER",
    "MEMBER_HOOK",
    "MODEL",
    "PROCESSOR",
    "ROLES",
    "SECTION",
    "SPLITS",
    "TRAINER",
    "UPGRADE",
    "Axis",
    "Backend",
    "BackendBase",
    "Batch",
    "Block",
    "CacheFormat",
    "CacheRef",
    "CachedRows",
    "Column",
    "Command",
    "Credentials",
    "Detection",
    "Executor",
    "Feature",
    "FeatureBase",
    "FeatureNetwork",
    "FeatureSet",
    "LoadRequest",
    "Loader",
    "Model",
    "ModelBase",
    "OpenJob",
    "Partition",
    "PluginRef",
    "Predictor",
    "Processor",
    "ProgressChannel",
    "Rank",
    "Resources",
    "ResultsStore",
    "Role",
    "SearchJob",
    "ShardPlan",
    "ShardReader",
    "Source",
    "SourceBase",
    "Split",
    "TrainJob",
    "TrainResult",
    "Trainer",
    "TrainerBase",
    "WorkerGroup",
]

API_VERSION = (1, 0)
"""Version of these contracts. A plugin written for (1, x) works with every core (1, y >= x)."""
