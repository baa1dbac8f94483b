"""The optional C parts: products and sums of exact training, fingerprints, and rows of batches;
everything else about the package is in pyproject.toml.

Where no C compiler is, the package is built without them, and torch and numpy do the same.
"""

from setuptools import Extension, setup

EXTENSIONS = [
    Extension(
        f"distcore_torch.{name}",
        sources=[f"src/distcore_torch/{name.replace('.', '/')}.c"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=True,
        optional=True,
    )
    for name in ("_gather", "_products", "training._sums")
]

setup(ext_modules=EXTENSIONS, options={"bdist_wheel": {"py_limited_api": "cp311"}})
