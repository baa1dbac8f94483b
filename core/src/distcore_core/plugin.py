"""The plugin API: what the author of a plugin imports, from here and from nowhere else in core.

    from distcore_core.plugin import TrainerBase, TrainJob, TrainResult, hookimpl

    DISTCORE_API = (1, 0)

Here are the roles with their base classes, the values that cross between core and a plugin,
`hookimpl`, the hooks and events, the errors, progress, and `Plugins` for a plugin that stands on
others. What a toolkit offers authors its package exports: `distcore_data`, `distcore_torch`,
`distcore_search`, `distcore_testing`. Everything else may change in any release. API_VERSION is
the version of this surface: a plugin written for (1, x) works with every core (1, y >= x).
"""

from __future__ import annotations

from distcore_core import contracts, errors, events, hooks

# What is declared there is declared here, once; mypy reads an `__all__` no further than the module
# it is written in.
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
from distcore_core.errors import *  # noqa: F403
from distcore_core.hooks import hookimpl
from distcore_core.progress import Progress, Round
from distcore_core.registry.manager import Plugins

__all__ = ["Plugins", "Progress", "Round", "events", "hookimpl", "hooks"]
__all__ += contracts.__all__
__all__ += errors.__all__
