"""Conformance suites: subclass one in your plugin's tests, and pytest runs what every plugin of
that role must hold.

    from distcore_testing import CacheFormatSuite, PluginSuite

    class TestPlugin(PluginSuite):
        kind, name = "caches", "myformat"

    class TestMyFormat(CacheFormatSuite):
        name = "myformat"

`name` is the entry point's name; the suite resolves the plugin as a run does, so the metadata, the
API version and the options model are tried too. What a plugin cannot do by its nature is a class
attribute set to False in the subclass, with the reason in its docstring; everything else must pass.
`distcore_testing.data` has a tiny table and its config.

A suite is imported, and pytest with it, when it is first named.
"""

from __future__ import annotations

import sys
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from distcore_core.lazy import on_first_use

if TYPE_CHECKING:
    from distcore_testing.backends import BackendSuite
    from distcore_testing.caches import CacheFormatSuite
    from distcore_testing.callbacks import CallbackSuite
    from distcore_testing.clusters import ClusterProcessorSuite
    from distcore_testing.commands import CommandSuite
    from distcore_testing.executors import ExecutorSuite
    from distcore_testing.extensions import ExtensionSuite
    from distcore_testing.features import FeatureSuite
    from distcore_testing.loaders import LoaderSuite
    from distcore_testing.manifest import ManifestSuite
    from distcore_testing.member_modules import CombinerSuite, DecoderSuite, EncoderSuite
    from distcore_testing.member_rows import LossSuite, MetricSuite
    from distcore_testing.models import ModelSuite
    from distcore_testing.optimizers import OptimizerSuite, ScheduleSuite
    from distcore_testing.plugin import PluginSuite
    from distcore_testing.processors import ProcessorSuite
    from distcore_testing.sections import ReportSectionSuite
    from distcore_testing.sources import SourceSuite
    from distcore_testing.splitters import SplitterSuite
    from distcore_testing.stores import StoreSuite
    from distcore_testing.strategies import StrategySuite
    from distcore_testing.tokenizers import TokenizerSuite
    from distcore_testing.trainers import TrainerSuite

__all__ = [
    "BackendSuite",
    "CacheFormatSuite",
    "CallbackSuite",
    "ClusterProcessorSuite",
    "CombinerSuite",
    "CommandSuite",
    "DecoderSuite",
    "EncoderSuite",
    "ExecutorSuite",
    "ExtensionSuite",
    "FeatureSuite",
    "LoaderSuite",
    "LossSuite",
    "ManifestSuite",
    "MetricSuite",
    "ModelSuite",
    "OptimizerSuite",
    "PluginSuite",
    "ProcessorSuite",
    "ReportSectionSuite",
    "ScheduleSuite",
    "SourceSuite",
    "SplitterSuite",
    "StoreSuite",
    "StrategySuite",
    "TokenizerSuite",
    "TrainerSuite",
]

_MODULES = {
    "BackendSuite": "backends",
    "CacheFormatSuite": "caches",
    "CallbackSuite": "callbacks",
    "ClusterProcessorSuite": "clusters",
    "CombinerSuite": "member_modules",
    "CommandSuite": "commands",
    "DecoderSuite": "member_modules",
    "EncoderSuite": "member_modules",
    "ExecutorSuite": "executors",
    "ExtensionSuite": "extensions",
    "FeatureSuite": "features",
    "LoaderSuite": "loaders",
    "LossSuite": "member_rows",
    "ManifestSuite": "manifest",
    "MetricSuite": "member_rows",
    "ModelSuite": "models",
    "OptimizerSuite": "optimizers",
    "PluginSuite": "plugin",
    "ProcessorSuite": "processors",
    "ReportSectionSuite": "sections",
    "ScheduleSuite": "optimizers",
    "SourceSuite": "sources",
    "SplitterSuite": "splitters",
    "StoreSuite": "stores",
    "StrategySuite": "strategies",
    "TokenizerSuite": "tokenizers",
    "TrainerSuite": "trainers",
}


_find = on_first_use(__name__, _MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import pytest

        # A failing assert of the kit then shows its values, as one in a test file does. Of modules
        # that are imported already pytest would warn.
        modules = {f"{__name__}.{each.name}" for each in iter_modules(__path__)}
        pytest.register_assert_rewrite(*sorted(modules - set(sys.modules)))
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
