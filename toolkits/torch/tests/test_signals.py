"""Signals as one exception: which are taken, who is asked, what waits for imports, what comes
again, who is ended."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest

from distcore_core.errors import OtherRank, Stopped
from distcore_torch import signals
from distcore_torch.signals import ENDING, Stoppable, how_it_ended, named
from distcore_torch.training.interrupt import Interrupt

BEGIN = """
import os, signal, sys, threading, time
from distcore_torch.signals import *
from distcore_torch.training.interrupt import Interrupt

def send(number=signal.SIGTERM, after=0.0):
    threading.Timer(after, os.kill, (os.getpid(), number)).start()
"""


@pytest.fixture(autouse=True)
def as_from_a_terminal():
    """A shell that runs tests in the background has them ignore ctrl-C and SIGQUIT."""
    before = {each: signal.signal(each, signal.SIG_DFL) for each in ENDING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def program(text: str, seconds: float = 300, **options) -> subprocess.CompletedProcess:
    """The text as a program of its own, which must end by itself."""
    words = [sys.executable, "-c", BEGIN + textwrap.dedent(text)]
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds, **options)


def killed(*numbers):
    """Send signals to this process, and wait for them to be told."""
    for number in numbers:
        os.kill(os.getpid(), number)
    time.sleep(60)


def handlers():
    return {number: signal.getsignal(number) for number in ENDING}


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_one_exception_and_handlers_are_put_back(number):
    before = handlers(), sys.unraisablehook, signal.set_wakeup_fd(-1)
    with Stoppable() as stopping, pytest.raises(Stopped) as found:
        killed(number)
    assert (found.value.signal, found.value.exit_code) == (number, 128 + number)
    assert isinstance(found.value, KeyboardInterrupt)
    assert stopping.received == number
    assert (handlers(), sys.unraisablehook, signal.set_wakeup_fd(-1)) == before


def test_what_travels():
    again = pickle.loads(pickle.dumps(Stopped("Kept.", 15)))  # noqa: S301
    assert (str(again), again.exit_code) == ("Kept.", 143)
    rank = pickle.loads(pickle.dumps(OtherRank(3)))  # noqa: S301
    assert (rank.code, rank.rank) == (0, 3)
    assert "Rank 3" in str(rank)
    assert [named(each) for each in ENDING] == ["ctrl-C", "SIGTERM", "SIGHUP", "SIGQUIT"]


def test_what_is_ignored_stays_ignored_and_a_handler_of_the_callers_stays():
    def mine(number, frame):
        raise LookupError

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.signal(signal.SIGTERM, mine)
    try:
        with Stoppable(), pytest.raises(LookupError):
            killed(signal.SIGHUP, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before[0])
        signal.signal(signal.SIGTERM, before[1])


def test_off_the_main_thread_nothing_is_done():
    found = []

    def work():
        with Stoppable(), Interrupt() as interrupt:
            found.append((handlers(), interrupt.asked, Stoppable.active))

    before = handlers()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(before, False, None)]


def ask(interrupt):
    os.kill(os.getpid(), signal.SIGTERM)
    while not interrupt.asked:
        time.sleep(0.001)


def test_whoever_is_asked_ends_by_itself(monkeypatch):
    monkeypatch.setattr("distcore_torch.signals.SAME_PRESS_SECONDS", 600.0)

    def work():
        with Interrupt() as interrupt:
            ask(interrupt)
            os.kill(os.getpid(), signal.SIGTERM)  # from the launcher, too
            time.sleep(0.01)
            raise interrupt.stopped("Saved.")

    with pytest.raises(Stopped, match="Saved") as found:
        work()
    assert found.value.signal == signal.SIGTERM


def test_who_comes_to_its_end_after_it_was_asked_is_stopped_all_the_same():
    with pytest.raises(Stopped), Interrupt() as interrupt:
        ask(interrupt)


def test_a_second_signal_does_not_wait(monkeypatch):
    monkeypatch.setattr("distcore_torch.signals.SAME_PRESS_SECONDS", 0.1)

    def impatient():
        while True:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.02)

    with (
        pytest.raises(Stopped, match="The last is 7"),
        Interrupt(last_words=lambda: "The last is 7."),
    ):
        impatient()


def test_a_signal_waits_for_the_import_that_is_under_way(tmp_path):
    """Also when it is sent in the middle of it, and whoever is asked is not asked before."""
    (tmp_path / "slowly.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(0.3)\n"
        "done = True\n"
    )
    done = program(
        f"""
        sys.path.insert(0, {str(tmp_path)!r})
        try:
            with Stoppable():
                import slowly
                time.sleep(60)
        except KeyboardInterrupt as error:
            print(error.signal, sys.modules["slowly"].done)
        """
    )
    assert done.stdout == "15 True\n", done.stderr


def test_a_signal_waits_while_python_tries_the_temporary_folder(tmp_path):
    done = program(
        """
        import tempfile
        opened = os.open

        def stopped(*which):
            handle = opened(*which)
            os.kill(os.getpid(), signal.SIGTERM)
            return handle

        with Stoppable():
            os.open = stopped
            try:
                tempfile.gettempdir()
                time.sleep(60)
            except KeyboardInterrupt as error:
                print(error.signal, os.listdir(os.environ["TMPDIR"]))
        """,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.stdout == "15 []\n", done.stderr


def test_a_script_that_is_itself_being_imported_can_be_stopped(tmp_path):
    (tmp_path / "script.py").write_text(
        "import time\nfrom distcore_torch.signals import Stoppable\nfrom __main__ import send\n"
        "with Stoppable():\n    send()\n    time.sleep(60)\n"
    )
    done = program(f"sys.path.insert(0, {str(tmp_path)!r})\nimport script")
    assert "Stopped" in done.stderr


@pytest.mark.parametrize("how", ["a destructor", "a library that swallows it"])
def test_what_nobody_caught_comes_again(how):
    done = program(
        f"""
        swallowed = []

        class Ends:
            def __del__(self):
                try:
                    send()
                    time.sleep(60)
                finally:
                    swallowed.append("once")

        def swallow():
            try:
                send()
                time.sleep(60)
            except BaseException:
                swallowed.append("once")

        try:
            with Stoppable():
                Ends() if {how!r} == "a destructor" else swallow()
                time.sleep(60)
        except KeyboardInterrupt:
            print(*swallowed, "stopped")
        """
    )
    assert (done.stdout, done.stderr) == ("once stopped\n", "")


STUCK = """
import ctypes
lock = ctypes.create_string_buffer(64)
with Stoppable(owns_process={owns}), Interrupt({grace}, lambda: "The last checkpoint is 7."):
    send(); {second}
    ctypes.CDLL(None).pthread_mutex_lock(lock)
    ctypes.CDLL(None).pthread_mutex_lock(lock)
"""


@pytest.mark.parametrize("owns", [True, False])
def test_the_process_ends_where_the_grace_does_although_a_library_does_not_return(owns):
    hurry = "signals.HURRY_SECONDS = 0.3"
    done = program(
        f"from distcore_torch import signals; {hurry}"
        + STUCK.format(second="", owns=owns, grace=0.2)
    )
    assert done.returncode == 143
    said = "distcore: ended by SIGTERM, after trainer.grace_seconds. The last checkpoint is 7.\n"
    assert done.stderr == said


def test_the_process_ends_at_a_second_signal_although_a_library_does_not_return():
    hurry = "signals.HURRY_SECONDS = 0.3; signals.SAME_PRESS_SECONDS = 0.1"
    # Two that come together, as on a busy machine, are one; so there are some more.
    more = "[send(after=each) for each in range(1, 10)]"
    text = STUCK.format(second=more, owns=True, grace=600)
    done = program(f"from distcore_torch import signals; {hurry}" + text)
    assert done.returncode == 143
    assert (
        done.stderr
        == "distcore: ended by SIGTERM, at the second signal. The last checkpoint is 7.\n"
    )


def test_who_takes_longer_than_the_grace_in_python_can_still_clean_up():
    done = program(
        """
        try:
            with Interrupt(0.2, lambda: "The last checkpoint is 7."):
                send()
                while True:
                    time.sleep(0.01)
        except KeyboardInterrupt as error:
            print("cleaned up:", error)
        """
    )
    assert done.stdout == "cleaned up: The last checkpoint is 7.\n", done.stderr


def test_a_forked_child_is_none_of_ours():
    done = program(
        """
        with Stoppable() as stopping:
            child = os.fork()
            if not child:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
            print(os.waitpid(child, 0)[1], stopping.received)
        """
    )
    assert done.stdout == "15 0\n", done.stderr


def test_in_a_child_that_a_thread_forked_a_signal_that_was_swallowed_comes_again():
    """The thread that looks asked for a main thread that only the parent has, and ended."""
    done = program(
        """
        class Deaf:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.3)

        def child():
            try:
                with Stoppable(owns_process=True):
                    Deaf()
                    time.sleep(10)
            except KeyboardInterrupt as error:
                os._exit(error.signal)
            os._exit(1)

        def work():
            child() if not (number := os.fork()) else print(os.waitpid(number, 0)[1] >> 8)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """
    )
    assert done.stdout == "15\n", done.stderr


def test_signals_that_were_blocked_while_a_process_started_are_let_through():
    blocked = """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        with Stoppable(owns_process=True):
            time.sleep(60)
    except KeyboardInterrupt as error:
        print(error.signal)
    """
    assert program(blocked).stdout == "15\n"


@pytest.mark.parametrize("number", ENDING)
def test_when_the_work_is_over_a_signal_changes_nothing(number):
    """While the interpreter shuts down, too."""
    done = program(
        f"""
        import atexit

        def late():
            os.kill(os.getpid(), {int(number)})
            time.sleep(0.1)
            print("late")

        atexit.register(late)
        with Stoppable(owns_process=True, to_the_end=True):
            print("done")
        os.kill(os.getpid(), {int(number)})
        time.sleep(0.1)
        print("after")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\nafter\nlate\n", "")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (7, "ended with exit code 7"),
        (-9, "was killed by SIGKILL"),
        (-signal.SIGRTMIN - 1, f"was killed by signal {signal.SIGRTMIN + 1}"),
    ],
)
def test_how_a_process_ended_is_told_of_every_signal(code, words):
    assert how_it_ended(code) == words


@pytest.mark.parametrize("words", ["The last is 7.", None])
def test_a_forced_end_comes_though_nobody_reads_and_no_word_is_to_be_had(monkeypatch, words):
    """stderr closed with the terminal, or with `| tee`; a disk that does not answer."""

    def last_words():
        if words is None:
            raise OSError("Stale file handle")
        return words

    def broken(number, data):
        raise BrokenPipeError

    ended = []
    monkeypatch.setattr(signals, "os", SimpleNamespace(write=broken, _exit=ended.append))
    monkeypatch.setattr(signals.select, "select", lambda *_: ([], [2], []))
    stoppable = Stoppable(owns_process=True)
    stoppable._first, stoppable._why = signal.SIGTERM, "at the second signal"
    stoppable._last_words = last_words
    with pytest.raises(BrokenPipeError):
        stoppable._end()
    assert ended == [143]
    assert stoppable._words() == (words or "")


def settings():
    fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd)
    handlers = [signal.getsignal(each) for each in ENDING]
    return handlers, fd, sys.unraisablehook, Stoppable.active


@pytest.mark.parametrize("where", ["begins", "ends"])
def test_ctrl_c_while_the_block_begins_or_ends_leaves_all_as_it_was(monkeypatch, where):
    """Of a program that goes on after it, no later call could be stopped, and its thread stayed."""
    before, start, set_handler = settings(), threading.Thread.start, signal.signal

    def interrupted_start(thread):
        start(thread)
        raise KeyboardInterrupt

    def interrupted_handler(number, handler):
        set_handler(number, handler)
        if number == signal.SIGINT and handler == before[0][0]:
            raise KeyboardInterrupt

    if where == "begins":
        monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    else:
        monkeypatch.setattr(signal, "signal", interrupted_handler)
    with pytest.raises(KeyboardInterrupt), Stoppable():
        pass
    monkeypatch.undo()
    assert settings() == before
    until = time.monotonic() + 20
    while any(each.name == "distcore-signals" for each in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)
