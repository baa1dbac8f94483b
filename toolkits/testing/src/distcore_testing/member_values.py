"""What the suites of the tabular model's members ask with: a column of each feature type, and the
feature that a member is named in."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from distcore_core.contracts import FEATURE, JSON, MEMBER_HOOK, Feature, Role
from distcore_core.registry.manager import Plugins

ROWS = 120


def _numbers() -> pa.Array:
    return pa.array([(row * 37 % 101) / 7 - 3 for row in range(ROWS)])


def _words() -> pa.Array:
    each = ("sun", "moon", "sun moon", "the quick brown fox", "Über café")
    return pa.array([each[row * row % 5] for row in range(ROWS)])


VALUES: Mapping[str, Callable[[], pa.Array]] = {
    "number": _numbers,
    "binary": lambda: pa.array(["no", "yes"]).take(pa.array(np.arange(ROWS) % 7 % 2)),
    "category": lambda: pa.array(list("abcde")).take(pa.array(np.arange(ROWS) ** 2 % 11 % 5)),
    "text": _words,
    "set": _words,
    "date": lambda: pa.array([f"20{row % 30:02d}-0{1 + row % 9}-11" for row in range(ROWS)]),
}
"""For each feature type, values without missing ones."""


class OfFeature:
    """A member that features name, as `encoder: {type: waves}`.

    name: of the entry point, `<feature type>.<name>`. options: of the member. values(): a column
    as a source reads it, without missing values, if those of `VALUES` would not do.
    """

    name: str
    options: Mapping[str, Any] = {}
    section = ""
    role = "input"

    @property
    def type(self) -> str:
        """Of the feature."""
        return self.name.partition(".")[0]

    def values(self) -> pa.Array:
        """Of the type's column."""
        found = VALUES[self.type]()
        feature: Any = Plugins().make(FEATURE, self.type, {}, column="column", role=self.role)
        return found.dictionary_encode() if feature.raw in ("category", "time") else found

    def given(self) -> JSON:
        """The feature's options."""
        return {self.section: {"type": self.name.partition(".")[2], **self.options}}

    def fitted(self) -> tuple[Feature, JSON, Any]:
        """(feature, metadata, batch of the values)."""
        from distcore_testing.feature_networks import batch_of

        feature: Feature = Plugins().make(
            FEATURE, self.type, self.given(), column="column", role=self.role
        )
        values = self.values()
        metadata = feature.finish(feature.partial(values))
        return feature, metadata, batch_of(feature, values, metadata)


def member(kind: str, name: str, options: Mapping[str, Any], **context: Any) -> Any:
    """A member of a role that needs no feature around it."""
    role: Role[Any] = Role(kind, MEMBER_HOOK, kind, object)
    plugins = Plugins()
    given = dict(options) if plugins.options_model(kind, name) is not None else None
    return plugins.make(role, name, given, **context)


@contextmanager
def process_stays(but: Collection[str] = ()) -> Iterator[None]:
    """Around what must leave the process as it is: random numbers, which others draw too, and
    torch's settings; but for these."""
    import torch

    backends: Any = torch.backends

    def now() -> dict[str, Any]:
        return {
            "Python's random numbers": random.getstate(),
            "numpy's random numbers": repr(np.random.get_state()),
            "torch's random numbers": torch.get_rng_state().tolist(),
            # Not by distcore_torch.guests: PluginSuite runs where there is torch alone.
            "torch's settings": (
                torch.get_default_dtype(),
                torch.get_num_threads(),
                torch.is_grad_enabled(),
                torch.are_deterministic_algorithms_enabled(),
                torch.get_default_device(),
                torch.is_autocast_enabled("cpu"),
                backends.mkldnn.enabled,
                backends.mkldnn.matmul.fp32_precision,
            ),
        }

    # Whoever sets the seed that was set before leaves them changed only if somebody drew since.
    for draw in (random.random, np.random.random, partial(torch.rand, 1)):
        draw()
    before = now()
    yield
    after = now()
    changed = [name for name in before.keys() - set(but) if after[name] != before[name]]
    assert not changed, f"it changes {' and '.join(sorted(changed))}"
