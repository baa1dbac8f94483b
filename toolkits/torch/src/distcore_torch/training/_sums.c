/* Sums that training makes again and again; where there is no C compiler, torch makes them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* DEPTH: leaves that may wait for a neighbour, one for each level of a tree and one more. CHUNK: numbers of a leaf that are
   added at once, so that what waits stays in the processor's nearest cache. */
enum { DEPTH = 65, CHUNK = 256, FOUND = 0, NO_MEMORY = -1, OUT_OF_RANGE = -2 };

static inline void add(float *to, const float *from, Py_ssize_t width)
{
    for (Py_ssize_t at = 0; at < width; at++)
        to[at] += from[at];
}

/* ------------------------------------------------------------------ leaves of exact training's tree

   Neighbours are added, then neighbours of these, and so on. A zero's sign would tell whether a part had no gradient or
   zeros, so at last 0.0 is added, which takes it away. */

/* One chunk of `width` numbers; leaves lie `apart` numbers from one another. */
static void add_chunk(float *out, const float *leaves, Py_ssize_t count, Py_ssize_t apart, Py_ssize_t width)
{
    float waiting[DEPTH][CHUNK];
    int depth = 0;
    if (count == 1) {
        for (Py_ssize_t at = 0; at < width; at++)
            out[at] = leaves[at] + 0.0f;
        return;
    }
    for (Py_ssize_t pair = 0; pair < count / 2; pair++) {
        const float *left = leaves + 2 * pair * apart, *right = left + apart;
        float *sum = waiting[depth++];
        for (Py_ssize_t at = 0; at < width; at++)
            sum[at] = left[at] + right[at];
        for (Py_ssize_t left_over = pair; left_over & 1; left_over >>= 1, depth--)
            add(waiting[depth - 2], waiting[depth - 1], width);
    }
    for (Py_ssize_t at = 0; at < width; at++)
        out[at] = waiting[0][at] + 0.0f;
}

static PyObject *add_leaves(PyObject *module, PyObject *args)
{
    Py_buffer out, leaves;
    Py_ssize_t count;
    int fit;
    if (!PyArg_ParseTuple(args, "w*y*n", &out, &leaves, &count))
        return NULL;
    fit = count > 0 && (count & (count - 1)) == 0 && out.len % 4 == 0 && leaves.len / count == out.len && leaves.len % count == 0;
    if (fit) {
        Py_ssize_t numbers = out.len / 4;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t start = 0; start < numbers; start += CHUNK)
            add_chunk((float *)out.buf + start, (const float *)leaves.buf + start, count, numbers, Py_MIN(CHUNK, numbers - start));
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&leaves);
    if (!fit) {
        PyErr_SetString(PyExc_ValueError, "these leaves are not as many as a power of two, each of the sum's size");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ tables that are zero but for rows that were looked up

   Lookups are sorted by their row of the table and keep their order within it. Row by row, the lookups of a part are added
   up one after another into a leaf, and leaves as the tree says; a part that did not look a row up would add zero. */

/* width: numbers of a row. ends: where each part ends among the lookups, the last at their number. offsets: where the lookups
   of each of `owners` rows of values begin, and the end; NULL: each lookup has a row of its own. */
typedef struct {
    const int64_t *index, *ends, *offsets;
    const float *values;
    Py_ssize_t lookups, parts, rows, width, owners;
} Lookups;

/* Levels above two leaves up to the branch that holds both. */
static inline int levels(uint64_t one, uint64_t other)
{
    return 64 - __builtin_clzll(one ^ other);
}

/* The sum of the lookups order[0 .. count) of one row. owner: whose row of the values each of them has; NULL: its own. stack:
   room for DEPTH rows. */
static void add_row(const Lookups *given, const uint32_t *order, const uint32_t *owner, Py_ssize_t count, float *stack, float *out)
{
    Py_ssize_t width = given->width, at = 0;
    uint64_t leaf[DEPTH], part = 0, next = 0;
    int depth = 0;
    while (given->ends[next] <= order[0])
        next++;
    while (at < count) {
        float *sum = stack + depth * width;
        part = leaf[depth++] = next;
        memset(sum, 0, sizeof(float) * width);
        for (; at < count && order[at] < given->ends[part]; at++)
            add(sum, given->values + (owner ? owner[order[at]] : order[at]) * width, width);
        if (at < count)
            while (given->ends[next] <= order[at])
                next++;
        /* Two that wait are added once no leaf is to come in the branch that holds both. */
        while (depth > 1) {
            int above = levels(leaf[depth - 2], leaf[depth - 1]);
            if (at < count && next >> above == part >> above)
                break;
            depth--;
            add(stack + (depth - 1) * width, stack + depth * width, width);
        }
    }
    memcpy(out, stack, sizeof(float) * width);
}

static int add_all(const Lookups *given, float *out)
{
    Py_ssize_t rows = given->rows, width = given->width;
    uint32_t *from = calloc(rows + 1, sizeof(uint32_t)), *order = malloc(sizeof(uint32_t) * (given->lookups + 1));
    uint32_t *owner = given->offsets ? malloc(sizeof(uint32_t) * (given->lookups + 1)) : NULL;
    float *stack = malloc(sizeof(float) * (DEPTH * width + 1));
    int found = from && order && stack && (owner || !given->offsets) ? FOUND : NO_MEMORY;
    for (Py_ssize_t row = 0; found == FOUND && owner && row < given->owners; row++)
        for (int64_t at = given->offsets[row]; at < given->offsets[row + 1]; at++)
            owner[at] = (uint32_t)row;
    for (Py_ssize_t at = 0; found == FOUND && at < given->lookups; at++) {
        if ((uint64_t)given->index[at] < (uint64_t)rows)
            from[given->index[at] + 1]++;
        else
            found = OUT_OF_RANGE;
    }
    if (found == FOUND) {
        for (Py_ssize_t row = 0; row < rows; row++)
            from[row + 1] += from[row];
        for (Py_ssize_t at = 0; at < given->lookups; at++)
            order[from[given->index[at]]++] = (uint32_t)at;
        /* from[row] is now where the lookups of the next row begin. */
        for (Py_ssize_t row = 0, at = 0; row < rows; at = from[row++]) {
            if (at < from[row])
                add_row(given, order + at, owner, from[row] - at, stack, out + row * width);
            else
                memset(out + row * width, 0, sizeof(float) * width);
        }
    }
    free(from);
    free(order);
    free(owner);
    free(stack);
    return found;
}

/* Whether so many numbers rise from the first, 0 or more, to the last, `end`. */
static int rise(const int64_t *numbers, Py_ssize_t count, int64_t end)
{
    if (count < 1 || numbers[0] < 0 || numbers[count - 1] != end)
        return 0;
    for (Py_ssize_t at = 1; at < count; at++)
        if (numbers[at] < numbers[at - 1])
            return 0;
    return 1;
}

/* Whether the buffers are of one shape: lookups that 32 bits count, ends that rise to their number, and so do offsets, from 0. */
static int fits(const Lookups *given, Py_ssize_t values, Py_ssize_t out)
{
    if (given->rows < 1 || given->lookups > INT32_MAX || out % given->rows || values != given->owners * given->width)
        return 0;
    if (given->offsets && (given->owners < 0 || given->offsets[0] || !rise(given->offsets, given->owners + 1, given->lookups)))
        return 0;
    return rise(given->ends, given->parts, given->lookups);
}

static PyObject *add_rows(PyObject *module, PyObject *args)
{
    Py_buffer out, index, values, ends, offsets;
    Py_ssize_t rows;
    int found = FOUND, fit;
    if (!PyArg_ParseTuple(args, "w*y*y*y*nz*", &out, &index, &values, &ends, &rows, &offsets))
        return NULL;
    Lookups given = {.index = index.buf, .ends = ends.buf, .offsets = offsets.buf, .values = values.buf};
    given.lookups = index.len / 8;
    given.parts = ends.len / 8;
    given.rows = rows;
    given.width = rows > 0 ? out.len / 4 / rows : 0;
    given.owners = offsets.buf ? offsets.len / 8 - 1 : given.lookups;
    fit = fits(&given, values.len / 4, out.len / 4);
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        found = add_all(&given, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&index);
    PyBuffer_Release(&values);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&offsets);
    if (found == NO_MEMORY)
        return PyErr_NoMemory();
    if (!fit || found == OUT_OF_RANGE) {
        PyErr_SetString(PyExc_ValueError, "these lookups are not those of such a table");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ fingerprints */

/* The sum of products modulo 2^64. Four sums side by side: the processor multiplies while it waits for nothing. Words are
   asked for in advance: by itself the processor does so only up to the end of a page. */
static uint64_t dot(const uint64_t *words, const uint64_t *keys, Py_ssize_t count)
{
    uint64_t sums[4] = {0, 0, 0, 0};
    Py_ssize_t at = 0;
    for (; at + 8 <= count; at += 8) {
        __builtin_prefetch(words + at + 256);
        for (int lane = 0; lane < 8; lane++)
            sums[lane & 3] += words[at + lane] * keys[at + lane];
    }
    for (; at < count; at++)
        sums[0] += words[at] * keys[at];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

static PyObject *add_words(PyObject *module, PyObject *args)
{
    Py_buffer words, keys, factors;
    uint64_t found = 0;
    int fit;
    if (!PyArg_ParseTuple(args, "y*y*y*", &words, &keys, &factors))
        return NULL;
    Py_ssize_t count = words.len / 8, block = keys.len / 8, blocks = block ? (count + block - 1) / block : 0;
    fit = block > 0 && words.len % 8 == 0 && factors.len / 8 >= blocks;
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t each = 0; each < blocks; each++) {
            const uint64_t *start = (const uint64_t *)words.buf + each * block;
            found += ((const uint64_t *)factors.buf)[each] * dot(start, keys.buf, Py_MIN(block, count - each * block));
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&words);
    PyBuffer_Release(&keys);
    PyBuffer_Release(&factors);
    if (!fit) {
        PyErr_SetString(PyExc_ValueError, "there is not a factor for each block of words");
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(found);
}

static PyMethodDef METHODS[] = {
    {"add_leaves", add_leaves, METH_VARARGS, "add_leaves(out, leaves, count): lay the sum of so many leaves into `out`."},
    {"add_rows", add_rows, METH_VARARGS, "add_rows(out, index, values, ends, rows, offsets): fill `out`, a table of so many rows."},
    {"add_words", add_words, METH_VARARGS, "add_words(words, keys, factors): D of fingerprint.py, as many words a block as keys."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_sums", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sums(void)
{
    return PyModuleDef_Init(&MODULE);
}
