"""distcore-lightgbm holds what every plugin and every trainer must hold."""

from typing import ClassVar

from distcore_testing import PluginSuite, TrainerSuite


class TestPlugin(PluginSuite):
    kind, name = "trainers", "lightgbm"


class TestTrainer(TrainerSuite):
    """Each output has trees of its own, so the weight of its loss changes nothing."""

    name = "lightgbm"
    options: ClassVar = {"num_boost_round": 60, "feature_fraction": 0.7, "num_threads": 1}
    weighs_losses = False
