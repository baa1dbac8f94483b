"""distcore-xgboost holds what every plugin and every trainer must hold."""

from typing import ClassVar

from distcore_testing import PluginSuite, TrainerSuite


class TestPlugin(PluginSuite):
    kind, name = "trainers", "xgboost"


class TestTrainer(TrainerSuite):
    """Each output has trees of its own, so the weight of its loss changes nothing."""

    name = "xgboost"
    options: ClassVar = {
        "num_boost_round": 60,
        "subsample": 0.8,
        "colsample_bytree": 0.7,
        "num_threads": 1,
    }
    weighs_losses = False
