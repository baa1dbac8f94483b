"""What a rank of the sound backend runs: a module of its own, so that a rank imports nothing
heavy."""

from distcore_core.contracts import Rank


def run(pipe, function, rank, world, arguments):
    try:
        pipe.send(function(Rank(index=rank, world=world, local_rank=rank), *arguments))
    except ValueError as error:
        pipe.send(str(error))
