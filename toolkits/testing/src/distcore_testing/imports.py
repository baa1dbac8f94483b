"""What importing something costs, measured in a process of its own: the modules of others that it
brings, the time, and what it does besides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

MODULES = 60
"""Most modules of other distributions that something light brings: pydantic has about 80, numpy
130, torch 1,500."""

SHARE = 3.0
"""Most time that it takes, in times of what core itself takes."""

TIMES = 3
"""How often it is measured at most; the shortest counts, because the machine may be busy."""

AROUND = """
import sys
started, written, acted = [], [], []
def hook(event, arguments):
    if event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec", "os.system",
                 "os.forkpty", "os.spawn"):
        started.append(event)
    elif event == "open" and isinstance(arguments[0], str) and isinstance(arguments[1], str):
        if set(arguments[1]) & set("wax+") and not arguments[0].endswith(".pyc"):
            if ".pyc." not in arguments[0] and not arguments[0].startswith("/dev/"):
                written.append(arguments[0])
    elif event in ("os.mkdir", "os.remove", "os.rename", "os.rmdir"):
        if "__pycache__" not in str(arguments[0]):
            acted.append(event + " " + str(arguments[0]))
    elif event in ("socket.connect", "socket.bind", "socket.getaddrinfo"):
        acted.append(event + " " + str(arguments[1:2]))
def state():
    import os, signal, threading
    import logging, warnings
    handlers = [repr(each) for each in logging.getLogger().handlers]
    return json.dumps([sorted(os.environ.items()), os.getcwd(), threading.active_count(),
        [repr(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM)],
        handlers, len(warnings.filters), repr(sys.excepthook), repr(sys.stdout)])
import json, time, importlib.metadata, pluggy
begun = time.perf_counter()
import distcore_core.registry.manager
distcore_core.registry.manager.Plugins().names("backends")
core = time.perf_counter() - begun
{first}
first, before, known = state(), set(sys.modules), time.perf_counter()
sys.addaudithook(hook)
"""

AFTER = """
seconds = time.perf_counter() - known
brought = sorted(set(sys.modules) - before)
changed = [] if state() == first else ["the environment, signals, threads, handlers or filters"]
print("MEASURED" + json.dumps(dict(seconds=seconds, core=core, modules=brought, started=started,
    written=written, acted=acted, changed=changed)))
"""


def in_a_child(code: str, first: str = "") -> dict[str, Any]:
    """Run the code in a process of its own. first: code that is run before, and does not count.

    Returns:
        {"seconds", "core": of importing core alone, "modules": brought, "started": processes,
        "written": files, "acted": on files and sockets, "changed": of the process, "printed"}.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", AROUND.replace("{first}", first) + code + AFTER],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    printed, _, measured = done.stdout.rpartition("MEASURED")
    return {**json.loads(measured), "printed": printed}


def check_light(found: Mapping[str, Any], own: str = "") -> None:
    """Few modules of others were brought, and nothing was done. own: the package that was asked
    for, whose modules do not count."""
    foreign = [
        name
        for name in found["modules"]
        if name.partition(".")[0] not in (*sys.stdlib_module_names, own, "__mp_main__")
    ]
    counts: dict[str, int] = {}
    for name in foreign:
        counts[name.partition(".")[0]] = counts.get(name.partition(".")[0], 0) + 1
    heaviest = sorted(counts.items(), key=lambda each: -each[1])[:5]
    assert len(foreign) <= MODULES, f"it imports {len(foreign)} modules of others: {heaviest}"
    assert not found["started"], "it starts processes"
    assert not found["written"], "it writes files"
