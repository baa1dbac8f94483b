"""What a rank says beside its numbers, and how its end is seen."""

import logging
from multiprocessing import Pipe

from distcore_ray import rank


def test_a_log_line_that_does_not_format_ends_nothing(monkeypatch, capsys):
    """As everywhere else: Python's handlers say so on standard error, and go on."""
    ours, theirs = Pipe()
    log = logging.Logger("distcore.mine")
    log.addHandler(rank._LogToWorker(rank.Line(theirs), "Rank 1: "))
    log.warning("%d rows", "no")
    assert "Logging error" in capsys.readouterr().err
    try:
        raise KeyError("k")
    except KeyError:
        log.exception("%d rows", 3)
    level, text = ours.recv()[1:]
    assert level == logging.ERROR
    assert text.startswith("Rank 1: 3 rows\nTraceback")
    assert text.endswith("KeyError: 'k'")
