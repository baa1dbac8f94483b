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
#if defined(__linux__)
#include <dlfcn.h>
#endif

/* A tile is TALL rows by WIDE vectors of LINE numbers: its sums, a line of the right factor and a number of the left one fill
   29 of 32 registers. */
enum { CHUNK = 128, TALL = 6, WIDE = 4, LINE = 16 };

/* Numbers of a row of the left factor up to which tiles read it where it lies. Rows that are farther apart share too few sets of
   the nearest cache: they are packed first, which takes a tenth of the time of a short one. */
enum { NEAR = 256 };

/* left: numbers [rows, tall]; right: [rows, wide]. waiting: the sums of branches that wait for their neighbour, [tall, wide]
   each. ends: where each of the parts ends among the rows. */
typedef struct {
    const float *left, *right;
    float *out, *waiting;
    const int64_t *ends;
    Py_ssize_t tall, wide, parts;
} Product;

/* What one thread makes of it: blocks of TALL rows, columns from a tile's first on. packed: a chunk of left as columns of tiles,
   NULL if they read it where it lies; panel: of right, a tile's columns. */
typedef struct {
    const Product *of;
    Py_ssize_t block, last_block, column, last_column;
    float *packed, *panel;
} Piece;

/* GNU OpenMP's way to run a function in a team of threads; NULL: this thread does it alone. */
static void (*parallel)(void (*)(void *), void *, unsigned, unsigned);

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define VECTORS __attribute__((target("avx512f")))

static int there(void)
{
    return __builtin_cpu_supports("avx512f");
}

/* sum[i][j] = the chain of left[row][i] * right[row][j] over so many rows, which lie `apart` numbers from one another in left;
   N vectors wide. */
#define TILE(N)                                                                                                                  \
    VECTORS static void tile##N(const float *left, Py_ssize_t apart, const float *right, Py_ssize_t rows, __m512 (*sum)[WIDE])   \
    {                                                                                                                            \
        __m512 s[TALL][N], line[N];                                                                                              \
        for (int i = 0; i < TALL; i++)                                                                                           \
            for (int j = 0; j < N; j++)                                                                                          \
                s[i][j] = _mm512_setzero_ps();                                                                                   \
        for (; rows > 0; rows--, left += apart, right += N * LINE) {                                                             \
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

typedef void (*Tile)(const float *, Py_ssize_t, const float *, Py_ssize_t, __m512 (*)[WIDE]);
static const Tile TILES[WIDE + 1] = {NULL, tile1, tile2, tile3, tile4};

/* TALL columns behind one another, zeros where there are none. */
static void pack(const Piece *piece, Py_ssize_t start, Py_ssize_t rows)
{
    const Product *of = piece->of;
    Py_ssize_t whole = Py_MIN(piece->last_block, of->tall / TALL), more = of->tall % TALL;
    for (Py_ssize_t row = 0; row < rows; row++) {
        const float *from = of->left + (start + row) * of->tall + piece->block * TALL;
        float *to = piece->packed + row * TALL;
        for (Py_ssize_t block = piece->block; block < whole; block++, to += rows * TALL, from += TALL)
            memcpy(to, from, sizeof(float) * TALL);
        for (int i = 0; piece->last_block > whole && i < TALL; i++)
            to[i] = i < more ? from[i] : 0.0f;
    }
}

/* Tiles go down the columns of rows: from memory these come faster in the order in which they lie. */
static void fetch(const Piece *piece, Py_ssize_t start, Py_ssize_t rows)
{
    const Product *of = piece->of;
    const float *end = of->left + (start + rows) * of->tall;
    for (const float *line = of->left + start * of->tall; line < end; line += LINE)
        _mm_prefetch(line, _MM_HINT_T1);
}

VECTORS static void pack_panel(const Piece *piece, Py_ssize_t start, Py_ssize_t rows, Py_ssize_t column, int vectors, __mmask16 ending)
{
    Py_ssize_t wide = piece->of->wide;
    const float *from = piece->of->right + start * wide + column;
    for (float *to = piece->panel; rows > 0; rows--, from += wide)
        for (int j = 0; j < vectors; j++, to += LINE)
            _mm512_store_ps(to, _mm512_maskz_loadu_ps(j == vectors - 1 ? ending : 0xffff, from + j * LINE));
}

/* One chunk of a part. first, last: of the part's chunks. full: branches of the tree that the part completes, each of which
   is added to the one that waits on its left. all: whether it is the last part. */
VECTORS static void chunk(const Piece *piece, Py_ssize_t start, Py_ssize_t rows, int first, int last, int full, int all)
{
    const Product *of = piece->of;
    Py_ssize_t area = of->tall * of->wide;
    float *to = all ? of->out : of->waiting + full * area;
    __m512 sum[TALL][WIDE];
    (piece->packed ? pack : fetch)(piece, start, rows);
    for (Py_ssize_t column = piece->column; column < piece->last_column; column += WIDE * LINE) {
        Py_ssize_t width = Py_MIN(WIDE * LINE, piece->last_column - column);
        int vectors = (int)((width + LINE - 1) / LINE);
        __mmask16 ending = (__mmask16)(0xffff >> (vectors * LINE - width));
        pack_panel(piece, start, rows, column, vectors, ending);
        for (Py_ssize_t block = piece->block; block < piece->last_block; block++) {
            Py_ssize_t top = block * TALL, high = Py_MIN(TALL, of->tall - top), laid = 0, apart = TALL;
            const float *left;
            if (piece->packed) {
                left = piece->packed + (block - piece->block) * rows * TALL;
            } else {
                /* The last tile begins within the one before it, whose rows it does not lay again. */
                laid = TALL - high;
                high = TALL;
                top -= laid;
                apart = of->tall;
                left = of->left + start * apart + top;
            }
            TILES[vectors](left, apart, piece->panel, rows, sum);
            for (Py_ssize_t i = laid; i < high; i++) {
                Py_ssize_t place = (top + i) * of->wide + column;
                for (int j = 0; j < vectors; j++, place += LINE) {
                    __mmask16 mask = j == vectors - 1 ? ending : 0xffff;
                    __m512 found = sum[i][j];
                    if (!first)
                        found = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to + place), found);
                    for (int level = 0; last && level < full; level++)
                        found = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, of->waiting + level * area + place), found);
                    if (last && all) /* takes a zero's sign away, as the sums of exact training do */
                        found = _mm512_add_ps(found, _mm512_setzero_ps());
                    _mm512_mask_storeu_ps(to + place, mask, found);
                }
            }
        }
    }
}

static int multiply_piece(Piece *piece)
{
    const Product *of = piece->of;
    int packs = of->tall < TALL || of->tall > NEAR;
    piece->packed = packs ? malloc(sizeof(float) * (piece->last_block - piece->block) * TALL * CHUNK) : NULL;
    piece->panel = aligned_alloc(sizeof(float) * LINE, sizeof(float) * WIDE * LINE * CHUNK);
    int found = (piece->packed || !packs) && piece->panel;
    for (Py_ssize_t part = 0, start = 0; found && part < of->parts; start = of->ends[part++]) {
        int full = 0, first = 1;
        for (Py_ssize_t odd = part; odd & 1; odd >>= 1)
            full++;
        do {
            Py_ssize_t rows = Py_MIN(CHUNK, of->ends[part] - start);
            chunk(piece, start, rows, first, start + rows == of->ends[part], full, part == of->parts - 1);
            start += rows;
            first = 0;
        } while (start < of->ends[part]);
    }
    free(piece->packed);
    free(piece->panel);
    return found;
}

/* Pieces that threads take one after another: so many down, so many across. */
typedef struct {
    const Product *of;
    Py_ssize_t down, across;
    int next, failed;
} Pieces;

static void take_pieces(void *given)
{
    Pieces *pieces = given;
    const Product *of = pieces->of;
    Py_ssize_t blocks = (of->tall + TALL - 1) / TALL, panels = (of->wide + WIDE * LINE - 1) / (WIDE * LINE);
    int next;
    while ((next = __atomic_fetch_add(&pieces->next, 1, __ATOMIC_RELAXED)) < pieces->down * pieces->across) {
        Py_ssize_t down = next / pieces->across, across = next % pieces->across;
        Piece piece = {.of = of};
        piece.block = blocks * down / pieces->down;
        piece.last_block = blocks * (down + 1) / pieces->down;
        piece.column = panels * across / pieces->across * WIDE * LINE;
        piece.last_column = Py_MIN(of->wide, panels * (across + 1) / pieces->across * WIDE * LINE);
        if (!multiply_piece(&piece))
            __atomic_store_n(&pieces->failed, 1, __ATOMIC_RELAXED);
    }
}

/* Tiles share no number of the result, so threads change no bit of it. */
static int multiply(Product *of, unsigned threads)
{
    Py_ssize_t levels = 0, blocks = (of->tall + TALL - 1) / TALL, panels = (of->wide + WIDE * LINE - 1) / (WIDE * LINE);
    while (((Py_ssize_t)1 << levels) < of->parts)
        levels++;
    of->waiting = malloc(sizeof(float) * levels * of->tall * of->wide + 1);
    if (!of->waiting)
        return 0;
    /* Down first: there are more blocks than panels, so pieces are of about one size. */
    Pieces pieces = {.of = of, .down = Py_MIN(threads, blocks)};
    pieces.across = Py_MIN(threads / pieces.down, panels);
    if (parallel && threads > 1)
        parallel(take_pieces, &pieces, threads, 0);
    else
        take_pieces(&pieces);
    free(of->waiting);
    return !pieces.failed;
}
#else
static int there(void)
{
    return 0;
}

static int multiply(Product *of, unsigned threads)
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
    unsigned threads;
    int fit, done = 0;
    if (!PyArg_ParseTuple(args, "w*y*y*y*nI", &out, &left, &right, &ends, &rows, &threads))
        return NULL;
    Py_ssize_t tall = rows > 0 ? left.len / 4 / rows : 0, wide = rows > 0 ? right.len / 4 / rows : 0;
    fit = there() && threads > 0 && tall > 0 && wide > 0 && left.len == 4 * rows * tall && right.len == 4 * rows * wide &&
          out.len / 4 / tall == wide && out.len == 4 * tall * wide && cut(ends.buf, ends.len / 8, rows);
    if (fit) {
        Product given = {.left = left.buf, .right = right.buf, .out = out.buf, .ends = ends.buf};
        given.tall = tall;
        given.wide = wide;
        given.parts = ends.len / 8;
        Py_BEGIN_ALLOW_THREADS
        done = multiply(&given, threads);
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

/* Two teams of threads, ours and torch's, would wait for one another's processors. */
static PyObject *share_threads(PyObject *module, PyObject *args)
{
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
#if defined(__linux__)
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        *(void **)&parallel = dlsym(library, "GOMP_parallel");
#endif
    return PyBool_FromLong(parallel != NULL);
}

static PyMethodDef METHODS[] = {
    {"share_threads", share_threads, METH_VARARGS, "share_threads(path): take those of this OpenMP library; whether it is loaded."},
    {"there", is_there, METH_NOARGS, "there(): whether this processor has vectors of 512 bits."},
    {"weight_gradient", weight_gradient, METH_VARARGS,
     "weight_gradient(out, gradient, x, ends, rows, threads): fill `out`, parts of so many rows in all ending where `ends` says."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_products", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__products(void)
{
    return PyModuleDef_Init(&MODULE);
}
