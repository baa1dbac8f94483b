"""distcore-report holds what every plugin, extension, command and section must hold."""

import shutil

import pytest

import distcore
from distcore_report.page import _read
from distcore_testing import (
    CommandSuite,
    ExtensionSuite,
    PluginSuite,
    ReportSectionSuite,
    data,
)


class TestPlugin(PluginSuite):
    kind, name = "extensions", "report"


class TestExtension(ExtensionSuite):
    name = "report"
    events = ("results_written",)


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    """The folder of a run with two outputs."""
    folder = tmp_path_factory.mktemp("run")
    outputs = [{"name": "y", "type": "binary"}, {"name": "k", "type": "category"}]
    config = data.config(str(folder / "cache"), output_features=outputs)
    outcome = distcore.experiment(config, data.table(), output_directory=folder)
    return outcome.model.parent


class OfARun(CommandSuite):
    @pytest.fixture(autouse=True)
    def _ran(self, a_run):
        self.folder = a_run

    def words(self, folder):
        shutil.copytree(self.folder, folder / "run", dirs_exist_ok=True)
        return self.asked()


class TestReport(OfARun):
    name = "report"

    def asked(self):
        return ["run"]

    def mistake(self, folder):
        return [str(folder / "nowhere")]


class TestRuns(OfARun):
    name = "runs"

    def asked(self):
        return ["."]

    def mistake(self, folder):
        return [str(folder / "nowhere")]


class TestCompare(OfARun):
    name = "compare"

    def words(self, folder):
        super().words(folder)
        shutil.copytree(self.folder, folder / "other", dirs_exist_ok=True)
        return self.asked()

    def asked(self):
        return ["run", "other"]

    def mistake(self, folder):
        return ["nowhere", "elsewhere"]


@pytest.mark.parametrize(
    "section",
    [
        *("headline", "summary", "scores", "splits", "curves", "diagnostics", "importance"),
        *("worst", "columns", "resources", "yaml", "description"),
    ],
)
class TestSections(ReportSectionSuite):
    @pytest.fixture(autouse=True)
    def _of_the_run(self, section, a_run):
        self.name, self.folder = section, a_run

    def content(self):
        found = _read(self.folder / self.make().file)
        return {**found, "yaml": "output_features: [{name: y}]"} if self.name == "yaml" else found

    def place(self, folder):
        """Scores are vouched for by another file, and drawn if there is no summary."""
        left_out = ["summary.json"] if self.name == "scores" else []
        shutil.copytree(
            self.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*left_out)
        )
        if self.name == "yaml":  # the run was given its config from Python
            super().place(folder)
