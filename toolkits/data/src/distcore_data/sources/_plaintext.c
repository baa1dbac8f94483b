/* Rows of plain delimited text as doubles and dictionary codes, in one pass: what the reader of delimited.py tries first.

   Plain means: no quote, every row as many fields as the header, numbers such as -12.5e3 of at most 19 digits. Whatever
   else comes up, `rows` gives None at once, and Arrow's reader takes the range: it alone decides what a text means and
   what is an error. So this file has no opinion on bad input, only the duty to give the same bits where it answers.

   Numbers are rounded correctly: Lemire, "Number parsing at a gigabyte per second", 2021 (the method of Eisel). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "texthash.h"

/* Powers of ten with which no double of up to 19 digits is subnormal or too large. */
enum { LOWEST = -307, HIGHEST = 288, DIGITS = 19 };

/* Bytes of a text: what dictionaries count in 32 bits stays far from overflowing. */
enum { LONGEST = 1 << 28 };
enum { SKIP = 0, NUMBER = 1, CATEGORY = 2 };

typedef struct {
    uint64_t head; /* the first eight bytes, zeros behind a shorter text */
    uint32_t start, size;
} Entry;

/* A column's distinct texts. slots: index + 1 of an entry, or 0; their number is a power of two, at least twice `count`. */
typedef struct {
    Entry *entries;
    uint32_t *slots;
    uint32_t count, mask;
} Dictionary;

typedef struct {
    int kind;
    double *numbers;
    int32_t *codes;
    uint8_t *valid;
    Py_ssize_t missing;
    Dictionary texts;
} Field;

typedef struct {
    const char *text, *end;
    char delimiter;
    Py_ssize_t count, room;
    Field *fields;
    const uint64_t (*powers)[2]; /* 10**q for q from LOWEST: the top 128 bits of 5**q, high word first */
} Job;

/* ------------------------------------------------------------------ numbers */

/* Eight digit values, the first in the lowest byte, as a number. */
static uint64_t eight(uint64_t v)
{
    v = v * 10 + (v >> 8);
    v = ((v & 0x000000FF000000FFu) * 0x000F424000000064u + ((v >> 16) & 0x000000FF000000FFu) * 0x0000271000000001u) >> 32;
    return v;
}

static const char *digits_at(const char *p, const char *end, uint64_t *value)
{
    static const uint64_t ten[8] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    while (end - p >= 8) {
        uint64_t v = word_at(p) ^ 0x3030303030303030u;
        uint64_t other = ((v + 0x7676767676767676u) | v) & HIGH;
        if (other) {
            int here = __builtin_ctzll(other) >> 3, half = 32 - 4 * here; /* two shifts: 64 at once mean none */
            *value = *value * ten[here] + eight(v << half << half);
            return p + here;
        }
        *value = *value * 100000000 + eight(v);
        p += 8;
    }
    for (; p < end && (unsigned char)(*p - '0') < 10; p++)
        *value = *value * 10 + (uint64_t)(*p - '0');
    return p;
}

/* The double nearest to value * 10**power, value not 0; 0 where the method cannot tell. */
static int nearest(uint64_t value, int power, const uint64_t (*powers)[2], uint64_t *bits)
{
    const uint64_t *five = powers[power - LOWEST];
    int shift = __builtin_clzll(value);
    value <<= shift;
    unsigned __int128 product = (unsigned __int128)value * five[0];
    uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
    if ((high & 0x1FF) == 0x1FF) { /* a carry from further down may decide */
        uint64_t more = (uint64_t)(((unsigned __int128)value * five[1]) >> 64);
        low += more;
        high += low < more;
    }
    if (low == UINT64_MAX && (power < -27 || power > 55))
        return 0;
    int top = (int)(high >> 63);
    uint64_t mantissa = high >> (top + 9);
    int64_t exponent = ((217706 * (int64_t)power) >> 16) + 63 + top - shift + 1023;
    if (low <= 1 && power >= -4 && power <= 23 && (mantissa & 3) == 1 && (mantissa << (top + 9)) == high)
        mantissa &= ~(uint64_t)1; /* exactly between two doubles: to the even one */
    mantissa = (mantissa + (mantissa & 1)) >> 1;
    if (mantissa >> 53) {
        mantissa >>= 1;
        exponent++;
    }
    if (exponent <= 0 || exponent >= 0x7FF)
        return 0;
    *bits = (mantissa & (((uint64_t)1 << 52) - 1)) | ((uint64_t)exponent << 52);
    return 1;
}

/* Behind the number at p; NULL where there is none that is plain. */
static const char *number_at(const char *p, const Job *job, double *found)
{
    const char *end = job->end;
    uint64_t value = 0, bits = 0, sign = *p == '-';
    p += sign;
    const char *start = p;
    if (end - p > 2 && p[1] == '.' && (unsigned char)(*p - '0') < 10)
        value = (uint64_t)(*p++ - '0');
    else
        p = digits_at(p, end, &value);
    int64_t count = p - start, power = 0;
    if (p < end && *p == '.') {
        const char *fraction = ++p;
        p = digits_at(p, end, &value);
        power = fraction - p;
        count -= power;
    }
    if (count == 0)
        return NULL;
    if (count > DIGITS) {
        for (const char *q = start; q < p && (*q == '0' || *q == '.'); q++)
            count -= *q == '0';
        if (count > DIGITS)
            return NULL;
    }
    if (p < end && (*p | 0x20) == 'e') {
        uint64_t size = 0;
        int down = ++p < end && *p == '-';
        p += down || (p < end && *p == '+');
        const char *first = p;
        p = digits_at(p, end, &size);
        if (p == first || p - first > 4)
            return NULL;
        power += down ? -(int64_t)size : (int64_t)size;
    }
    if (value && (power < LOWEST || power > HIGHEST || !nearest(value, (int)power, job->powers, &bits)))
        return NULL;
    bits |= sign << 63;
    memcpy(found, &bits, 8);
    return p;
}

/* ------------------------------------------------------------------ categories */

/* The delimiter or line end that closes the field at p, or the end. */
static const char *field_end(const char *p, const Job *job)
{
    for (; job->end - p >= 8; p += 8) {
        uint64_t word = word_at(p);
        uint64_t found = bytes_of(word, job->delimiter) | bytes_of(word, '\n') | bytes_of(word, '\r');
        if (found)
            return p + (__builtin_ctzll(found) >> 3);
    }
    while (p < job->end && *p != job->delimiter && *p != '\n' && *p != '\r')
        p++;
    return p;
}

static int grow(Dictionary *texts, const char *text)
{
    uint32_t slots = texts->mask ? 4 * (texts->mask + 1) : 64;
    Entry *entries = realloc(texts->entries, sizeof(Entry) * (slots / 2));
    if (entries)
        texts->entries = entries;
    uint32_t *fresh = entries ? calloc(slots, sizeof(uint32_t)) : NULL;
    if (!fresh)
        return 0;
    free(texts->slots);
    texts->slots = fresh;
    texts->mask = slots - 1;
    for (uint32_t index = 0; index < texts->count; index++) {
        const Entry *each = &entries[index];
        uint64_t slot = hash_of(each->head, text + each->start, each->size);
        while (fresh[slot & texts->mask])
            slot++;
        fresh[slot & texts->mask] = index + 1;
    }
    return 1;
}

/* The code of a text, a new one where it was not seen before; -1 without memory. */
static int32_t code_of(Dictionary *texts, const Job *job, const char *p, uint32_t size)
{
    if (2 * texts->count >= texts->mask && !grow(texts, job->text))
        return -1;
    uint64_t head = head_of(p, size, job->end);
    uint64_t slot = hash_of(head, p, size);
    for (uint32_t index; (index = texts->slots[slot & texts->mask]); slot++) {
        const Entry *each = &texts->entries[index - 1];
        if (each->head == head && each->size == size &&
            (size <= 8 || memcmp(job->text + each->start + 8, p + 8, size - 8) == 0))
            return (int32_t)(index - 1);
    }
    texts->entries[texts->count] = (Entry){head, (uint32_t)(p - job->text), size};
    texts->slots[slot & texts->mask] = ++texts->count;
    return (int32_t)(texts->count - 1);
}

/* ------------------------------------------------------------------ rows */

enum { NOT_PLAIN = -1, NO_MEMORY = -2 };

/* Reads one row's fields; where it ends, or NULL with the reason in *why. */
static const char *row_at(const char *p, Job *job, Py_ssize_t row, int *why)
{
    uint8_t bit = (uint8_t)(1 << (row & 7));
    *why = NOT_PLAIN;
    for (Py_ssize_t at = 0; at < job->count; at++) {
        Field *field = &job->fields[at];
        const char *start = p;
        if (at) {
            if (p == job->end || *p != job->delimiter)
                return NULL;
            start = ++p;
        }
        if (field->kind == NUMBER) {
            if (p < job->end && *p != job->delimiter && *p != '\n' && *p != '\r') {
                if (!(p = number_at(p, job, &field->numbers[row])))
                    return NULL;
            } else
                field->numbers[row] = 0.0;
        } else {
            p = field_end(p, job);
            if (field->kind == CATEGORY) {
                int32_t code = 0;
                if (p > start && (code = code_of(&field->texts, job, start, (uint32_t)(p - start))) < 0) {
                    *why = NO_MEMORY;
                    return NULL;
                }
                field->codes[row] = code;
            }
        }
        if (field->kind) {
            if (p > start)
                field->valid[row >> 3] |= bit;
            else
                field->missing++;
        }
    }
    return p;
}

/* Reads all rows; how many there are, NOT_PLAIN or NO_MEMORY. */
static Py_ssize_t read_rows(Job *job)
{
    const char *p = job->text;
    Py_ssize_t row = 0;
    int why;
    while (p < job->end) {
        if (*p != '\n' && *p != '\r') { /* a blank line is no row */
            if (row == job->room)
                return NOT_PLAIN; /* someone writes to the file */
            if (!(p = row_at(p, job, row++, &why)))
                return why;
        }
        if (p < job->end && *p == '\r' && ++p == job->end)
            return NOT_PLAIN;
        if (p < job->end && *p++ != '\n')
            return NOT_PLAIN;
    }
    return row;
}

/* ------------------------------------------------------------------ Python */

static PyObject *lines(PyObject *module, PyObject *argument)
{
    Py_buffer text;
    if (PyObject_GetBuffer(argument, &text, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t found = 1;
    const char *bytes = text.buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < text.len;) { /* counts of one byte: compilers then compare many bytes at once */
        Py_ssize_t stop = text.len - at < 128 ? text.len : at + 128;
        uint8_t here = 0;
        for (; at < stop; at++)
            here += bytes[at] == '\n';
        found += here;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&text);
    return PyLong_FromSsize_t(found);
}

/* (missing, offsets, texts) of a category, (missing,) of a number. */
static PyObject *described(const Field *field, const char *text)
{
    if (field->kind == NUMBER)
        return Py_BuildValue("(n)", field->missing);
    Py_ssize_t count = field->texts.count, total = 0;
    for (Py_ssize_t index = 0; index < count; index++)
        total += field->texts.entries[index].size;
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
    PyObject *texts = PyBytes_FromStringAndSize(NULL, total);
    if (!offsets || !texts) {
        Py_XDECREF(offsets);
        Py_XDECREF(texts);
        return NULL;
    }
    char *ends = PyBytes_AsString(offsets), *bytes = PyBytes_AsString(texts);
    int32_t at = 0;
    for (Py_ssize_t index = 0; index <= count; index++) {
        memcpy(ends + index * (Py_ssize_t)sizeof at, &at, sizeof at);
        if (index < count) {
            const Entry *each = &field->texts.entries[index];
            memcpy(bytes + at, text + each->start, each->size);
            at += (int32_t)each->size;
        }
    }
    return Py_BuildValue("(nNN)", field->missing, offsets, texts);
}

static PyObject *results(const Job *job, Py_ssize_t found)
{
    if (found == NO_MEMORY)
        return PyErr_NoMemory();
    if (found == NOT_PLAIN)
        Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    for (Py_ssize_t at = 0; list && at < job->count; at++) {
        PyObject *each = job->fields[at].kind ? described(&job->fields[at], job->text) : Py_NewRef(Py_None);
        if (!each || PyList_Append(list, each) < 0)
            Py_CLEAR(list);
        Py_XDECREF(each);
    }
    return list ? Py_BuildValue("(nN)", found, list) : NULL;
}

/* The buffers of the fields, checked to hold `rows` rows each. views: two a field. */
static int take_buffers(Job *job, const char *kinds, PyObject *values, PyObject *valid, Py_ssize_t rows, Py_buffer *views)
{
    for (Py_ssize_t at = 0; at < job->count; at++) {
        Field *field = &job->fields[at];
        if (!(field->kind = kinds[at]))
            continue;
        Py_ssize_t needed = rows * (field->kind == NUMBER ? 8 : 4);
        Py_buffer *view = &views[2 * at];
        PyObject *each = PyList_GetItem(values, at), *bits = PyList_GetItem(valid, at);
        if (!each || !bits || PyObject_GetBuffer(each, view, PyBUF_WRITABLE) < 0 ||
            PyObject_GetBuffer(bits, view + 1, PyBUF_WRITABLE) < 0)
            return 0;
        if (view->len < needed || view[1].len < (rows + 7) / 8) {
            PyErr_SetString(PyExc_ValueError, "a buffer is too small");
            return 0;
        }
        field->numbers = view->buf;
        field->codes = view->buf;
        field->valid = view[1].buf;
        memset(field->valid, 0, (size_t)(rows + 7) / 8);
    }
    return 1;
}

static PyObject *rows(PyObject *module, PyObject *arguments)
{
    Py_buffer text, kinds, powers;
    PyObject *values, *valid, *answer = NULL;
    int delimiter;
    Py_ssize_t room;
    if (!PyArg_ParseTuple(arguments, "y*iy*y*nO!O!", &text, &delimiter, &kinds, &powers, &room, &PyList_Type, &values,
                          &PyList_Type, &valid))
        return NULL;
    Job job = {text.buf, (const char *)text.buf + text.len, (char)delimiter, kinds.len, room, NULL, powers.buf};
    job.fields = calloc((size_t)kinds.len + 1, sizeof(Field));
    Py_buffer *views = calloc(2 * (size_t)kinds.len + 1, sizeof(Py_buffer));
    if (!job.fields || !views)
        PyErr_NoMemory();
    else if (text.len > LONGEST || powers.len != 16 * (HIGHEST - LOWEST + 1))
        PyErr_SetString(PyExc_ValueError, "the text is too long, or the powers are not those that are needed");
    else if (take_buffers(&job, kinds.buf, values, valid, room, views)) {
        Py_ssize_t found;
        Py_BEGIN_ALLOW_THREADS
        found = read_rows(&job);
        Py_END_ALLOW_THREADS
        answer = results(&job, found);
    }
    for (Py_ssize_t at = 0; at < kinds.len && job.fields && views; at++) {
        free(job.fields[at].texts.entries);
        free(job.fields[at].texts.slots);
        PyBuffer_Release(&views[2 * at]);
        PyBuffer_Release(&views[2 * at + 1]);
    }
    free(job.fields);
    free(views);
    PyBuffer_Release(&text);
    PyBuffer_Release(&kinds);
    PyBuffer_Release(&powers);
    return answer;
}

static PyObject *hash(PyObject *module, PyObject *argument)
{
    Py_buffer text;
    if (PyObject_GetBuffer(argument, &text, PyBUF_SIMPLE) < 0)
        return NULL;
    uint64_t found = 0;
    if (text.len > LONGEST)
        PyErr_SetString(PyExc_ValueError, "the text is too long");
    else {
        const char *bytes = text.buf;
        found = hash_of(head_of(bytes, (uint32_t)text.len, bytes + text.len), bytes, (uint32_t)text.len);
    }
    PyBuffer_Release(&text);
    return PyErr_Occurred() ? NULL : PyLong_FromUnsignedLongLong(found);
}

static PyObject *deepest(PyObject *module, PyObject *argument)
{
    Py_buffer text;
    if (PyObject_GetBuffer(argument, &text, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t depth = 0, found = 0;
    const char *bytes = text.buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < text.len; at++) {
        char each = bytes[at];
        if (each == '"') {
            for (at++; at < text.len && bytes[at] != '"'; at++)
                at += bytes[at] == '\\';
        } else if (each == '{' || each == '[') {
            if (++depth > found)
                found = depth;
        } else if (each == '}' || each == ']')
            depth -= depth > 0;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&text);
    return PyLong_FromSsize_t(found);
}

static PyMethodDef METHODS[] = {
    {"deepest", deepest, METH_O, "deepest(text): how many lists and objects of a JSON text are open at once, at most."},
    {"hash", hash, METH_O, "hash(text): by which this process finds a text among those seen before."},
    {"lines", lines, METH_O, "lines(text): an upper bound of its rows."},
    {"rows", rows, METH_VARARGS,
     "rows(text, delimiter, kinds, powers, room, values, valid): fill the buffers; (rows, what each column is), or None."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_plaintext", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__plaintext(void)
{
    return choose_seed() ? PyModuleDef_Init(&MODULE) : NULL;
}
