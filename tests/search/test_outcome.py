"""What a search leaves when it is interrupted."""

from distcore.search.outcome import delivered_before


def test_an_earlier_end_s_model_is_no_trial_s_if_none_is_there(tmp_path):
    """An IndexError hid that the search was stopped."""
    assert delivered_before(tmp_path, []) is None
