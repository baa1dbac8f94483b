"""For every test of the workspace: the same examples of a property in every run, so that a change
is judged by what it changed (`make faults` draws new ones), and no time limit for one, because a
busy machine is no bug; ctrl-C as on a terminal; the logger as it was before; another user; a small
Ray; and `--part`."""

import gc
import json
import logging
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

NEW_EXAMPLES = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("new-examples", NEW_EXAMPLES)
settings.register_profile("distcore", NEW_EXAMPLES, derandomize=True, database=None)
settings.load_profile("distcore")

# What a shell starts in the background ignores ctrl-C, what `nohup` starts SIGHUP; and so does
# whatever that starts.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def _synced(file: Any) -> None:
    """`os.fsync` for the tests' own process: only a loss of power would tell the difference, and
    some ten thousand files waited for the disk. What a test starts waits for it."""
    os.fstat(file if isinstance(file, int) else file.fileno())


os.fsync = _synced


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--part`, by which CI runs a share of the tests at a time."""
    text = "run every N-th of the chosen tests, from the K-th on, each with all of its parameters"
    parser.addoption("--part", metavar="K/N", default="1/1", help=text)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """What ten thousand tests and their modules are stays until the end: the garbage collector
    never looks at it again. One pass took 0.8 s, and tests ask for passes or meet them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of all other parts out."""
    number, parts = map(int, config.getoption("part").split("/"))
    if not 1 <= number <= parts:
        raise pytest.UsageError(f"--part {number}/{parts}: give K/N with K from 1 to N.")
    places: dict[str, int] = {}
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        place = places.setdefault(item.nodeid.partition("[")[0], len(places))
        (chosen if place % parts == number - 1 else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


LOGGER = logging.getLogger("distcore")
HANDLERS, LEVEL, PROPAGATE = LOGGER.handlers[:], LOGGER.level, LOGGER.propagate


@pytest.fixture(autouse=True)
def _logger_as_before() -> Iterator[None]:
    """A command sets the logger up for its process; called within a test, or within a fixture of
    a module, it would for all tests after it."""
    _set_back()
    yield
    _set_back()


def _set_back() -> None:
    LOGGER.handlers[:] = HANDLERS
    LOGGER.setLevel(LEVEL)
    LOGGER.propagate = PROPAGATE


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that any user may read: pytest's own, and TMPDIR, may be their user's alone."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def as_another_user() -> Callable[[Callable[[], Any]], Any]:
    """`as_another_user(call)` is what call() returns, by way of JSON, where another user runs it:
    whoever may do anything, as root may, is refused nothing. What it needs has to be imported by
    then, for another user may not read the environment."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")

    def run(call: Callable[[], Any]) -> Any:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"
                os.setuid(65534)
                told = json.dumps({"returned": call()})
            except BaseException:  # noqa: BLE001 - it is told, and raised on the other side
                told = json.dumps({"raised": traceback.format_exc()})
            with os.fdopen(writing, "w") as file:
                file.write(told)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as file:
            found = json.load(file)
        os.waitpid(child, 0)
        assert "raised" not in found, found["raised"]
        return found["returned"]

    return run


@pytest.fixture
def in_a_minute() -> Iterator[None]:
    """Ends a test that would wait for ever, such as for a pipe that nobody writes to."""

    def late(*_: object) -> None:
        raise AssertionError("it still waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """Ray on two CPUs of this machine. It gives its own start half a minute, which a busy machine
    may not keep."""
    import ray

    for left in reversed(range(4)):
        try:
            ray.init(
                address="local",
                num_cpus=2,
                include_dashboard=False,
                log_to_driver=False,
                object_store_memory=256 << 20,
            )
            break
        except Exception as error:  # Ray raises a bare Exception
            ray.shutdown()
            if not left or "timed out during startup" not in str(error):
                raise
    yield ray
    ray.shutdown()
