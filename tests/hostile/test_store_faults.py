"""A bucket that answers 503, breaks off, loses answers or is slow, at any request of a run whose
results lie in it."""

from tests.hostile.test_killed_anywhere import in_bucket  # noqa: F401 - a fixture

from distcore_testing.buckets import Fault, fresh


def test_an_experiment_whose_results_are_in_a_bucket(in_bucket, sweep):  # noqa: F811
    in_bucket.undisturbed()
    requests = list(in_bucket.proxy.seen)
    count, met = sweep.times(2, 40), 0
    for _ in range(count):
        faults = []
        for _ in range(sweep.random.randrange(1, 6)):
            method, path = sweep.random.choice(requests)
            kind = sweep.random.choice(["503", "503", "lost", "reset", "slow"])
            # A store that answers is asked for minutes; one that does not, six times.
            times = sweep.random.randrange(1, 40 if kind == "503" else 4)
            faults.append(Fault(kind, method, path.partition("?")[0], times=times, seconds=0.1))
        given = sum(each.times for each in faults)
        fresh(in_bucket.proxy, in_bucket.client)
        in_bucket.proxy.expect(*faults)
        done = in_bucket.run()
        assert done["code"] == 0, (faults, done["said"])
        met += given - sum(each.times for each in faults)
        in_bucket.proxy.expect()
        found = in_bucket.objects()
        assert set(found) == in_bucket.names, (faults, in_bucket.names ^ set(found))
        assert not [name for name in in_bucket.bytes if found[name] != in_bucket.bytes[name]], (
            faults
        )
        assert set(in_bucket.place.listing()) == in_bucket.files, faults
    sweep.tried(
        "a bucket that answers 503, breaks off, loses an answer or is slow, at random requests of "
        "`experiment`",
        count,
        f"{met:,} faults; each ended with the objects of an undisturbed run",
    )
