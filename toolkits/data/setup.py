"""The optional C reader of delimited text; everything else about the package is in pyproject.toml.

Where no C compiler is, the package is built without it and Arrow reads delimited text alone.
"""

from setuptools import Extension, setup

PLAINTEXT = Extension(
    "distcore_data.sources._plaintext",
    sources=["src/distcore_data/sources/_plaintext.c"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[PLAINTEXT], options={"bdist_wheel": {"py_limited_api": "cp311"}})
