/* Rows of a packed matrix and of ragged columns, in another order; where there is no C compiler, numpy makes them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* AHEAD: rows that are asked for in advance. Which row comes next only `rows` tells, so the processor cannot guess it.
   SMALL: most words of a row that is asked for at once. LINE: words that the processor fetches at once. */
enum { AHEAD = 16, SMALL = 256, LINE = 16 };

/* Whether every row is one of `count`. */
static int within(const int64_t *rows, Py_ssize_t many, Py_ssize_t count)
{
    int found = 1;
    for (Py_ssize_t at = 0; at < many; at++)
        found &= (uint64_t)rows[at] < (uint64_t)count;
    return found;
}

/* ------------------------------------------------------------------ a matrix */

static void gather_short(int32_t *out, const int32_t *matrix, const int64_t *rows, Py_ssize_t many, Py_ssize_t width)
{
    for (Py_ssize_t at = 0; at < many; at++) {
        const int32_t *next = matrix + rows[Py_MIN(at + AHEAD, many - 1)] * width;
        for (Py_ssize_t word = 0; word < width; word += LINE)
            __builtin_prefetch(next + word);
        memcpy(out + at * width, matrix + rows[at] * width, sizeof(int32_t) * width);
    }
}

/* Line by line, each with one of the next row: to ask for all of that at once would wait for memory. */
static void gather_long(int32_t *restrict out, const int32_t *restrict matrix, const int64_t *rows, Py_ssize_t many,
                        Py_ssize_t width)
{
    for (Py_ssize_t at = 0; at < many; at++, out += width) {
        const int32_t *from = matrix + rows[at] * width, *next = matrix + rows[Py_MIN(at + 1, many - 1)] * width;
        Py_ssize_t word = 0;
        for (; word + LINE <= width; word += LINE) {
            __builtin_prefetch(next + word);
            memcpy(out + word, from + word, sizeof(int32_t) * LINE);
        }
        memcpy(out + word, from + word, sizeof(int32_t) * (width - word));
    }
}

static PyObject *take_rows(PyObject *module, PyObject *args)
{
    Py_buffer out, matrix, rows;
    Py_ssize_t width;
    int fit;
    if (!PyArg_ParseTuple(args, "w*y*y*n", &out, &matrix, &rows, &width))
        return NULL;
    Py_ssize_t many = rows.len / 8;
    fit = width > 0 && out.len / 4 / width == many && out.len / 4 % width == 0;
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        fit = within(rows.buf, many, matrix.len / 4 / width);
        if (fit)
            (width <= SMALL ? gather_short : gather_long)(out.buf, matrix.buf, rows.buf, many, width);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&matrix);
    PyBuffer_Release(&rows);
    if (!fit) {
        PyErr_SetString(PyExc_ValueError, "these rows are not those of such a matrix");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ ragged columns: row i has values[offsets[i]] … */

/* Where each taken row ends, behind a 0; -1 if a row is not there. */
static int64_t ends_of(int64_t *out, const int64_t *offsets, Py_ssize_t count, const int64_t *rows, Py_ssize_t many)
{
    int64_t end = out[0] = 0;
    if (!within(rows, many, count))
        return -1;
    for (Py_ssize_t at = 0; at < many; at++) {
        if (at + AHEAD < many)
            __builtin_prefetch(offsets + rows[at + AHEAD]);
        end += offsets[rows[at] + 1] - offsets[rows[at]];
        out[at + 1] = end;
    }
    return end;
}

static PyObject *list_ends(PyObject *module, PyObject *args)
{
    Py_buffer out, offsets, rows;
    int64_t end = -1;
    if (!PyArg_ParseTuple(args, "w*y*y*", &out, &offsets, &rows))
        return NULL;
    if (out.len / 8 == rows.len / 8 + 1) {
        Py_BEGIN_ALLOW_THREADS
        end = ends_of(out.buf, offsets.buf, offsets.len / 8 - 1, rows.buf, rows.len / 8);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&rows);
    if (end < 0) {
        PyErr_SetString(PyExc_ValueError, "these rows are not those of such a column");
        return NULL;
    }
    return PyLong_FromLongLong(end);
}

/* Whether values and room sufficed; rows and offsets are as many as `ends_of` has seen. */
static int gather_lists(int32_t *out, Py_ssize_t room, const int32_t *values, Py_ssize_t count, const int64_t *offsets,
                        const int64_t *rows, Py_ssize_t many)
{
    for (Py_ssize_t at = 0; at < many; at++) {
        if (at + AHEAD < many)
            __builtin_prefetch(offsets + rows[at + AHEAD]);
        if (at + AHEAD / 2 < many)
            __builtin_prefetch(values + offsets[rows[at + AHEAD / 2]]);
        int64_t begin = offsets[rows[at]], length = offsets[rows[at] + 1] - begin;
        if (begin < 0 || length < 0 || length > count - begin || length > room)
            return 0;
        memcpy(out, values + begin, sizeof(int32_t) * length);
        out += length;
        room -= length;
    }
    return room == 0;
}

static PyObject *take_lists(PyObject *module, PyObject *args)
{
    Py_buffer out, values, offsets, rows;
    int fit = 0;
    if (!PyArg_ParseTuple(args, "w*y*y*y*", &out, &values, &offsets, &rows))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    fit = within(rows.buf, rows.len / 8, offsets.len / 8 - 1) &&
          gather_lists(out.buf, out.len / 4, values.buf, values.len / 4, offsets.buf, rows.buf, rows.len / 8);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&out);
    PyBuffer_Release(&values);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&rows);
    if (!fit) {
        PyErr_SetString(PyExc_ValueError, "these rows are not those of such a column");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"take_rows", take_rows, METH_VARARGS, "take_rows(out, matrix, rows, width): lay these rows into `out`."},
    {"list_ends", list_ends, METH_VARARGS, "list_ends(out, offsets, rows): lay the taken rows' offsets into `out`; their last."},
    {"take_lists", take_lists, METH_VARARGS, "take_lists(out, values, offsets, rows): lay the values of these rows into `out`."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_gather", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__gather(void)
{
    return PyModuleDef_Init(&MODULE);
}
