/* The gradient of a layer's weight, part by part and added along exact training's tree, by vectors of 512 bits.

   A part's rows are taken CHUNK at a time: each number is a chain of fused multiply-adds over a chunk's rows, from zero, and
   chunks are added in their order. So its bits depend on neither the vectors nor the tiles, and oneDNN, which makes the same
   chain of so few rows, gives them too (products.py). Where the processor or the compiler has no such vectors, `there()`
   is False. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A tile is TALL rows by WIDE vectors of LINE numbers: its sums, a line of the right factor and a number of the left one fill
   29 of 32 registers. */
enum { CHUNK = 128, TALL = 6, WIDE = 4, LINE = 16 };

/* left: numbers [rows, tall]; right: [rows, wide]. waiting: the sums of branches that wait for their neighbour, [tall, wide]
   each. packed: a chunk of left as columns of tiles; panel: of right, a tile's columns. */
typedef struct {
    const float *left, *right;
    float *out, *waiting, *packed, *panel;
    Py_ssize_t tall, wide;
} Product;

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define VECTORS __attribute__((target("avx512f")))

static int there(void)
{
    return __builtin_cpu_supports("avx512f");
}

/* sum[i][j] = the chain of left[row][i] * right[row][j] over so many rows, N vectors wide. */
#define TILE(N)                                                                                                                  \
    VECTORS static void tile##N(const float *left, const float *right, Py_ssize_t rows, __m512 (*sum)[WIDE])                     \
    {                                                                                                                            \
        __m512 s[TALL][N], line[N];                                                                                              \
        for (int i = 0; i < TALL; i++)                                                                                           \
            for (int j = 0; j < N; j++)                                                                                          \
                s[i][j] = _mm512_setzero_ps();                                                                                   \
        for (; rows > 0; rows--, left += TALL, right += N * LINE) {                                                              \
            for (int j = 0; j < N; j++)                                                                                          \
                line[j] = _mm512_load_ps(right + j * LINE);                                                                      \
            _Pragma("GCC unroll 6") for (int i = 0; i < TALL; i++)                                                               \
            {                                                                                                                    \
                __m512 number = _mm512_set1_ps(left[i]);                                                                         \
                _Pragma("GCC unroll 4") for (int j = 0; j < N; j++)                                                              \
                    s[i][j] = _mm512_fmadd_ps(number, line[j], s[i][j]);                                                         \
            }                                                                                                                    \
        }                                                                                                                        \
        for (int i = 0; i < TALL; i++)                                                                                           \
            for (int j = 0; j < N; j++)                                                                                          \
                sum[i][j] = s[i][j];                                                                                             \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)

typedef void (*Tile)(const float *, const float *, Py_ssize_t, __m512 (*)[WIDE]);
static const Tile TILES[WIDE + 1] = {NULL, tile1, tile2, tile3, tile4};

/* TALL columns behind one another, zeros where there are none. */
static void pack(const Product *given, Py_ssize_t start, Py_ssize_t rows)
{
    Py_ssize_t whole = given->tall / TALL, more = given->tall % TALL;
    for (Py_ssize_t row = 0; row < rows; row++) {
        const float *from = given->left + (start + row) * given->tall;
        float *to = given->packed + row * TALL;
        for (Py_ssize_t block = 0; block < whole; block++, to += rows * TALL, from += TALL)
            memcpy(to, from, sizeof(float) * TALL);
        for (int i = 0; more && i < TALL; i++)
            to[i] = i < more ? from[i] : 0.0f;
    }
}

static void pack_panel(const Product *given, Py_ssize_t start, Py_ssize_t rows, Py_ssize_t column, Py_ssize_t width, int vectors)
{
    for (Py_ssize_t row = 0; row < rows; row++) {
        float *to = given->panel + row * vectors * LINE;
        memcpy(to, given->right + (start + row) * given->wide + column, sizeof(float) * width);
        memset(to + width, 0, sizeof(float) * (vectors * LINE - width));
    }
}

/* One chunk of a part. first, last: of the part's chunks. full: branches of the tree that the part completes, each of which
   is added to the one that waits on its left. all: whether it is the last part. */
VECTORS static void chunk(const Product *given, Py_ssize_t start, Py_ssize_t rows, int first, int last, int full, int all)
{
    Py_ssize_t area = given->tall * given->wide, blocks = (given->tall + TALL - 1) / TALL;
    float *to = all ? given->out : given->waiting + full * area;
    __m512 sum[TALL][WIDE];
    pack(given, start, rows);
    for (Py_ssize_t column = 0; column < given->wide; column += WIDE * LINE) {
        Py_ssize_t width = Py_MIN(WIDE * LINE, given->wide - column);
        int vectors = (int)((width + LINE - 1) / LINE);
        __mmask16 ending = (__mmask16)(0xffff >> (vectors * LINE - width));
        pack_panel(given, start, rows, column, width, vectors);
        for (Py_ssize_t block = 0; block < blocks; block++) {
            int high = (int)Py_MIN(TALL, given->tall - block * TALL);
            TILES[vectors](given->packed + block * rows * TALL, given->panel, rows, sum);
            for (int i = 0; i < high; i++) {
                Py_ssize_t place = (block * TALL + i) * given->wide + column;
                for (int j = 0; j < vectors; j++, place += LINE) {
                    __mmask16 mask = j == vectors - 1 ? ending : 0xffff;
                    __m512 found = sum[i][j];
                    if (!first)
                        found = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to + place), found);
                    for (int level = 0; last && level < full; level++)
                        found = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, given->waiting + level * area + place), found);
                    if (last && all) /* takes a zero's sign away, as the sums of exact training do */
                        found = _mm512_add_ps(found, _mm512_setzero_ps());
                    _mm512_mask_storeu_ps(to + place, mask, found);
                }
            }
        }
    }
}

static int multiply(Product *given, const int64_t *ends, Py_ssize_t parts)
{
    Py_ssize_t levels = 0, blocks = (given->tall + TALL - 1) / TALL;
    while (((Py_ssize_t)1 << levels) < parts)
        levels++;
    given->packed = malloc(sizeof(float) * blocks * TALL * CHUNK);
    given->panel = aligned_alloc(sizeof(float) * LINE, sizeof(float) * WIDE * LINE * CHUNK);
    given->waiting = malloc(sizeof(float) * levels * given->tall * given->wide + 1);
    int found = given->packed && given->panel && given->waiting;
    for (Py_ssize_t part = 0, start = 0; found && part < parts; start = ends[part++]) {
        int full = 0, first = 1;
        for (Py_ssize_t odd = part; odd & 1; odd >>= 1)
            full++;
        do {
            Py_ssize_t rows = Py_MIN(CHUNK, ends[part] - start);
            chunk(given, start, rows, first, start + rows == ends[part], full, part == parts - 1);
            start += rows;
            first = 0;
        } while (start < ends[part]);
    }
    free(given->packed);
    free(given->panel);
    free(given->waiting);
    return found;
}
#else
static int there(void)
{
    return 0;
}

static int multiply(Product *given, const int64_t *ends, Py_ssize_t parts)
{
    return 0;
}
#endif

static PyObject *is_there(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(there());
}

/* Whether parts are as many as a power of two and fall within so many rows, to the last of them. */
static int cut(const int64_t *ends, Py_ssize_t parts, Py_ssize_t rows)
{
    int64_t before = 0;
    if (parts < 1 || parts & (parts - 1))
        return 0;
    for (Py_ssize_t part = 0; part < parts; before = ends[part++])
        if (ends[part] < before || ends[part] > rows)
            return 0;
    return before == rows;
}

static PyObject *weight_gradient(PyObject *module, PyObject *args)
{
    Py_buffer out, left, right, ends;
    Py_ssize_t rows;
    int fit, done = 0;
    if (!PyArg_ParseTuple(args, "w*y*y*y*n", &out, &left, &right, &ends, &rows))
        return NULL;
    Py_ssize_t tall = rows > 0 ? left.len / 4 / rows : 0, wide = rows > 0 ? right.len / 4 / rows : 0;
    fit = there() && tall > 0 && wide > 0 && left.len == 4 * rows * tall && right.len == 4 * rows * wide &&
          out.len / 4 / tall == wide && out.len == 4 * tall * wide && cut(ends.buf, ends.len / 8, rows);
    if (fit) {
        Product given = {.left = left.buf, .right = right.buf, .out = out.buf, .tall = tall, .wide = wide};
        Py_BEGIN_ALLOW_THREADS
        done = multiply(&given, ends.buf, ends.len / 8);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&left);
    PyBuffer_Release(&right);
    PyBuffer_Release(&ends);
    if (!fit) {
        PyErr_SetString(PyExc_ValueError, "these are not the factors of such a gradient, or there are no such vectors");
        return NULL;
    }
    if (!done)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"there", is_there, METH_NOARGS, "there(): whether this processor has vectors of 512 bits."},
    {"weight_gradient", weight_gradient, METH_VARARGS,
     "weight_gradient(out, gradient, x, ends, rows): fill `out`, parts of so many rows in all ending where `ends` says."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_products", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__products(void)
{
    return PyModuleDef_Init(&MODULE);
}
