/* Rows of batches: packed from columns, and gathered in another order; where there is no C compiler, Arrow and numpy make
   them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* AHEAD: rows that are asked for in advance. Which row comes next only `rows` tells, so the processor cannot guess it.
   SMALL: most words of a row that is asked for at once. LINE: words that the processor fetches at once. TALL, GROUP: rows and
   columns that are packed at once. */
enum { AHEAD = 16, SMALL = 256, LINE = 16, TALL = 64, GROUP = 8 };

/* Arrow's C data interface, as https://arrow.apache.org/docs/format/CDataInterface.html has it. */
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

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

/* Where each taken row ends, behind a 0; -1 if a row is not there, or if there are offsets that no column has. */
static int64_t ends_of(int64_t *out, const int64_t *offsets, Py_ssize_t count, const int64_t *rows, Py_ssize_t many)
{
    int64_t end = out[0] = 0;
    if (count < 0 || !within(rows, many, count))
        return -1;
    for (Py_ssize_t at = 0; at < many; at++) {
        if (at + AHEAD < many)
            __builtin_prefetch(offsets + rows[at + AHEAD]);
        int64_t begin = offsets[rows[at]], stop = offsets[rows[at] + 1];
        if (begin < 0 || stop < begin || stop - begin > INT64_MAX - end)
            return -1;
        out[at + 1] = end += stop - begin;
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
        int64_t begin = offsets[rows[at]], stop = offsets[rows[at] + 1], length;
        if (begin < 0 || stop < begin || stop > count || (length = stop - begin) > room)
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
    fit = offsets.len >= 8 && within(rows.buf, rows.len / 8, offsets.len / 8 - 1) &&
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

/* ------------------------------------------------------------------ columns into a matrix */

/* Whether a column has `rows` numbers of 32 bits, none of them missing. */
static int plain(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t rows)
{
    int wide = !strcmp(schema->format, "f") || !strcmp(schema->format, "i");
    return wide && !schema->dictionary && array->n_buffers == 2 && array->length >= rows && (!array->buffers[0] || !array->null_count);
}

/* Tiles of TALL rows and GROUP columns: so few columns are read beside one another that the processor sees what comes next
   of each, also if they lie a power of two apart. */
static void lay(int32_t *out, Py_ssize_t rows, Py_ssize_t width, const struct ArrowArray *batch, const int64_t *places)
{
    for (Py_ssize_t first = 0; first < rows; first += TALL)
        for (int64_t left = 0; left < batch->n_children; left += GROUP) {
            const int32_t *from[GROUP];
            int64_t at[GROUP];
            for (int64_t each = 0; each < GROUP; each++) {
                /* The last group may want columns: its last one is laid again and again. */
                int64_t number = Py_MIN(left + each, batch->n_children - 1);
                const struct ArrowArray *column = batch->children[number];
                from[each] = (const int32_t *)column->buffers[1] + column->offset + batch->offset;
                at[each] = places[number];
            }
            for (Py_ssize_t row = first; row < Py_MIN(first + TALL, rows); row++)
                for (int64_t each = 0; each < GROUP; each++)
                    out[row * width + at[each]] = from[each][row];
        }
}

static PyObject *pack_columns(PyObject *module, PyObject *args)
{
    Py_buffer out, places;
    PyObject *schema_capsule, *array_capsule;
    Py_ssize_t width;
    if (!PyArg_ParseTuple(args, "w*ny*OO", &out, &width, &places, &schema_capsule, &array_capsule))
        return NULL;
    const struct ArrowSchema *schema = PyCapsule_GetPointer(schema_capsule, "arrow_schema");
    const struct ArrowArray *batch = schema ? PyCapsule_GetPointer(array_capsule, "arrow_array") : NULL;
    int fit = 0;
    if (batch) {
        int64_t rows = batch->length, columns = batch->n_children;
        fit = width > 0 && out.len == rows * width * 4 && places.len == columns * 8 && schema->n_children == columns &&
              within(places.buf, columns, width) && (batch->n_buffers < 1 || !batch->buffers[0] || !batch->null_count);
        for (int64_t each = 0; fit && each < columns; each++)
            fit = plain(schema->children[each], batch->children[each], rows + batch->offset);
        if (fit) {
            Py_BEGIN_ALLOW_THREADS
            lay(out.buf, rows, width, batch, places.buf);
            Py_END_ALLOW_THREADS
        }
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&places);
    return batch ? PyBool_FromLong(fit) : NULL;
}

/* ------------------------------------------------------------------ orders */

enum { DIGIT = 11, DIGITS = 3, BUCKETS = 1 << DIGIT };

/* Places in the order of their bits, equal ones in their own: by counting, the lowest digit first. 0: no memory. */
static int sort_places(int64_t *out, const uint32_t *bits, Py_ssize_t count)
{
    uint32_t (*starts)[BUCKETS] = calloc(DIGITS, sizeof *starts), *one = malloc(8 * count + 1), *other = one + count;
    if (!starts || !one) {
        free(starts);
        free(one);
        return 0;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        for (int digit = 0; digit < DIGITS; digit++)
            starts[digit][bits[at] >> digit * DIGIT & (BUCKETS - 1)]++;
    for (int digit = 0; digit < DIGITS; digit++)
        for (uint32_t bucket = 0, start = 0; bucket < BUCKETS; bucket++) {
            uint32_t many = starts[digit][bucket];
            starts[digit][bucket] = start;
            start += many;
        }
    for (Py_ssize_t at = 0; at < count; at++)
        one[starts[0][bits[at] & (BUCKETS - 1)]++] = (uint32_t)at;
    for (Py_ssize_t at = 0; at < count; at++)
        other[starts[1][bits[one[at]] >> DIGIT & (BUCKETS - 1)]++] = one[at];
    for (Py_ssize_t at = 0; at < count; at++)
        out[starts[2][bits[other[at]] >> 2 * DIGIT]++] = other[at];
    free(starts);
    free(one);
    return 1;
}

static PyObject *places_by(PyObject *module, PyObject *args)
{
    Py_buffer out, bits;
    int fit, found = 1;
    if (!PyArg_ParseTuple(args, "w*y*", &out, &bits))
        return NULL;
    Py_ssize_t count = bits.len / 4;
    fit = bits.len % 4 == 0 && out.len == 8 * count && count <= UINT32_MAX;
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        found = sort_places(out.buf, bits.buf, count);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&bits);
    if (!found)
        return PyErr_NoMemory();
    if (!fit) {
        PyErr_SetString(PyExc_ValueError, "there is not a place for each of the bits");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"take_rows", take_rows, METH_VARARGS, "take_rows(out, matrix, rows, width): lay these rows into `out`."},
    {"list_ends", list_ends, METH_VARARGS, "list_ends(out, offsets, rows): lay the taken rows' offsets into `out`; their last."},
    {"take_lists", take_lists, METH_VARARGS, "take_lists(out, values, offsets, rows): lay the values of these rows into `out`."},
    {"places_by", places_by, METH_VARARGS, "places_by(out, bits): lay the places into `out`, in the order of their bits."},
    {"pack_columns", pack_columns, METH_VARARGS,
     "pack_columns(out, width, places, schema, array): lay Arrow's columns, each a word wide, into rows; whether they are such."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_gather", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__gather(void)
{
    return PyModuleDef_Init(&MODULE);
}
