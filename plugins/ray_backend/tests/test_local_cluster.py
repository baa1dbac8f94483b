"""The cluster that is started if there is none: of this machine alone, locked, quiet, and gone
afterwards."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.cluster

PROGRAM = """
import json, logging, sys, psutil
logging.basicConfig(format="%(message)s", level=logging.INFO)
for name in ("ray", "distcore"):
    logging.getLogger(name).setLevel(logging.INFO)
from distcore_core.contracts import BACKEND
from distcore_core.registry.manager import Plugins

backend = Plugins().make(BACKEND, "ray", {"num_cpus": 2})
asked = vars(backend.resources())
assert "ray" not in sys.modules, "asking what there would be needs no Ray"
answers = list(backend.map(abs, [-1, 2]))
import os, ray
me = psutil.Process()
ours = [me, *me.children(recursive=True)]
listening = set()
for each in ours:
    try:
        listening |= {c.laddr.ip for c in each.net_connections("tcp") if c.status == "LISTEN"}
    except psutil.NoSuchProcess:
        pass
found = dict(asked=asked, started=vars(backend.resources()), answers=answers, listening=sorted(listening))
found |= dict(mode=os.environ.get("RAY_AUTH_MODE"), home=os.path.exists(os.path.expanduser("~/.ray/auth_token")))
folder = ray._private.worker._global_node.get_session_dir_path()
found["session"] = os.path.isdir(folder)
backend.close()
found["left"] = os.path.lexists(folder) or os.path.realpath(folder + "/../session_latest") == folder
gone, alive = psutil.wait_procs(ours[1:], timeout=60)
print(json.dumps({**found, "alive": [each.name() for each in alive]}))
"""

LATER = """
from distcore_core.contracts import BACKEND
from distcore_core.registry.manager import Plugins

backend = Plugins().make(BACKEND, "ray", {"num_cpus": 1})
results = backend.map(abs, list(range(50)))
assert next(results) == 0
backend.close()
results.close()  # as when the traceback goes that held them
import ray
print(ray.is_initialized())
"""


def alone(program, home):
    """A program in a process of its own that knows of no cluster, when it has ended."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=400,
    )


def test_tasks_that_are_dropped_after_the_end_start_no_other_cluster(tmp_path):
    """Ray's `cancel` starts one where there is none: a disk that was full
    under a prediction's pieces left it and its folder."""
    done = alone(LATER, tmp_path)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_it_is_locked_quiet_and_gone_afterwards(tmp_path):
    done = alone(PROGRAM, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["answers"] == [1, 2]
    assert (found["asked"]["cpus"], found["asked"]["nodes"]) == (2, 1)
    assert (found["started"]["cpus"], found["started"]["nodes"]) == (2, 1)
    assert found["mode"] == "token"
    assert found["home"]
    assert found["alive"] == []
    assert (found["session"], found["left"]) == (True, False)
    assert found["listening"]
    assert all(
        each.startswith("127.") or each in ("::1", "::ffff:127.0.0.1")
        for each in found["listening"]
    )
    lines = [
        line for line in done.stderr.splitlines() if "trying once more" not in line
    ]  # a busy machine
    assert lines == [
        "Started a Ray cluster on this machine alone (2 CPUs, 0 GPUs, with a token); it ends with "
        "this run."
    ]
