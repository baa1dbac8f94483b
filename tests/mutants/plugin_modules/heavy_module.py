"""An extension that imports at once what only a run needs."""

import numpy as np

from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_extension(name):
    return np.zeros(1) if name == "heavy_module" else None
