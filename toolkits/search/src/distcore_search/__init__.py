"""What executors of searches are made with: the space, records of trials, rounds.

What is public is exported here, and imported when it is first used; `distcore_core.plugin` has the
roles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distcore_core.lazy import on_first_use

if TYPE_CHECKING:
    from distcore_search.options import ExecutorOptions
    from distcore_search.records import ENDED, ROUNDS, TRIALS, begin_record, end_record, read_record
    from distcore_search.rounds import Follower, Round, rounds_of
    from distcore_search.variants import value_at

__all__ = [
    "ENDED",
    "ROUNDS",
    "TRIALS",
    "ExecutorOptions",
    "Follower",
    "Round",
    "begin_record",
    "end_record",
    "read_record",
    "rounds_of",
    "value_at",
]

__getattr__ = on_first_use(
    __name__,
    {
        "ENDED": "records",
        "ExecutorOptions": "options",
        "Follower": "rounds",
        "ROUNDS": "records",
        "Round": "rounds",
        "TRIALS": "records",
        "begin_record": "records",
        "end_record": "records",
        "read_record": "records",
        "rounds_of": "rounds",
        "value_at": "variants",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
