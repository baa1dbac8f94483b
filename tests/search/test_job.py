"""What an executor is asked to run."""

from types import SimpleNamespace

import pytest

from distcore.config.yaml_document import parse
from distcore.search.driver import Search
from distcore.search.job import given_by, points_of
from distcore.search.section import read_section
from distcore_core.contracts import TRAINER
from distcore_core.registry.manager import Plugins
from distcore_search.options import ExecutorOptions
from distcore_torch.train_options import TrainerOptions

CONFIG = """\
input_features:
  - {name: x0, type: number}
output_features:
  - {name: y, type: binary}
hyperopt:
  parameters: {combiner.num_fc_layers: {space: grid_search, values: [1, 2]}}
  search_alg: {points_to_evaluate: [{combiner.num_fc_layers: 2}, {combiner.num_fc_layers: 1}]}
"""


@pytest.mark.parametrize(("samples", "told"), [(1, True), (2, False)])
def test_points_for_which_there_are_no_samples_are_told(samples, told, caplog):
    """Each takes the place of a sample, and beside a grid there is one by default."""
    points = points_of(read_section(parse(CONFIG, "c.yaml")), samples)
    assert points == ({"combiner.num_fc_layers": 1}, {"combiner.num_fc_layers": 0})
    assert ("has 2 points, and num_samples is 1" in caplog.text) == told


@pytest.mark.parametrize(
    ("scheduler", "said", "given"),
    [
        ({"type": "fifo"}, {}, {}),
        # they had 5 and 100: none came to its max_t
        ({"type": "asha", "max_t": 300}, {}, {"early_stop": -1, "epochs": 300}),
        ({"type": "hyperband"}, {"early_stop": 3}, {"epochs": 81}),
        # they were ended at max_t all the same
        ({"type": "asha", "stop_last_trials": False}, {}, {"early_stop": -1}),
        ({"type": "asha", "max_t": 300}, {"epochs": 50}, {"early_stop": -1}),
        ({"type": "asha", "max_t": 300}, {"train_steps": 50}, {"early_stop": -1}),
        # no round, and no second, is an epoch
        ({"type": "asha", "max_t": 300}, {"checkpoints_per_epoch": 2}, {"early_stop": -1}),
        ({"type": "asha", "max_t": 300, "time_attr": "time_total_s"}, {}, {"early_stop": -1}),
        ({"type": "median_stopping_rule"}, {}, {"early_stop": -1}),
    ],
)
def test_under_a_scheduler_trials_train_until_it_stops_them(scheduler, said, given):
    options = ExecutorOptions.model_validate({"scheduler": scheduler})
    assert given_by(options.scheduler, [TrainerOptions.model_validate(said)] * 2) == given


def test_what_is_searched_is_not_said_to_be_given():
    scheduler = ExecutorOptions.model_validate({"scheduler": {"type": "asha"}}).scheduler
    tried = [{"epochs": 3, "early_stop": 5}, {"epochs": 9, "early_stop": 5}]
    assert given_by(scheduler, [TrainerOptions.model_validate(each) for each in tried]) == {}
    tried = [{"epochs": 300}, {}]  # of the parameter `.`
    given = given_by(scheduler, [TrainerOptions.model_validate(each) for each in tried])
    assert given == {"early_stop": -1}


@pytest.mark.parametrize(
    ("trainer", "given"),
    [
        ("local", {"early_stop": -1, "epochs": 50}),
        ("data_parallel", {"early_stop": -1, "epochs": 50}),
        ("lightgbm", {}),  # it was given both, and reads neither
    ],
)
def test_trees_are_given_nothing(trainer, given):
    search = object.__new__(Search)
    search.session = SimpleNamespace(make=lambda kind: Plugins().make(TRAINER, trainer, {}))
    search.options = ExecutorOptions.model_validate({"scheduler": {"type": "asha", "max_t": 50}})
    search.configs = [SimpleNamespace(trainer=TrainerOptions())]
    assert search._given() == given
