"""What is installed: read from metadata only when it is asked for."""

from importlib.metadata import version

__version__ = version("distcore")
