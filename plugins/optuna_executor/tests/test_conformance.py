"""distcore-optuna holds what distcore asks of every plugin and of every executor."""

import optuna

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

    def test_optuna_tells_the_program_what_it_told_before(self, place, tmp_path):
        """After a search a study of the program's own said nothing any more."""
        optuna.logging.set_verbosity(optuna.logging.INFO)
        self.make().run(self.job(tmp_path, self.variants(1)), place, lambda name: None)
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
