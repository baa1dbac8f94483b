"""What plugins from outside do for a config: older spellings of theirs."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from distcore.config import RunConfig, load_config, resolve
from distcore_core.errors import ConfigError, PluginBroken
from distcore_core.registry.manager import Plugins

UPGRADES = """
    from distcore_core.config.upgrade import Upgrade
    from distcore_core.hooks import hookimpl

    DISTCORE_API = (1, 0)

    @hookimpl
    def distcore_upgrade_config(document):
        work = Upgrade(document)
        work.move(("fit",), ("trainer",))
        work.move(("trainer", "rounds"), ("trainer", "epochs"))
        return list(work.notes)

    @hookimpl
    def distcore_known_elsewhere(kind, name):
        return "Old Co. called it so." if (kind, name) == ("features", "amount") else None
"""
CONFIG = """
input_features: [{name: age, type: number}]
output_features: [{name: target, type: binary}]
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distribution: Callable[..., None]) -> Callable[..., None]:
    """Installs a distribution that this process sees until the test ends."""

    def install(name: str, source: str, **more: str) -> None:
        distribution(tmp_path, name, source, **more)
        monkeypatch.delitem(sys.modules, name.replace("-", "_"), raising=False)
        monkeypatch.syspath_prepend(tmp_path)

    return install


def read(text: str) -> RunConfig:
    return resolve(load_config("a.yaml", text=CONFIG + textwrap.dedent(text)), Plugins(), {}, "local")


def told(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return [str(issue) for issue in caught.value.issues]


# ------------------------------------------------------------------ older spellings


def test_a_plugin_turns_its_older_spellings_into_todays(plugin: Callable[..., None]) -> None:
    plugin("old-co", UPGRADES, kind="upgrades", entry="oldco")
    config = read("fit: {rounds: 3}\n")
    assert config.trainer.epochs == 3
    assert config.notes == (
        "line 4: `fit` is an older spelling of `trainer`",
        "line 4: `trainer.rounds` is an older spelling of `trainer.epochs`",
    )


def test_a_mistake_in_an_older_spelling_is_told_by_the_line_and_the_words_that_were_written(
    plugin: Callable[..., None],
) -> None:
    plugin("old-co", UPGRADES, kind="upgrades", entry="oldco")
    (issue,) = told("fit:\n  rounds: -1\n")
    assert issue.startswith("line 5: fit.rounds: ")


def test_what_a_plugin_knows_of_a_name_that_nobody_offers_is_told(plugin: Callable[..., None]) -> None:
    plugin("old-co", UPGRADES, kind="upgrades", entry="oldco")
    (issue,) = told("defaults: {amuont: {}, amount: {}}\n")
    assert "there is no feature type 'amuont'" in issue
    text = CONFIG.replace("number", "amount")
    with pytest.raises(ConfigError, match=r"Old Co\. called it so\. No installed plugin offers feature 'amount'"):
        resolve(load_config("a.yaml", text=text), Plugins(), {}, "local")


def test_a_plugin_that_the_config_blocks_changes_nothing_in_it(plugin: Callable[..., None]) -> None:
    plugin("old-co", UPGRADES, kind="upgrades", entry="oldco")
    (issue,) = told("plugins: {block: oldco}\nfit: {rounds: 3}\n")
    assert issue.startswith("line 5: fit: unknown option")


def test_a_plugin_that_cannot_be_asked_stops_the_reading_and_can_be_blocked(plugin: Callable[..., None]) -> None:
    """Passed over, it would leave a config that means something else."""
    plugin("old-co", "raise RuntimeError('half installed')", kind="upgrades", entry="oldco")
    with pytest.raises(
        PluginBroken, match=r"old-co 1\.0 offers config upgrade 'oldco'.*half installed.*DISTCORE_BLOCK"
    ):
        read("")
    assert read("plugins: {block: [old-co]}\n").notes == ()
