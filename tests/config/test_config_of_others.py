"""What plugins from outside do for a config: older spellings and sections of theirs."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from distcore.config import RunConfig, load_config, resolve
from distcore.config.reference import render
from distcore.config.schema import json_schema
from distcore.config.yaml_document import parse
from distcore_core.errors import ConfigError, PluginBroken, PluginConflict
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
def plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distribution: Callable[..., None]
) -> Callable[..., None]:
    """Installs a distribution that this process sees until the test ends."""

    def install(name: str, source: str, **more: str) -> None:
        distribution(tmp_path, name, source, **more)
        monkeypatch.delitem(sys.modules, name.replace("-", "_"), raising=False)
        monkeypatch.syspath_prepend(tmp_path)

    return install


def read(text: str) -> RunConfig:
    return resolve(
        load_config(parse(CONFIG + textwrap.dedent(text), "a.yaml")), Plugins(), {}, "local"
    )


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


def test_what_a_plugin_knows_of_a_name_that_nobody_offers_is_told(
    plugin: Callable[..., None],
) -> None:
    plugin("old-co", UPGRADES, kind="upgrades", entry="oldco")
    (issue,) = told("defaults: {amuont: {}, amount: {}}\n")
    assert "there is no feature type 'amuont'" in issue
    text = CONFIG.replace("number", "amount")
    with pytest.raises(
        ConfigError, match=r"Old Co\. called it so\. No installed plugin offers feature 'amount'"
    ):
        resolve(load_config(parse(text, "a.yaml")), Plugins(), {}, "local")


def test_a_plugin_that_the_config_blocks_changes_nothing_in_it(plugin: Callable[..., None]) -> None:
    plugin("old-co", UPGRADES, kind="upgrades", entry="oldco")
    (issue,) = told("plugins: {block: oldco}\nfit: {rounds: 3}\n")
    assert issue.startswith("line 5: fit: unknown option")


def test_a_plugin_that_cannot_be_asked_stops_the_reading_and_can_be_blocked(
    plugin: Callable[..., None],
) -> None:
    """Passed over, it would leave a config that means something else."""
    plugin("old-co", "raise RuntimeError('half installed')", kind="upgrades", entry="oldco")
    with pytest.raises(
        PluginBroken,
        match=r"old-co 1\.0 offers config upgrade 'oldco'.*half installed.*DISTCORE_BLOCK",
    ):
        read("")
    assert read("plugins: {block: [old-co]}\n").notes == ()


# ------------------------------------------------------------------ sections

SECTION = """
    from distcore_data.base_options import Count, Options
    from distcore_core.hooks import hookimpl
    from pydantic import Field

    DISTCORE_API = (1, 0)

    class Approval(Options):
        by: str = Field("nobody", description="Who approves.")
        within_days: Count = Field(7, description="How long it holds.")

    class MyCompany(Options):
        project: str = Field(description="Whose budget.")
        approval: Approval = Field(Approval(), description="Before anything runs.")

    @hookimpl
    def distcore_config_section(name):
        return MyCompany if name == "mycompany" else None
"""


@pytest.fixture
def mycompany(plugin: Callable[..., None]) -> None:
    plugin("my-company", SECTION, kind="sections", entry="mycompany")


@pytest.mark.usefixtures("mycompany")
def test_a_plugins_section_is_validated_and_handed_on_as_it_was_set() -> None:
    config = read("mycompany: {project: blue, approval: {within_days: 3}}\n")
    assert config.sections == {"mycompany": {"project": "blue", "approval": {"within_days": 3}}}
    assert config.as_json()["mycompany"] == config.sections["mycompany"]
    assert (
        resolve(load_config(config.as_json()), Plugins(), {}, "local").sections == config.sections
    )
    assert "mycompany" not in read("").as_json()


@pytest.mark.usefixtures("mycompany")
def test_mistakes_in_a_plugins_section_are_told_with_their_lines_and_the_nearest_word() -> None:
    issues = told(
        """\
        mycompany:
          projekt: blue
          approval:
            within_days: -1
        trainer: {epoch: 3}
        """
    )
    assert [each.partition(": ")[0] for each in issues] == ["line 4", "line 5", "line 7", "line 8"]
    assert "mycompany.project" in issues[0]
    assert "did you mean 'project'" in issues[1]
    assert issues[2].startswith("line 7: mycompany.approval.within_days: ")
    assert told("mycompany: [1]\n")[0].startswith("line 4: mycompany: should be a mapping")


@pytest.mark.parametrize("field", ["SecretStr", "str = Field(exclude=True)"])
def test_a_secret_is_no_option(plugin: Callable[..., None], field: str) -> None:
    """The plugin was given ten stars, or nothing, and nobody was told."""
    source = SECTION.replace("project: ", f"token: {field}\n        project: ")
    source = source.replace("import Field", "import Field, SecretStr")
    plugin("my-company", source, kind="sections", entry="mycompany")
    (mine,) = told("mycompany: {token: hush, project: blue}\n")
    assert mine.startswith("line 4: mycompany.token: its plugin declares a secret")
    assert "hush" not in mine


@pytest.mark.usefixtures("mycompany")
def test_an_unknown_section_gets_the_nearest_word_of_the_apps_and_the_plugins_sections() -> None:
    (mine,) = told("mycompani: {project: blue}\n")
    assert "did you mean 'mycompany'" in mine
    (ours,) = told("trianer: {epochs: 1}\n")
    assert "did you mean 'trainer'" in ours


def test_a_section_whose_plugin_is_not_there_is_an_unknown_one(mycompany: None) -> None:
    (issue,) = told("plugins: {block: [my-company]}\nmycompany: {project: blue}\n")
    assert issue.startswith("line 5: mycompany: unknown option")


@pytest.mark.usefixtures("mycompany")
def test_a_plugins_section_is_in_the_schema_and_in_the_reference() -> None:
    schema = json_schema(Plugins())
    assert schema["properties"]["mycompany"] == {"$ref": "#/$defs/mycompany"}
    valid = {
        "input_features": [{"name": "a", "type": "number"}],
        "output_features": [{"name": "b", "type": "binary"}],
    }
    jsonschema.validate({**valid, "mycompany": {"project": "blue"}}, schema)
    with pytest.raises(jsonschema.ValidationError, match="projekt"):
        jsonschema.validate({**valid, "mycompany": {"project": "blue", "projekt": "x"}}, schema)
    assert "| `within_days` | integer ≥ 1 | `7` | How long it holds. |" in render(schema)


def test_two_who_offer_one_section_are_named(plugin: Callable[..., None]) -> None:
    plugin("my-company", SECTION, kind="sections", entry="mycompany")
    plugin("its-rival", SECTION, kind="sections", entry="mycompany")
    with pytest.raises(PluginConflict, match=r"its-rival 1\.0 and my-company 1\.0"):
        read("mycompany: {project: blue}\n")
