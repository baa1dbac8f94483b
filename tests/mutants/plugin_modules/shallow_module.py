from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_extension(name):
    return object() if name == "shallow_module" else None


@hookimpl
def distcore_options_model(kind, name):
    from pydantic import BaseModel, ConfigDict

    class Inner(BaseModel):
        size: int = 1

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")
        inner: Inner = Inner()

    return Options if name == "shallow_module" else None
