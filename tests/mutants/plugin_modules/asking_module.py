import subprocess
import sys

from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

VERSION = subprocess.run([sys.executable, "--version"], capture_output=True, check=True).stdout


@hookimpl
def distcore_make_extension(name):
    return object() if name == "asking_module" else None
