"""System calls that fail once (EIO, EBUSY, no room, no more files, no permission) at any moment of
a command: it ends well with an undisturbed run's bytes, or in words; and the next one ends well."""

import errno
import shutil
from collections import Counter

import pytest
from tests.hostile.killing import CALLS
from tests.hostile.test_killed_anywhere import Anywhere, killing  # noqa: F401 - a fixture

ERRORS = {
    **dict.fromkeys(CALLS, (errno.EIO, errno.EACCES)),
    **dict.fromkeys(
        ("open", "write", "mkdir", "link", "rename", "replace"),
        (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES),
    ),
    **dict.fromkeys(("fsync", "fdatasync", "truncate", "ftruncate"), (errno.EIO, errno.ENOSPC)),
    **dict.fromkeys(("unlink", "remove", "rmdir"), (errno.EBUSY, errno.EIO, errno.EACCES)),
    "flock": (errno.EIO, errno.ENOLCK),
}
"""{call: what it may meet}."""

REMOVING = ("open", "unlink", "remove", "rmdir")
"""What removes a file or, with its content, a folder; what cannot be removed stays."""


class Failing(Anywhere):
    """One command, any of whose calls fails once."""

    def failed(self, at, name, number):
        """Whether the command ended well all the same."""
        done = self.fresh(at, {name: number})
        told = f"{name} number {at} met {errno.errorcode[number]}: {done['said']}"
        assert done["code"] in (0, 1, 2), told
        assert "Traceback" not in done["said"], told
        assert "not expected" not in done["said"], told
        if done["code"]:
            assert "distcore: " in done["said"], told
            if self.folder_to_go_on_from() is None:  # a run that failed keeps its name
                shutil.rmtree(self.place.folder / "results", ignore_errors=True)
            again = self.again()
            assert again["code"] == 0, f"{told}\n{again['said']}"
        left = set(self.found()) - self.names
        assert not left or (name in REMOVING and not done["code"]), (sorted(left), told)
        self.assert_same(told)
        return not done["code"]

    def swept(self, sweep, what):
        calls = self.fresh(0, {"": 0})["calls"]
        count = sweep.times(4, 2 * len(calls))
        came = Counter()
        for _ in range(count):
            # Each kind of call as often as any other: most are writes.
            name = sweep.random.choice(sorted(set(calls) & set(ERRORS)))
            places = [at for at, each in enumerate(calls, 1) if each == name]
            well = self.failed(sweep.random.choice(places), name, sweep.random.choice(ERRORS[name]))
            came["well" if well else "words"] += 1
        kinds = ", ".join(f"`{each}`" for each in sorted(set(calls) & set(ERRORS)))
        sweep.tried(
            f"one of {kinds} fails in `{what}` (EIO, EBUSY, EACCES, EROFS, ENOLCK, no room; "
            f"{len(calls)} calls)",
            count,
            f"{came['well']} ended with an undisturbed run's bytes all the same, {came['words']} in "
            "words, and the next run with those bytes; nothing left over",
        )


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_an_answer(place, trained, killing, sweep, command):  # noqa: F811
    Failing(killing, place, place.words(command, "--model_path", trained, "--overwrite")).swept(
        sweep, command
    )


def test_an_experiment(place, killing, sweep):  # noqa: F811
    Failing(killing, place, place.words("experiment"), "checkpoints/step-????????").swept(
        sweep, "experiment"
    )
