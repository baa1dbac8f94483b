"""Dates: what is read as one, what it is encoded as, and its encoders."""

import datetime
import locale
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.config.issues import validate
from distcore_core.contracts import Column
from distcore_core.errors import ConfigError, DataError
from distcore_data.encoding import dates
from distcore_tabular import options_date
from distcore_tabular.date import DateFeature
from distcore_tabular.date_texts import parse
from distcore_tabular.options_date import DateInput

MISSING = [0] * 9


def feature(encoder=None, **preprocessing):
    values = {"preprocessing": preprocessing, **({"encoder": encoder} if encoder else {})}
    return DateFeature("d", "input", validate(DateInput, values, ""))


def column(*values):
    return pa.array(values, pa.string()).dictionary_encode()


def codes(made, *values, fitted=("2020-01-01",)):
    metadata = made.finish(made.partial(column(*fitted)))
    return made.encode(column(*values), metadata).to_pylist()


def parts_of(when):
    """As Ludwig's date_to_list."""
    clock = [when.hour, when.minute, when.second]
    of_day = clock[0] * 3600 + clock[1] * 60 + clock[2]
    yearday = when.timetuple().tm_yday
    return [when.year, when.month, when.day, when.weekday(), yearday, *clock, of_day]


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2024-02-29", (2024, 2, 29)),
        ("2000-02-29", (2000, 2, 29)),
        ("2023/12/31", (2023, 12, 31)),
        ("2024/12/31 23:59", (2024, 12, 31, 23, 59)),
        ("2025-01-01T00:00:00", (2025, 1, 1)),
        ("1969-12-31 23:59:59", (1969, 12, 31, 23, 59, 59)),
        ("1600-02-29", (1600, 2, 29)),
        ("0001-01-01", (1, 1, 1)),
        ("9999-12-31 23:59:59.999999999", (9999, 12, 31, 23, 59, 59)),
        ("2020-06-01 10:20:30.5", (2020, 6, 1, 10, 20, 30)),
        ("2020-06-01T10:20:30Z", (2020, 6, 1, 10, 20, 30)),
        ("2020-06-01 00:20:30.25+05:30", (2020, 6, 1, 0, 20, 30)),
        ("2020-06-01T10:20-0800", (2020, 6, 1, 10, 20)),
        ("2020-06-01 10:20:30+00", (2020, 6, 1, 10, 20, 30)),
        (" 2020-06-01\t", (2020, 6, 1)),
    ],
)
def test_iso_8601(text, when):
    assert codes(feature(), text) == [parts_of(datetime.datetime(*when))]


@pytest.mark.parametrize(
    "text",
    [
        *("2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "2024-00-10", "2024-01-00"),
        *("0000-01-01", "2024-1-5", "31/12/2020", "2024-01/05", "20240105", "2024", "noon", "x\n"),
        *("2024-01-05 24:00", "2024-01-05 10:60", "2024-01-05 10", "2024-01-05 10:00:00+25:00"),
        *("2024-01-05x", "2024-01-05 10:00 +1", "٢٠٢٤-٠١-٠٥", "2024-01-05\n", ""),
    ],
)
def test_what_is_no_date_is_refused_and_told(text):
    with pytest.raises(DataError, match=r"Column 'd': .* is not a date as 2024-01-31") as caught:
        codes(feature(), "2020-01-01", None, text)
    assert repr(text) in str(caught.value)
    assert "preprocessing.datetime_format" in str(caught.value)
    with pytest.raises(DataError):
        feature().partial(column(text))


@pytest.mark.parametrize(
    ("spelling", "text"),
    [
        ("%d/%m/%Y", "29/2/2024"),
        ("%m/%d/%y %I:%M %p", "12/31/68 12:05 am"),
        ("%m/%d/%y %I:%M %p", "1/1/69 12:05 PM"),
        ("%d %B %Y", "3 march 1999"),
        ("%a, %d %b %Y %H:%M:%S", "Wed, 31 Dec 1969 07:08:09"),
        ("%Y%m%d", "20200131"),
        ("%Y-%j", "2024-366"),
        ("%Y-%j", "2023-060"),
        ("%Y-%j", "2023-031"),
        ("%Y-%j", "2024-060"),
        ("%Y-%m-%dT%H:%M:%S.%f%z", "2020-01-02T03:04:05.678+0100"),
        ("%d.%m.%Y  %H Uhr", "01.02.2003 04 Uhr"),
        ("%H:%M", "10:30"),
        ("100%% %Y", "100% 2001"),
        ("%Y年%m月%d日", "2024年02月29日"),
    ],
)
def test_a_format_reads_as_strptime_does(spelling, text):
    expected = parts_of(datetime.datetime.strptime(text, spelling))
    assert codes(feature(datetime_format=spelling), text, fitted=(text,)) == [expected]


@pytest.mark.parametrize(
    ("spelling", "text"),
    [("%d/%m/%Y", "2020-01-31"), ("%Y-%j", "2023-366"), ("%d %b %Y", "1 Mai 2020")],
)
def test_what_does_not_fit_the_format_is_refused(spelling, text):
    with pytest.raises(DataError, match="is no date of the form") as caught:
        feature(datetime_format=spelling).partial(column(text))
    assert repr(text) in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.datetimes(), min_size=1, max_size=20))
def test_any_datetime_agrees_with_python(times):
    texts = [each.isoformat(" ") for each in times]
    seconds, read = parse(pa.array(texts))
    assert read.all()
    assert dates.parts_of(seconds).tolist() == [parts_of(each) for each in times]


WRITTEN = st.builds(
    lambda when, mark, between, fraction, zone: (
        f"{when:%Y}{mark}{when:%m}{mark}{when:%d}{between}{when:%H:%M:%S}{fraction}{zone}"
        if between
        else f"{when:%Y}{mark}{when:%m}{mark}{when:%d}"
    ),
    st.datetimes(datetime.datetime(1000, 1, 1)),
    st.sampled_from("-/"),
    st.sampled_from(["", " ", "T", "t"]),
    st.sampled_from(["", ".5", ".123", ".123456", ".123456789", "."]),
    st.sampled_from(["", "Z", "z", "+01:00", "-23:59", "+24:00", "+0100", " +01:00", "+01"]),
)


@st.composite
def nearly_dates(draw):
    """A date that somebody mistyped, perhaps."""
    text = list(draw(WRITTEN))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(text) - 1))
        text[place] = draw(st.sampled_from("0123456789-/:.,tTzZ+ é"))
    return "".join(text)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.none() | nearly_dates(), min_size=1, max_size=9), st.integers(0, 3))
def test_the_places_of_digits_say_what_expressions_say(texts, start):
    values = pa.array(texts, pa.utf8())[start:]
    seconds, read = parse(values)
    with pytest.MonkeyPatch.context() as patch:
        nothing = np.zeros(len(values), np.int64), np.zeros(len(values), bool)
        patch.setattr(dates, "seconds_of", lambda _: nothing)
        expected, as_expressions = parse(values)
    there = np.asarray(values.is_valid())
    assert (read == as_expressions)[there].all()
    assert (seconds == expected)[there].all()


def test_usual_dates_are_read_without_expressions(monkeypatch):
    """Which take ten times as long."""
    monkeypatch.setattr("distcore_tabular.date_texts.ISO", ())
    ends = ("", " 18:30:59", "T18:30:59.123Z", "t00:00:00+05:30", " 18:30:59.123456789-08:00")
    _, read = parse(
        pa.array([f"{day}{end}" for day in ("2024-02-29", "1999/12/31") for end in ends])
    )
    assert read.all()


def test_every_day_of_four_hundred_years():
    first = datetime.datetime(1899, 12, 31)
    days = [first + datetime.timedelta(number) for number in range(0, 146_400, 3)]
    seconds, read = parse(pa.array([f"{day:%Y-%m-%d}" for day in days]))
    assert read.all()
    assert dates.parts_of(seconds).tolist() == [parts_of(day) for day in days]


@pytest.mark.parametrize("text", ["238-03-17", "38-03-17 00:00:00", " 202/01/31"])
def test_a_year_that_pandas_cut_short_is_told(text):
    with pytest.raises(DataError, match=r"is not a date .* A year has four digits here.* Write "):
        feature().partial(pa.array([text]))
    for other in ("17-03-2020", "2020-3-17", "soon"):
        with pytest.raises(DataError) as caught:
            feature().partial(pa.array([other]))
        assert "four digits" not in str(caught.value)


def test_arrow_columns_of_dates_and_timestamps_read_as_they_are():
    from distcore_data.sources.options import DelimitedOptions
    from distcore_data.sources.values import typed

    when = datetime.datetime(2020, 3, 29, 1, 30, 15, 250_000)
    zone = pa.timestamp("us", "Europe/Berlin")
    for values, expected in (
        (pa.array([when], pa.timestamp("us")), when),
        (pa.array([when], pa.timestamp("us")).cast(pa.timestamp("ns")), when),
        (pa.array([when.date()], pa.date32()), datetime.datetime(2020, 3, 29)),
        (pa.array([when.date()], pa.date64()), datetime.datetime(2020, 3, 29)),
        # By the clock of their own zone, which went from two to three that night.
        (pa.array([when], pa.timestamp("us")).cast(zone), when + datetime.timedelta(hours=2)),
    ):
        for raw in ("category", "time"):
            read = typed(values, raw, "d", DelimitedOptions(null_values=()), str)
            made = feature()
            metadata = made.finish(made.partial(read))
            assert made.encode(read, metadata).to_pylist() == [parts_of(expected)]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.none() | st.datetimes(), min_size=1, max_size=9),
    st.sampled_from(["s", "ms", "us"]),
    st.integers(0, 3),
)
def test_times_say_what_their_texts_say(times, unit, start):
    """A second begins when its text does, before 1970 too; statistics have the same bits."""
    from distcore_data.sources.options import DelimitedOptions
    from distcore_data.sources.values import typed

    values = pa.array(times, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)[start:]
    made = feature()
    as_text, as_time = (
        typed(values, raw, "d", DelimitedOptions(null_values=()), str)
        for raw in ("category", "time")
    )
    assert as_time.type == pa.timestamp("s")
    assert made.partial(as_time) == made.partial(as_text)
    encoded = [made.encode(each, {"fill": MISSING}) for each in (as_text, as_time)]
    assert encoded[0].equals(encoded[1])


@pytest.mark.parametrize("second", [-62_135_596_801, 253_402_300_800, -(1 << 63), (1 << 63) - 1])
def test_a_time_of_no_year_is_refused(second):
    values = pa.array([0, None, second], pa.int64()).view(pa.timestamp("s"))
    with pytest.raises(DataError, match=r"Column 'd': .* is not of the years 1 to 9999"):
        feature().partial(values)


def test_a_spelling_is_one_of_texts():
    assert feature().raw == "time"
    assert feature(datetime_format="%d.%m.%Y").raw == "category"


def test_no_locale_changes_what_is_read():
    before = locale.setlocale(locale.LC_TIME)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_TIME, name)
        except locale.Error:
            continue
        try:
            _, read = parse(pa.array(["1 March 2020", "1 März 2020"]), "%d %B %Y")
        finally:
            locale.setlocale(locale.LC_TIME, before)
        assert read.tolist() == [True, False]


def test_missing_dates():
    day = parts_of(datetime.datetime(1999, 12, 31))
    assert codes(feature(), None) == [MISSING]
    assert codes(feature(fill_value="1999-12-31"), None) == [day]
    assert codes(feature(fill_value=datetime.date(1999, 12, 31)), None) == [day]
    german = feature(fill_value="31.12.1999", datetime_format="%d.%m.%Y")
    assert codes(german, None, fitted=("1.1.2020",)) == [day]
    assert feature(missing_value_strategy="drop_row").missing == "drop_row"
    made = feature()
    nothing = made.partial(column(None, None))
    with pytest.raises(DataError, match="Column 'd' has no value in any row"):
        made.finish(nothing)


def test_statistics_are_of_days_and_exact():
    made = feature()
    assert made.finish(made.partial(column("1970-01-02 10:00", None, "1970-01-04"))) == {
        "count": 2,
        "missing": 1,
        "mean": 2.0,
        "std": 1.0,
        "fill": MISSING,
    }
    assert made.column({}) == Column(name="d", dtype="int32", width=9)
    far = column(*["9999-12-31", "0001-01-01"] * 100_000)
    half = (2_932_896 + 719_162) / 2
    metadata = made.finish(made.partial(far))
    assert (metadata["mean"], metadata["std"]) == (2_932_896 - half, half)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"datetime_format": "%Y-%U"}, "%U is not read here"),
        ({"datetime_format": "%Y %Y"}, "it has %Y twice"),
        ({"datetime_format": "%Y %"}, "is not read here"),
        ({"datetime_format": "%Y %y"}, "%Y and %y, which say the same"),
        ({"datetime_format": "%d %I"}, "%I and %p need each other"),
        ({"datetime_format": "YYYY"}, "it has no part of a date"),
        ({"fill_value": "yesterday"}, "fill_value 'yesterday' is no date"),
        ({"missing_value_strategy": "fill_with_mean"}, "missing_value_strategy"),
    ],
)
def test_options_that_cannot_be(options, said):
    with pytest.raises(ConfigError, match="preprocessing") as caught:
        feature(**options)
    assert said in str(caught.value)


def test_an_output_is_refused():
    with pytest.raises(ConfigError, match="a date is an input only"):
        validate(options_date.MODELS["features", "date", "output"], {}, "")


# ------------------------------------------------------------------ encoders

METADATA = {"mean": 18_000.25, "std": 100.0}


def encoder_of(**options):
    torch.manual_seed(0)
    return feature(options or None).network().encoder(METADATA).eval()


def batch(*texts):
    made = feature()
    return torch.tensor(
        made.encode(column(*texts), {"fill": MISSING}).to_pylist(), dtype=torch.int32
    )


def test_elapsed_time_is_in_standard_deviations():
    elapsed = encoder_of().elapsed(batch("1970-01-01 06:00", "2019-04-15 00:00:02", None))
    days = np.array([0.25, 18_001 + 2 / 86_400]) - 18_000.25
    torch.testing.assert_close(elapsed[:2, 0].numpy(), (days / 100).astype(np.float32))
    assert elapsed[2].tolist() == [0.0]


@pytest.mark.parametrize("kind", ["embed", "wave"])
def test_every_part_counts_and_rows_do_not_see_each_other(kind):
    encoder = encoder_of(type=kind, num_fc_layers=1, activation="tanh")
    texts = ["2020-02-03 04:05:06", "2021-02-03 04:05:06", "2020-03-03 04:05:06"]
    texts += ["2020-02-04 04:05:06", "2020-02-03 05:05:06", "2020-02-03 04:06:06"]
    texts += ["2020-02-03 04:05:07", None]
    found = encoder(batch(*texts))
    assert found.shape == (8, encoder.output_size) == (8, 10)
    assert len(torch.unique(found, dim=0)) == 8
    alone = torch.cat([encoder(batch(text)) for text in texts])
    torch.testing.assert_close(found, alone)


def test_a_missing_date_has_a_vector_of_its_own():
    encoder = encoder_of()
    found = encoder(batch(None))[0]
    firsts = torch.cat([table.weight[0] for table in encoder.tables.values()])
    assert torch.equal(found, torch.cat([torch.zeros(1), firsts, torch.zeros(2)]))
    assert torch.equal(encoder_of(type="wave", num_fc_layers=0)(batch(None)), torch.zeros(1, 17))


def test_the_last_values_of_all_parts_have_vectors():
    encoder_of()(batch("2024-12-31 23:59:59", "2023-01-01", "2024-01-07"))
    assert encoder_of().tables["yearday"].weight.shape == (367, 10)
    assert encoder_of().tables["weekday"].weight.shape == (8, 8)


def test_a_wave_closes():
    encoder = encoder_of(type="wave", num_fc_layers=0)
    sunday, monday, tuesday = encoder(batch("2024-01-07", "2024-01-08", "2024-01-09"))[:, 3]
    step = 2 * np.pi / 7
    found = torch.stack([sunday, monday, tuesday]).numpy()
    np.testing.assert_allclose(found, np.sin(step * np.array([6, 0, 1])), atol=1e-6)


def test_the_data_half_imports_no_torch():
    code = (
        "import sys, distcore_tabular.date; assert not {'torch', 'pandas'} & set(sys.modules)\n"
        "import pyarrow as pa; from distcore_tabular.date_texts import parse\n"
        "assert parse(pa.StringArray.from_buffers(1, pa.py_buffer(b'\\0\\0\\0\\0\\7\\0\\0\\0'), "
        "pa.py_buffer(b'1 pm 07')), '%d %p %I')[1].all()\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
