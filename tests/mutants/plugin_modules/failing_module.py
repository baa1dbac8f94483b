from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_extension(name):
    if name == "failing_module":
        raise AttributeError("'NoneType' object has no attribute 'path'")
