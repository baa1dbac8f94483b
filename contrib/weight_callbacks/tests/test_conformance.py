"""Both callbacks hold what every plugin and every callback must hold."""

from typing import ClassVar

import pytest

from distcore_testing import CallbackSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "callbacks", "ema"


class TestEma(CallbackSuite):
    name = "ema"
    options: ClassVar = {"decay": 0.9}


@pytest.mark.system
class TestSam(CallbackSuite):
    name = "sam"
    options: ClassVar = {"radius": 0.1}
