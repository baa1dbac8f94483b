"""Discovery: broken, hanging, duplicate, too old, too new, blocked and misspelt plugins, in real
distributions on disk."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.distributions import distribution

from distcore_core import hooks
from distcore_core.contracts import MEMBER_HOOK, ROLES
from distcore_core.registry.index import INSTALL_HINTS, all_offers

GOOD = """
from distcore_core.contracts import TrainerBase
from distcore_core.hooks import hookimpl
DISTCORE_API = (1, 0)
class Thing(TrainerBase):
    def __init__(self, options): self.options = options
    def plan(self, job, backend): return {}
    def fit(self, job, backend, progress): raise NotImplementedError
    def load(self, directory, features, *, trust=False): raise NotImplementedError
@hookimpl
def distcore_make_trainer(name, options):
    if name in ("mine", "twin"): return Thing(options)
"""


def python(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that sees the distributions in `folder`."""
    env = {**os.environ, "PYTHONPATH": str(folder), **environment}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
    )


RESOLVE = """
from distcore_core.contracts import TRAINER
from distcore_core.registry.manager import Plugins
from distcore_core.errors import DistcoreError
try:
    print("made", type(Plugins().make(TRAINER, "mine")).__name__)
except DistcoreError as error:
    print(type(error).__name__, "|", error)
"""


def listed(folder: Path, **environment: str) -> dict[str, dict[str, str]]:
    """Rows of the inventory by distribution, as `distcore plugins --json` prints them."""
    code = """
    import json
    from dataclasses import asdict
    from distcore.workflow.listing import rows
    from distcore_core.registry.manager import Plugins
    print(json.dumps([asdict(row) for row in rows(Plugins(), 60)]))
    """
    done = python(folder, code, **environment)
    assert done.returncode == 0, done.stderr
    return {row["distribution"]: row for row in json.loads(done.stdout)}


def test_a_good_plugin_is_found_and_made(tmp_path: Path) -> None:
    distribution(tmp_path, "good-one", GOOD)
    assert python(tmp_path, RESOLVE).stdout == "made Thing\n"
    assert listed(tmp_path)["good-one"]["state"] == "ok"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise RuntimeError('no libfoo')", "RuntimeError: no libfoo"),
        ("import sys; sys.exit('go away')", "SystemExit: go away"),
        ("import module_that_is_not_there", "No module named 'module_that_is_not_there'"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_a_plugin_that_fails_to_load_stops_the_run_that_asked_and_nothing_else(
    tmp_path: Path, source: str, said: str
) -> None:
    distribution(tmp_path, "bad-one", source)
    answer = python(tmp_path, RESOLVE).stdout
    assert answer.startswith("PluginBroken | bad-one 1.0 offers trainer 'mine'")
    assert said in answer
    assert "DISTCORE_BLOCK=bad-one" in answer
    rows = listed(tmp_path)
    assert rows["bad-one"]["state"] == "broken"
    assert said in rows["bad-one"]["error"]
    assert rows["distcore-local"]["state"] == "ok"


def test_a_plugin_that_hangs_at_import_stops_the_run_that_asked_for_it(tmp_path: Path) -> None:
    distribution(tmp_path, "sleeper", "import time; time.sleep(600)")
    answer = python(
        tmp_path,
        "import distcore_core.registry.loader as p; p.IMPORT_SECONDS = 1.0\n" + RESOLVE.strip(),
    ).stdout
    assert answer.startswith("PluginBroken")
    assert "took longer than 1 s" in answer


ALARM = """
import logging, signal, sys, time
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
rung = []
signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.5, 100)
level = logging.getLogger("stevedore").level
"""
LOOK = """
until = time.monotonic() + 20
while not rung and time.monotonic() < until:
    time.sleep(0.01)
print(len(rung), round(signal.getitimer(signal.ITIMER_REAL)[1]))
print(level == logging.getLogger("stevedore").level)
"""


@pytest.mark.parametrize("source", [GOOD, "def broken(:"], ids=["whole", "broken"])
def test_loading_a_plugin_leaves_the_programs_alarm_and_logging(
    tmp_path: Path, source: str
) -> None:
    """The deadline of an import took a pending alarm away for good, so that a time limit of the
    program's never came."""
    distribution(tmp_path, "one", source)
    lines = python(tmp_path, ALARM + RESOLVE + LOOK).stdout.splitlines()
    assert lines[0].startswith("made Thing" if source is GOOD else "PluginBroken")
    assert lines[1:] == ["1 100", "True"]


def test_two_distributions_of_one_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    distribution(tmp_path, "first-one", GOOD)
    distribution(tmp_path, "second-one", GOOD, version="2.5")
    answer = python(tmp_path, RESOLVE).stdout
    assert answer.startswith("PluginConflict")
    assert "first-one 1.0 and second-one 2.5" in answer
    rows = listed(tmp_path)
    assert rows["first-one"]["state"] == rows["second-one"]["state"] == "broken"
    assert "second-one 2.5" in rows["first-one"]["error"]


def test_blocking_one_of_two_settles_the_conflict(tmp_path: Path) -> None:
    distribution(tmp_path, "first-one", GOOD)
    distribution(tmp_path, "second-one", GOOD)
    assert python(tmp_path, RESOLVE, DISTCORE_BLOCK="second-one").stdout == "made Thing\n"
    assert listed(tmp_path, DISTCORE_BLOCK="second-one")["second-one"]["state"] == "blocked"


@pytest.mark.parametrize("block", ["mine", "trainers:mine", "good-one", "Good_One", "good.one"])
def test_a_blocked_plugin_is_never_imported(tmp_path: Path, block: str) -> None:
    distribution(tmp_path, "good-one", "raise SystemExit('imported')")
    answer = python(tmp_path, RESOLVE, DISTCORE_BLOCK=block).stdout
    assert answer.startswith("PluginNotFound")
    assert "installed but blocked" in answer


def test_a_blocked_plugin_is_not_to_be_installed(tmp_path: Path) -> None:
    distribution(tmp_path, "distcore-xgboost", GOOD, entry="xgboost", version="9")
    code = RESOLVE.replace('"mine"', '"xgboost"')
    answer = python(tmp_path, code, DISTCORE_BLOCK="distcore_xgboost").stdout
    assert "installed but blocked" in answer
    assert "pip install" not in answer


def test_a_model_from_python_meets_no_plugin_of_models_that_is_broken(tmp_path: Path) -> None:
    distribution(tmp_path, "bad-one", "raise OSError('libbad is gone')", kind="models")
    code = """
    import torch
    from distcore_core.errors import PluginBroken
    from distcore_core.registry.manager import Plugins
    print(Plugins().describe_model(torch.nn.Linear, True)[0]["type"])
    try: Plugins().describe_model(3, True)  # whose may it be?
    except PluginBroken as error: print(error)
    """
    module, broken = python(tmp_path, code).stdout.splitlines()
    assert module == "module"
    assert "libbad is gone" in broken


@pytest.mark.parametrize(
    ("stated", "advice"),
    [
        ("DISTCORE_API = (0, 9)", "Upgrade the plugin: pip install --upgrade odd-one"),
        ("DISTCORE_API = (2, 0)", "Upgrade the core: pip install --upgrade distcore"),
        ("DISTCORE_API = (1, 99)", "Upgrade the core"),
        ("", "does not state the API"),
        ("DISTCORE_API = '1.0'", "does not state the API"),
    ],
)
def test_a_plugin_for_another_api_is_refused_saying_which_side_to_upgrade(
    tmp_path: Path, stated: str, advice: str
) -> None:
    distribution(tmp_path, "odd-one", GOOD.replace("DISTCORE_API = (1, 0)", stated))
    answer = python(tmp_path, RESOLVE).stdout
    assert answer.startswith("PluginIncompatible")
    assert advice in answer


BOTH = """
from distcore_core.hooks import hookimpl

DISTCORE_API = {stated}

@hookimpl
def distcore_make_cache(name):
    return type("Format", (), {{"suffix": "", "write": None, "open": None}})()
"""
BROKEN_BACKENDS = """
import dataclasses
from distcore_core.contracts import BACKEND, CACHE_FORMAT, values
from distcore_core.registry import loader
loader.API_VERSION = (2, 0)
dataclasses.replace(BACKEND, since=(2, 0))  # a role is declared by being made
from distcore_core.errors import PluginIncompatible
from distcore_core.registry.manager import Plugins
plugins = Plugins()
print("cache", type(plugins.make(CACHE_FORMAT, "both")).__name__)
try:
    print("backend", plugins.load("backends", "both").__name__)
except PluginIncompatible as error:
    print("backend refused:", error)
"""


def test_a_break_of_one_role_refuses_no_plugin_of_another(tmp_path: Path) -> None:
    """A core whose backends broke with API 2.0: an older distribution's cache format still works,
    its backend is refused, and one that was written for 2.0 has both."""
    for stated, said in (
        ((1, 0), "takes the role backend from 2.0 to 2.0. Upgrade the plugin: pip install"),
        ((2, 0), "backend both_one"),
    ):
        folder = tmp_path / str(stated[0])
        folder.mkdir()
        offers = {"caches": ["both"], "backends": ["both"]}
        distribution(folder, "both-one", BOTH.format(stated=stated), offers=offers)
        answer = python(folder, BROKEN_BACKENDS).stdout
        assert answer.startswith("cache Format\n"), answer
        assert said in answer


def test_a_misspelt_hook_is_found(tmp_path: Path) -> None:
    distribution(
        tmp_path, "typo-one", GOOD + "\n@hookimpl\ndef distcore_make_trainr(name, options): ...\n"
    )
    answer = python(tmp_path, RESOLVE).stdout
    assert answer.startswith("PluginBroken")
    assert "distcore_make_trainr" in answer


def test_a_hook_with_an_argument_that_does_not_exist_is_found(tmp_path: Path) -> None:
    distribution(tmp_path, "typo-two", GOOD.replace("(name, options)", "(name, opts)"))
    answer = python(tmp_path, RESOLVE).stdout
    assert answer.startswith("PluginBroken")
    assert "opts" in answer


def test_a_factory_that_answers_none_is_an_error(tmp_path: Path) -> None:
    distribution(tmp_path, "none-one", GOOD.replace('("mine", "twin")', '("other",)'))
    assert "answered None" in python(tmp_path, RESOLVE).stdout


def test_a_factory_that_is_not_marked_is_told_so(tmp_path: Path) -> None:
    code = GOOD.replace("@hookimpl\ndef distcore_make_trainer", "def distcore_make_trainer")
    distribution(tmp_path, "unmarked-one", code)
    assert "is not marked with @hookimpl" in python(tmp_path, RESOLVE).stdout


def test_a_plugin_that_cannot_work_here_says_so_before_any_work(tmp_path):
    """Nothing is read and nothing is written; what it names as the way out is what the user
    reads."""
    distribution(
        tmp_path,
        "needs-more",
        GOOD
        + """
from distcore_core.errors import UserError
@hookimpl
def distcore_check(kind, name, options):
    if kind == "trainers": raise UserError("The engine is not built for this machine. Build it.")
""",
    )
    done = python(
        tmp_path,
        f"""
        import os
        os.chdir({str(tmp_path)!r})
        import distcore
        from distcore_core.errors import UserError
        from distcore_testing import data
        config = data.config("cache")
        config["backend"]["trainer"] = {{"type": "mine"}}
        before = set(os.listdir()) - {{"__pycache__"}}
        try:
            distcore.train(config, dataset=data.table(50))
        except UserError as error:
            print(error, set(os.listdir()) - {{"__pycache__"}} == before)
        """,
    )
    assert done.stdout.strip() == "The engine is not built for this machine. Build it. True", (
        done.stderr
    )


def test_a_process_that_is_led_never_comes_back_from_making_its_backend(tmp_path):
    """So a launcher's followers do their part, whatever the command, and the story is told once."""
    distribution(
        tmp_path,
        "led-by-another",
        """
from distcore_core.contracts import BackendBase
from distcore_core.hooks import hookimpl
DISTCORE_API = (1, 0)
class Led(BackendBase):
    name, defaults = "mine", {}
    def resources(self): raise NotImplementedError
    def run_group(self, group): raise NotImplementedError
    def map(self, function, items): raise NotImplementedError
    def close(self): pass
    def follow(self):
        print("my part")
        raise SystemExit(0)
@hookimpl
def distcore_make_backend(name, options):
    if name == "mine": return Led()
""",
        kind="backends",
    )
    code = """
        from distcore_testing import data
        from distcore import interface
        interface.plan(data.config("cache", backend={"type": "mine"}), data.table(20))
        print("never")
    """
    done = python(tmp_path, code)
    assert (done.returncode, done.stdout) == (0, "my part\n"), done.stderr


def test_an_unknown_name_gets_the_nearest_names_and_the_install_line() -> None:
    code = """
    from distcore_core.registry import index
    absent = {"distcore-ray", "distcore-hdf5"}  # installed here or not
    every = index.all_offers().items()
    left = {kind: [each for each in of if each.distribution not in absent] for kind, of in every}
    index.all_offers = lambda: left
    from distcore_core.registry.manager import Plugins
    from distcore_core.errors import PluginNotFound
    for kind, name in (("backends", "ray"), ("trainers", "dpd"), ("caches", "hdf5")):
        try: Plugins().find(kind, name)
        except PluginNotFound as error: print(error)
    """
    ray, ddp, hdf5 = python(Path("."), code).stdout.splitlines()
    assert "pip install distcore-ray" in ray
    assert "local" in ray.partition("Installed: ")[2]
    assert "Did you mean 'ddp'" in ddp
    assert "pip install distcore-hdf5" in hdf5


def test_options_that_a_plugin_does_not_take_are_refused(tmp_path: Path) -> None:
    distribution(tmp_path, "good-one", GOOD)
    answer = python(tmp_path, RESOLVE.replace('"mine")', '"mine", {"depth": 3})')).stdout
    assert answer.startswith("ConfigError")
    assert "takes no options" in answer


def test_options_that_are_no_pydantic_model_are_the_plugins_fault(tmp_path: Path) -> None:
    source = GOOD + "@hookimpl\ndef distcore_options_model(kind, name): return dict\n"
    distribution(tmp_path, "good-one", source)
    answer = python(tmp_path, RESOLVE).stdout
    assert answer.startswith("PluginBroken | good-one 1.0 offers trainer 'mine', but its")
    assert "what it gave (<class 'dict'>) is no pydantic model" in answer


def test_an_extension_may_wrap_a_factory(tmp_path: Path) -> None:
    """firstresult hooks can be wrapped, which is how an extension changes what a plugin makes."""
    distribution(tmp_path, "good-one", GOOD)
    code = """
    from distcore_core.contracts import TRAINER
    from distcore_core.hooks import hookimpl
    from distcore_core.registry.manager import Plugins
    class Louder:
        @hookimpl(wrapper=True)
        def distcore_make_trainer(self, name, options):
            made = yield
            made.wrapped = True
            return made
    plugins = Plugins()
    plugins.listen(Louder(), "louder")
    print(plugins.make(TRAINER, "mine").wrapped)
    """
    assert python(tmp_path, code).stdout == "True\n"


def test_what_lacks_a_part_of_its_role_is_refused_by_the_name_of_the_part(tmp_path: Path) -> None:
    distribution(tmp_path, "good-one", GOOD.replace("    def load(", "    def open("))
    answer = python(tmp_path, RESOLVE).stdout
    assert (
        "good-one 1.0 offers trainer 'mine', but what its distcore_make_trainer made has no load"
        in answer
    )


def test_every_role_has_its_factory_among_the_hooks_and_its_own_kind() -> None:
    specs = {name for name, each in vars(hooks).items() if hasattr(each, f"{hooks.PROJECT}_spec")}
    asked = {MEMBER_HOOK, *(role.hook for role in ROLES.values())}
    assert {name for name in specs if name.startswith("distcore_make_")} <= asked <= specs
    assert all(role.kind == kind for kind, role in ROLES.items())


@pytest.mark.parametrize("arguments", ["", "name", "kind, name", "options", "kind, name, options"])
def test_a_check_may_take_fewer_arguments(tmp_path: Path, arguments: str) -> None:
    """Only then can arguments be added to a hook without breaking anyone."""
    check = f"@hookimpl\ndef distcore_check({arguments}): raise ValueError('looked')\n"
    distribution(tmp_path, "good-one", GOOD + check)
    code = """
    from distcore_core.errors import PluginBroken
    from distcore_core.registry.manager import Plugins
    try:
        Plugins().check("trainers", "mine", {})
    except PluginBroken as error:
        print(error)
    """
    assert python(tmp_path, code).stdout == (
        "good-one 1.0 offers trainer 'mine', but its distcore_check raised ValueError: looked. "
        "Report this to its authors.\n"
    )


def test_the_check_of_a_plugin_asks_no_other(tmp_path: Path) -> None:
    check = "@hookimpl\ndef distcore_check(): raise ValueError('looked')\n"
    distribution(tmp_path, "good-one", GOOD + check)
    distribution(tmp_path, "other-one", GOOD.replace('"mine"', '"other"'), entry="other")
    code = """
    from distcore_core.registry.manager import Plugins
    plugins = Plugins()
    plugins.load("trainers", "mine")
    plugins.check("trainers", "other", {})
    print("fine")
    """
    assert python(tmp_path, code).stdout == "fine\n"


def test_listing_imports_no_plugin_into_this_process() -> None:
    code = """
    import sys
    from distcore.workflow.listing import rows
    from distcore_core.registry.manager import Plugins
    rows(Plugins())
    print([name for name in sys.modules if name.startswith("distcore_") and not name.startswith("distcore_core")])
    """
    assert python(Path("."), code).stdout == "[]\n"


def test_whoever_offers_what_a_config_names_is_told_where_it_is_not_installed():
    kinds = ("backends", "processors", "loaders", "caches", "features", "models", "trainers")
    for kind in (*kinds, "executors"):
        for offer in all_offers()[kind]:
            if offer.distribution in INSTALL_HINTS.values():
                assert INSTALL_HINTS.get(f"{kind}:{offer.name}") == offer.distribution
