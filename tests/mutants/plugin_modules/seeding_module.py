from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_extension(name):
    if name == "seeding_module":
        import numpy

        numpy.random.seed(1)
        return object()
