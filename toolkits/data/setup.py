"""The optional C parts: readers of delimited text, Parquet's columns, short floats and dates, sums
and codes of numbers, and distinct texts; everything else about the package is in pyproject.toml.

Where no C compiler is, the package is built without them, and Arrow and numpy do the same.
"""

from setuptools import Extension, setup

EXTENSIONS = [
    Extension(
        f"distcore_data.{name}",
        sources=[f"src/distcore_data/{name.replace('.', '/')}.c"],
        include_dirs=["src/distcore_data"],
        depends=["src/distcore_data/texthash.h", "src/distcore_data/encoding/runs.h"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=True,
        # What is one operation of the source is one of the processor: exact sums count on it.
        extra_compile_args=["-ffp-contract=off"],
        optional=True,
    )
    for name in (
        *("sources._plaintext", "sources._columns", "sources._floats"),
        *("encoding._dates", "encoding._numbers", "encoding._texts"),
    )
]

setup(ext_modules=EXTENSIONS, options={"bdist_wheel": {"py_limited_api": "cp311"}})
