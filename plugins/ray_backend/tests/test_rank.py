"""What a rank tells its worker through the socket."""

from multiprocessing import Pipe

from distcore_ray import rank


def test_the_last_numbers_are_told_of_a_stage_that_ended_between_two_looks(monkeypatch):
    """The loop ends its stage as soon as its last step is done: the driver's last line counts
    every row."""
    monkeypatch.setattr(rank, "SECONDS", 0.01)
    ours, theirs = Pipe()
    monkeypatch.setattr(rank, "_line", [rank.Line(theirs)])
    with rank.RankReporter().reporting() as progress:
        progress.begin("train", 10, "steps", 64)
        progress.done = 7
        while ours.recv()[1].done != 7:
            continue
        progress.done = 10
        progress.end()
    theirs.close()
    told = []
    while ours.poll():
        try:
            told.append(ours.recv())
        except EOFError:
            break
    assert told[-1][0] == "numbers"
    assert (told[-1][1].done, told[-1][1].rows_per_unit) == (10, 64)
