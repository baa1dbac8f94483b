"""The optional C part: sums of tables along the tree of exact training; everything else about the
package is in pyproject.toml.

Where no C compiler is, the package is built without it, and torch does the same.
"""

from setuptools import Extension, setup

TABLES = Extension(
    "distcore_torch.training.exact._tables",
    sources=["src/distcore_torch/training/exact/_tables.c"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[TABLES], options={"bdist_wheel": {"py_limited_api": "cp311"}})
