"""What a rank's process has around it while it trains."""

import logging

from distcore_core.contracts import Rank
from distcore_torch.training.rank_process import _logging_to


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def test_a_log_file_of_a_rank_makes_no_other_handler_show_more(tmp_path, monkeypatch):
    """The command said warnings only; with backend.trainer.logdir it drew INFO lines, too."""
    log, own, above, mine = logging.getLogger("distcore"), Kept(), Kept(), logging.getLogger("mine")
    monkeypatch.setattr(log, "handlers", [own])
    monkeypatch.setattr(log, "propagate", True)
    monkeypatch.setattr(log.root, "handlers", [above])
    monkeypatch.setattr(mine, "level", logging.INFO)
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        with _logging_to(str(tmp_path), Rank(index=1, world=2)):
            logging.getLogger("distcore.of_it").info("in the file alone")
            log.warning("everywhere")
            mine.info("another library's")
        log.info("nowhere")
        assert log.level == logging.WARNING
    finally:
        log.setLevel(before)
    assert (own.lines, own.filters) == (["everywhere"], [])
    assert (above.lines, above.filters) == (["everywhere", "another library's"], [])
    written = (tmp_path / "rank-1.log").read_text().splitlines()
    assert [line.partition(" INFO ")[2] or line.partition(" WARNING ")[2] for line in written] == [
        "in the file alone",
        "everywhere",
    ]


def test_a_log_file_of_a_rank_hides_no_warning_of_one_without_handlers(
    tmp_path, monkeypatch, capsys
):
    """As a rank's process has none: Python shows warnings on standard error, until there is one."""
    log = logging.getLogger("distcore")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log.root, "handlers", [])
    with _logging_to(str(tmp_path), Rank(index=1, world=2)):
        log.warning("to be seen")
        log.info("in the file alone")
    assert capsys.readouterr().err == "to be seen\n"
    assert log.handlers == []
