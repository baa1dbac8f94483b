/* Texts of the most common forms of a date as seconds, and seconds as the parts of a date: what dates.py tries first.

   Offsets are checked before a text is touched. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Letters of a day, of a day and a time, and of one with nine digits behind the second and an offset. */
enum { DAY = 10, SECOND = 19, LONGEST = 35 };

enum { PARTS = 9, DAY_SECONDS = 86400 };

/* 1970-01-01 as days, of which 0001-01-01 is the first. */
enum { EPOCH = 719163 };

/* The days from 0001-01-01 to 9999-12-31, since 1970-01-01. */
enum { FIRST_DAY = 1 - EPOCH, LAST_DAY = 2932896 };

/* Days of a year before each month, which count from 1, if it is no leap year; behind the last, all. */
static const int BEFORE[14] = {0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};

static inline int is_leap(int year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* ------------------------------------------------------------------ texts */

/* Digits that are none leave a bit in `bad`. */
static inline unsigned two(const uint8_t *text, unsigned *bad)
{
    unsigned tens = text[0] - '0', ones = text[1] - '0';
    *bad |= (tens > 9) | (ones > 9);
    return 10 * tens + ones;
}

/* Whether a time ends so: with a fraction of a second or none, and an offset or none. */
static int ends(const uint8_t *text, const uint8_t *end)
{
    if (text < end && *text == '.') {
        const uint8_t *digits = ++text;
        while (text < end && (unsigned)(*text - '0') <= 9)
            text++;
        if (text == digits)
            return 0;
    }
    if (text == end)
        return 1;
    if (end - text == 1)
        return *text == 'Z' || *text == 'z';
    if (end - text != 6 || (*text != '+' && *text != '-') || text[3] != ':')
        return 0;
    unsigned bad = 0, hours = two(text + 1, &bad), minutes = two(text + 4, &bad);
    return !bad && hours < 24 && minutes < 60;
}

/* Seconds since 1970-01-01 00:00:00 by the clock of the place where it was written; 0: it is no date of these forms. */
static int read_date(const uint8_t *text, Py_ssize_t size, int64_t *seconds)
{
    if (size != DAY && (size < SECOND || size > LONGEST))
        return 0;
    unsigned bad = 0, century = two(text, &bad), rest = two(text + 2, &bad);
    unsigned month = two(text + 5, &bad), day = two(text + 8, &bad);
    int year = (int)(100 * century + rest);
    bad |= (text[4] != '-' && text[4] != '/') | (text[4] != text[7]);
    if (bad || year == 0 || month - 1 > 11 || day == 0)
        return 0;
    int leap = is_leap(year);
    if ((int)day > BEFORE[month + 1] - BEFORE[month] + (month == 2 && leap))
        return 0;
    unsigned hours = 0, minutes = 0, second = 0;
    if (size > DAY) {
        hours = two(text + 11, &bad), minutes = two(text + 14, &bad), second = two(text + 17, &bad);
        bad |= text[DAY] != ' ' && text[DAY] != 'T' && text[DAY] != 't';
        bad |= (text[13] != ':') | (text[16] != ':') | (hours > 23) | (minutes > 59) | (second > 59);
        if (bad || !ends(text + SECOND, text + size))
            return 0;
    }
    int years = year - 1, yearday = BEFORE[month] + (month > 2 && leap) + (int)day;
    int days = 365 * years + years / 4 - years / 100 + years / 400 + yearday - EPOCH;
    *seconds = (int64_t)days * DAY_SECONDS + 3600 * hours + 60 * minutes + second;
    return 1;
}

/* seconds(offsets, data, first, count, target, found): fill both where a text is a date. */
static PyObject *seconds(PyObject *module, PyObject *arguments)
{
    Py_buffer offsets, data, target, found;
    Py_ssize_t first, count;
    if (!PyArg_ParseTuple(arguments, "y*y*nnw*w*", &offsets, &data, &first, &count, &target, &found))
        return NULL;
    Py_ssize_t room = offsets.len / 4 - 1;
    int sound = first >= 0 && count >= 0 && first <= room && count <= room - first && count <= target.len / 8 && count <= found.len;
    if (sound) {
        const int32_t *bounds = (const int32_t *)offsets.buf + first;
        int64_t *into = target.buf;
        uint8_t *is_date = found.buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t row = 0; row < count && sound; row++) {
            int32_t start = bounds[row], stop = bounds[row + 1];
            sound = start >= 0 && stop >= start && stop <= data.len;
            if (sound && read_date((const uint8_t *)data.buf + start, stop - start, &into[row]))
                is_date[row] = 1;
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    PyBuffer_Release(&target);
    PyBuffer_Release(&found);
    if (!sound) {
        PyErr_SetString(PyExc_ValueError, "the buffers are too short for these rows, or the offsets lie outside of the bytes");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ parts */

/* The day's year, month, day, weekday and yearday (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", 2013,
   civil_from_days: years begin in March, so that the leap day is a year's last; an era has 400 of them). */
static inline void fill_day(int day, int32_t *parts)
{
    int from_march = day + 719468; /* days since 0000-03-01 */
    int era = from_march / 146097, of_era = from_march % 146097;
    int year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int of_year = of_era - (365 * year + year / 4 - year / 100);
    int month = (5 * of_year + 2) / 153;
    parts[2] = of_year - (153 * month + 2) / 5 + 1;
    parts[1] = month < 10 ? month + 3 : month - 9;
    parts[0] = year + 400 * era + (month >= 10);
    parts[3] = (day - FIRST_DAY) % 7; /* that was a Monday */
    parts[4] = BEFORE[parts[1]] + (parts[1] > 2 && is_leap(parts[0])) + parts[2];
}

/* parts(seconds, target): fill in nine of each; whether all lie in the years 1 to 9999. */
static PyObject *parts(PyObject *module, PyObject *arguments)
{
    Py_buffer given, target;
    if (!PyArg_ParseTuple(arguments, "y*w*", &given, &target))
        return NULL;
    Py_ssize_t count = given.len / 8;
    int fits = count <= target.len / (4 * PARTS), sound = 1;
    if (fits) {
        const int64_t *from = given.buf;
        int32_t *into = target.buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t row = 0; row < count; row++, into += PARTS) {
            if (from[row] < (int64_t)FIRST_DAY * DAY_SECONDS || from[row] >= (LAST_DAY + (int64_t)1) * DAY_SECONDS) {
                sound = 0;
                break;
            }
            /* Counted from the first day, so that a division rounds down. */
            int64_t since = from[row] - (int64_t)FIRST_DAY * DAY_SECONDS;
            int of_day = (int)(since % DAY_SECONDS);
            fill_day((int)(since / DAY_SECONDS) + FIRST_DAY, into);
            into[5] = of_day / 3600, into[6] = of_day / 60 % 60, into[7] = of_day % 60, into[8] = of_day;
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&given);
    PyBuffer_Release(&target);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the target has no room for the parts");
        return NULL;
    }
    return PyBool_FromLong(sound);
}

static PyMethodDef METHODS[] = {
    {"seconds", seconds, METH_VARARGS, "seconds(offsets, data, first, count, target, found): fill both where a text is a date."},
    {"parts", parts, METH_VARARGS, "parts(seconds, target): fill the target; whether all lie in the years 1 to 9999."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_dates", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__dates(void)
{
    return PyModuleDef_Init(&MODULE);
}
