"""distcore-optuna holds what distcore asks of every plugin and of every executor."""

from distcore_optuna.study import JOURNAL, Study
from distcore_testing import ExecutorSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "executors", "local"


class TestPluginByLudwigsName(PluginSuite):
    kind, name = "executors", "optuna"


class TestLocal(ExecutorSuite):
    name = "local"

    def test_a_journal_lock_that_was_left_behind_is_not_waited_for(self, tmp_path):
        """The search's own lock on its folder ends with its process; that of the journal would
        not."""
        left = tmp_path / f"{JOURNAL}.lock"
        left.write_text("")
        study = Study(self.job(tmp_path, None), self.make().options)
        study.tell(study.ask(), "finished", 0.5)
        assert study.count() == 1
        assert left.exists()
