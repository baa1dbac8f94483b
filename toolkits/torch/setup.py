"""The optional C part: sums of exact training and of fingerprints; everything else about the
package is in pyproject.toml.

Where no C compiler is, the package is built without it, and torch does the same.
"""

from setuptools import Extension, setup

SUMS = Extension(
    "distcore_torch.training._sums",
    sources=["src/distcore_torch/training/_sums.c"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[SUMS], options={"bdist_wheel": {"py_limited_api": "cp311"}})
