"""A sparse file reads as a file in memory that was written to in the same way."""

import io

from hypothesis import given
from hypothesis import strategies as st

from distcore_hdf5.sparse import PAGE, SparseFile

PLACES = st.integers(0, 5 * PAGE)
STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "read"]), PLACES, st.integers(0, 2 * PAGE)), max_size=12
)


@given(STEPS)
def test_it_reads_as_a_file_in_memory(steps):
    ours, plain = SparseFile(), io.BytesIO()
    for number, (step, place, length) in enumerate(steps):
        for file in (ours, plain):
            file.seek(place)
        if step == "write" and length:
            data = bytes([number + 1]) * length
            assert ours.write(data) == plain.write(data)
        else:
            assert ours.read(length) == plain.read(length)
        assert ours.seek(0, io.SEEK_END) == len(plain.getvalue())
    assert ours.part(0, len(plain.getvalue())).tobytes() == plain.getvalue()


def test_what_lies_between_takes_no_memory():
    file = SparseFile()
    for place in (0, 1 << 40):
        file.seek(place)
        file.write(b"1")
    assert len(file._pages) == 2
    assert file.part((1 << 40) - 3, (1 << 40) + 1).tobytes() == b"\0\0\0001"
