"""The built-in stores hold what every store must hold."""

import uuid

from distcore_testing import StoreSuite


class TestFolder(StoreSuite):
    name = "file"

    def address(self, folder):
        return str(folder / "store")


class TestFileAddress(StoreSuite):
    name = "file"

    def address(self, folder):
        return f"file://{folder}/store"


class TestMemory(StoreSuite):
    """fsspec's files in memory, through what every bucket goes through."""

    name, processes = "memory", False

    def address(self, folder):
        return f"memory://bucket/{uuid.uuid4().hex}"
