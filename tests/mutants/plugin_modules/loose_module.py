"""An extension that takes any option."""

from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_options_model(kind, name):
    from pydantic import BaseModel, ConfigDict

    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow")

    return Loose if (kind, name) == ("extensions", "loose_module") else None
