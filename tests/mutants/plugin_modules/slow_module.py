import time

from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

time.sleep(8)


@hookimpl
def distcore_make_extension(name):
    return object() if name == "slow_module" else None
