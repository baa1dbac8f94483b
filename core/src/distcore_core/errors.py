"""The errors distcore raises: what was wrong, where, and what to do about it.

    DistcoreError                 anything we raise on purpose; exit code 1
    ├── UserError                 the input, the config or the command line is wrong; exit code 2
    │   ├── ConfigError           one or more mistakes in the YAML, each with line and path
    │   ├── DataError             a dataset that cannot be read as declared
    │   └── ArtifactError         a model folder that is damaged, foreign or not trusted
    ├── PluginError               a plugin that cannot be used
    │   ├── PluginNotFound        nobody offers the name (also a UserError)
    │   ├── PluginConflict        two distributions offer the name
    │   ├── PluginIncompatible    written for another API version
    │   └── PluginBroken          it raised, exited or hung while it was loaded
    ├── CacheError                a cache that cannot be written, or read back whole
    │   └── StoreError            a bucket that cannot be reached, or refuses
    ├── CheckpointError           no checkpoint can be read back whole
    │   └── DifferentRun          of a run with another config or other data (also a UserError)
    └── TrainingError             training cannot go on (ranks disagree, a worker died)
        ├── RankLost              another rank was waited for in vain
        └── Diverged              the weights are not finite any more; no other attempt would help

    KeyboardInterrupt
    └── Stopped                   ctrl-C, SIGTERM, SIGHUP or SIGQUIT; exit code 128 + the signal
    SystemExit
    └── OtherRank                 one of a launcher's processes, whose part is done; exit code 0

Every message is one or more complete sentences: the first says what was wrong and where, the last
what to do.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ArtifactError",
    "CacheError",
    "CheckpointError",
    "ConfigError",
    "ConfigIssue",
    "DataError",
    "DifferentRun",
    "DistcoreError",
    "Diverged",
    "OtherRank",
    "PluginBroken",
    "PluginConflict",
    "PluginError",
    "PluginIncompatible",
    "PluginNotFound",
    "RankLost",
    "Stopped",
    "StoreError",
    "TrainingError",
    "UserError",
]


class DistcoreError(Exception):
    """Base of everything raised on purpose. `exit_code` is what the command line ends with.

    recurs: whether another attempt would meet it again, so that a worker group is not started
        once more for it."""

    exit_code = 1
    recurs = True

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message says all, and the way to it through our code says
        nothing."""
        return [f"{type(self).__name__}: {self}"]


class UserError(DistcoreError):
    """The user's input is wrong; nothing was changed."""

    exit_code = 2


# Positional, as `file:line: message` is read; and compared in that order, which sorts by line.
@dataclass(frozen=True, order=True)
class ConfigIssue:
    """One thing wrong in a config.

    line: 1-based line of the YAML text, or 0 if there is no text (a dict).
    path: dotted path, such as `trainer.learning_rate` or `input_features[2].type`.
    message: what is wrong and what would be right.
    """

    line: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.path}: {self.message}" if self.path else f"{where}{self.message}"


class ConfigError(UserError):
    """All mistakes of a config, in the order of their lines; the message has the first 100."""

    def __init__(self, issues: list[ConfigIssue], source: str = "config") -> None:
        self.issues, self.source = sorted(issues), source
        head = f"{source}: {len(issues)} mistake{'s' if len(issues) != 1 else ''}"
        more = [f"  and {len(issues) - 100} more"] if len(issues) > 100 else []
        super().__init__("\n".join([head, *(f"  {each}" for each in self.issues[:100]), *more]))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[ConfigIssue], str]]:
        """It travels from workers, too."""
        return type(self), (self.issues, self.source)


class DataError(UserError):
    """The dataset cannot be read as declared; the message names file, line or row, and column."""


class ArtifactError(UserError):
    """A model folder is damaged, was written by something else, or names code that is not
    trusted."""


class PluginError(DistcoreError):
    """A plugin cannot be used."""


class PluginNotFound(PluginError, UserError):
    """No installed distribution offers the name."""

    exit_code = 2


class PluginConflict(PluginError):
    """Two distributions offer the same name; we never pick one."""


class PluginIncompatible(PluginError):
    """The plugin states an API version that does not fit this core."""


class PluginBroken(PluginError):
    """Loading the plugin raised, exited or took too long; its own error is chained."""


class CacheError(DistcoreError):
    """The cache cannot be written, or cannot be read back whole."""


class StoreError(CacheError):
    """A bucket cannot be reached or refuses; the message names the object and what the store
    said."""

    recurs = False


class CheckpointError(DistcoreError):
    """No checkpoint can be read back whole."""


class DifferentRun(CheckpointError, UserError):
    """A checkpoint is whole, and of a run with another config or other data than are given."""


class TrainingError(DistcoreError):
    """Training cannot go on."""


class RankLost(TrainingError):
    """Another rank was waited for in vain: it died, or it is stopped."""

    recurs = False


class Diverged(TrainingError):
    """Weights, or what the optimizer keeps of them, are NaN or infinite; nothing of that is
    saved."""


class Stopped(KeyboardInterrupt):
    """Somebody asked this process to end: ctrl-C, or a signal that means the same.

    A KeyboardInterrupt, so whoever is ready for ctrl-C is ready for the others. signal: its number.
    The message says what is kept, and how to go on."""

    def __init__(self, message: str = "", signal: int = 2) -> None:
        super().__init__(message)
        self.signal = int(signal)

    def _render_traceback_(self) -> list[str]:
        return [f"Stopped: {self}" if str(self) else "Stopped"]

    @property
    def exit_code(self) -> int:
        """What a shell expects: 128 + the signal."""
        return 128 + self.signal

    def __reduce__(self) -> tuple[type[Stopped], tuple[str, int]]:
        return type(self), (str(self), self.signal)


class OtherRank(SystemExit):
    """This process is a rank other than 0 that a launcher (torchrun) started, and its part is done.

    `train` and `experiment` raise it there: what they return is rank 0's alone. Left alone it ends
    the process with exit code 0, as a command does; a script that has more to do in every rank
    catches it."""

    def __init__(self, rank: int) -> None:
        super().__init__(0)
        self.rank = rank

    def __str__(self) -> str:
        return (
            f"Rank {self.rank} is done: rank 0 has the result and goes on alone. A script with "
            "more to do in every rank catches distcore_core.errors.OtherRank."
        )

    def __reduce__(self) -> tuple[type[OtherRank], tuple[int]]:
        return type(self), (self.rank,)
