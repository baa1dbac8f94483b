/* Exact sums of doubles, their extremes, and doubles as scaled floats, in one pass each: what numbers.py tries first.

   A double is a whole number of 53 bits times a power of two. Those of one exponent are added up as integers of 128 bits,
   and the few exponents that occur at the end, so every sum is exact, and the bits are those that exactsum.py gives. Where
   the processor has vectors (AVX2 or AVX-512), values of similar size are cut into integers of a few common units instead
   (runs.h). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if !defined(__SIZEOF_INT128__) || !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "128-bit integers and little-endian words are needed; distcore works without this module"
#endif

/* BLOCK: values whose squares, each below 2**106, are added before the sums of exponents are. */
enum { EXPONENTS = 2047, BLOCK = 1 << 20 };

/* RUN: values that vectors look at at once; the sum of so many integers below 2**51 has 63 bits. top: of values whose
   units and squares are far from the ends of what a double can be. PATIENCE: after a run of values that vectors do not take,
   the next to be tried. */
enum { RUN = 2048, LOWEST_TOP = -400, HIGHEST_TOP = 480, PATIENCE = 16 };

/* Limbs of 32 bits in 64: of the sum in units of 2**-1074, and of the sum of squares in units of 2**-2148. */
enum { SUM_LIMBS = 72, SQUARE_LIMBS = 140 };

/* Of one exponent: a sum in units of 2**(exponent - 1075), and a sum of squares in the square of that unit. */
typedef struct {
    __int128 sum;
    unsigned __int128 square;
} Slot;

/* Zeros between calls. Two of each exponent, so that neighbours of one exponent do not wait for each other. */
static _Thread_local Slot SLOTS[EXPONENTS + 1][2];

typedef struct {
    int64_t sum[SUM_LIMBS], square[SQUARE_LIMBS];
    double low, high;
    Py_ssize_t count;
} Found;

static void add_shifted(int64_t *limbs, unsigned __int128 number, int negative, unsigned bits)
{
    unsigned limb = bits / 32, shift = bits % 32;
    uint64_t carried = 0;
    for (int part = 0; part < 5; part++, number >>= 32) {
        uint64_t piece = ((uint64_t)(uint32_t)number << shift) + carried;
        int64_t low = (int64_t)(piece & 0xffffffffu);
        limbs[limb + part] += negative ? -low : low;
        carried = piece >> 32;
    }
}

/* Add what lies in the exponents [from, to] to the limbs, and leave zeros. */
static void gather(Found *found, unsigned from, unsigned to)
{
    for (unsigned exponent = from; exponent <= to; exponent++) {
        Slot *pair = SLOTS[exponent];
        __int128 sum = pair[0].sum + pair[1].sum;
        unsigned __int128 square = pair[0].square + pair[1].square;
        unsigned bits = exponent ? exponent - 1 : 0;
        add_shifted(found->sum, sum < 0 ? -(unsigned __int128)sum : (unsigned __int128)sum, sum < 0, bits);
        add_shifted(found->square, square, 0, 2 * bits);
        memset(pair, 0, sizeof SLOTS[exponent]);
    }
}

static inline int is_valid(const uint8_t *valid, Py_ssize_t at)
{
    return valid[at / 8] >> (at % 8) & 1;
}

/* Looks at up to RUN values; 0, and nothing was changed, if they are not finite or differ too much in size. */
typedef int (*Run)(const double *values, Py_ssize_t count, const uint8_t *valid, Py_ssize_t first, Found *found);

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Which of the up to `wanted` values from `at` on are there: a bit for each. */
static inline unsigned lanes(const uint8_t *valid, Py_ssize_t at, Py_ssize_t count, int wanted)
{
    unsigned all = (1u << (count < wanted ? count : wanted)) - 1, shift = at % 8, bits;
    if (!valid)
        return all;
    bits = valid[at / 8] >> shift;
    if (shift && count > 8 - shift)
        bits |= (unsigned)valid[at / 8 + 1] << (8 - shift);
    return bits & all;
}

#define LANES 8
#define VECTORS __attribute__((target("avx512f")))
#define Doubles __m512d
#define Words __m512i
#define ALL(number) _mm512_set1_pd(number)
#define LOADED(mask, from) _mm512_maskz_loadu_pd((__mmask8)(mask), from)
#define LOWER(mask, a, b) _mm512_mask_min_pd(a, (__mmask8)(mask), a, b)
#define HIGHER(mask, a, b) _mm512_mask_max_pd(a, (__mmask8)(mask), a, b)
#define SQUARE_LESS(x, number) _mm512_fmsub_pd(x, x, number)
#include "runs.h"

/* A mask's bits as lanes. */
#define LANE(mask, bit) -((mask) >> (bit) & 1)
#define LANES_OF(mask) {LANE(mask, 0), LANE(mask, 1), LANE(mask, 2), LANE(mask, 3)}
#define FOUR_MASKS(mask) LANES_OF(mask), LANES_OF(mask + 1), LANES_OF(mask + 2), LANES_OF(mask + 3)
static const int64_t MASKS[16][4] = {FOUR_MASKS(0), FOUR_MASKS(4), FOUR_MASKS(8), FOUR_MASKS(12)};

#define LANES 4
#define VECTORS __attribute__((target("avx2,fma")))
#define Doubles __m256d
#define Words __m256i
#define ALL(number) _mm256_set1_pd(number)
#define MASK(mask) _mm256_loadu_si256((const __m256i *)MASKS[mask])
#define OTHERWISE(mask, a, b) _mm256_blendv_pd(b, a, (__m256d)MASK(mask))
#define LOADED(mask, from) _mm256_maskload_pd(from, MASK(mask))
#define LOWER(mask, a, b) OTHERWISE(mask, _mm256_min_pd(a, b), a)
#define HIGHER(mask, a, b) OTHERWISE(mask, _mm256_max_pd(a, b), a)
#define SQUARE_LESS(x, number) _mm256_fmsub_pd(x, x, number)
#include "runs.h"

/* The widest that this processor has; NULL: none. */
static Run by_vectors(void)
{
    if (__builtin_cpu_supports("avx512f"))
        return describe_run_8;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? describe_run_4 : NULL;
}

#else
static Run by_vectors(void)
{
    return NULL;
}
#endif

/* Exponents of slots that are not zero, from the lowest to the highest. */
typedef struct {
    unsigned from, to;
} Used;

/* Add values to the slots of their exponents; 0 if one is NaN or an infinity. */
static int describe_each(const double *values, Py_ssize_t count, const uint8_t *valid, Py_ssize_t first, Found *found,
                         Used *used)
{
    double low = found->low, high = found->high;
    unsigned from = used->from, to = used->to;
    int finite = 1;
    Slot (*slots)[2] = SLOTS;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (valid && !is_valid(valid, first + at))
            continue;
        double value = values[at];
        uint64_t word;
        memcpy(&word, &value, 8);
        unsigned exponent = word >> 52 & EXPONENTS;
        if (exponent == EXPONENTS) {
            finite = 0;
            break;
        }
        uint64_t whole = (word & 0xfffffffffffffu) | (uint64_t)(exponent != 0) << 52;
        int64_t sign = (int64_t)word >> 63;
        Slot *slot = &slots[exponent][at & 1];
        slot->sum += ((int64_t)whole ^ sign) - sign;
        slot->square += (unsigned __int128)whole * whole;
        from = exponent < from ? exponent : from;
        to = exponent > to ? exponent : to;
        low = value < low ? value : low;
        high = value > high ? value : high;
        found->count++;
    }
    found->low = low, found->high = high, used->from = from, used->to = to;
    return finite;
}

/* 0 if a value is NaN or an infinity. first: the place of the first value in the bits of `valid`, which may be NULL. */
static int describe(const double *values, Py_ssize_t count, const uint8_t *valid, Py_ssize_t first, Found *found)
{
    int finite = 1;
    Run run = by_vectors();
    Py_ssize_t next = 0; /* to be tried as a run */
    found->low = INFINITY, found->high = -INFINITY;
    for (Py_ssize_t start = 0; start < count && finite; start += BLOCK) {
        Py_ssize_t stop = Py_MIN(start + BLOCK, count);
        Used used = {EXPONENTS, 0};
        for (Py_ssize_t at = start; at < stop && finite; at += RUN) {
            Py_ssize_t size = Py_MIN(RUN, stop - at);
            if (run && at >= next) {
                if (run(values + at, size, valid, first + at, found))
                    continue;
                next = at + PATIENCE * RUN;
            }
            finite = describe_each(values + at, size, valid, first + at, found, &used);
        }
        if (used.from <= used.to)
            gather(found, used.from, used.to);
    }
    return finite;
}

/* The limbs as bytes of one number, little-endian, two's complement. */
static PyObject *as_bytes(const int64_t *limbs, int count)
{
    uint32_t words[SQUARE_LIMBS];
    int64_t carried = 0;
    for (int limb = 0; limb < count; limb++) {
        int64_t total = limbs[limb] + carried;
        words[limb] = (uint32_t)total;
        carried = total >> 32;
    }
    return PyBytes_FromStringAndSize((const char *)words, 4 * (Py_ssize_t)count);
}

/* The values [count] from `offset` of a buffer of doubles, and the bits that say which are there; 0: an exception is set. */
static int views(PyObject *numbers, PyObject *bits, Py_ssize_t offset, Py_ssize_t count, Py_buffer *values,
                 Py_buffer *valid)
{
    valid->obj = NULL, valid->buf = NULL;
    if (PyObject_GetBuffer(numbers, values, PyBUF_SIMPLE) < 0)
        return 0;
    if (bits != Py_None && PyObject_GetBuffer(bits, valid, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(values);
        return 0;
    }
    Py_ssize_t room = values->len / 8, marks = valid->buf ? valid->len : PY_SSIZE_T_MAX;
    if (offset < 0 || count < 0 || offset > room || count > room - offset || (offset + count + 7) / 8 > marks) {
        PyErr_SetString(PyExc_ValueError, "the buffers are too short for these rows");
        PyBuffer_Release(values);
        if (valid->obj)
            PyBuffer_Release(valid);
        return 0;
    }
    return 1;
}

static PyObject *described(PyObject *module, PyObject *arguments)
{
    PyObject *numbers, *bits;
    Py_ssize_t offset, count;
    Py_buffer values, valid;
    if (!PyArg_ParseTuple(arguments, "OOnn", &numbers, &bits, &offset, &count) ||
        !views(numbers, bits, offset, count, &values, &valid))
        return NULL;
    Found found = {.count = 0};
    int finite;
    Py_BEGIN_ALLOW_THREADS
    finite = describe((const double *)values.buf + offset, count, valid.buf, offset, &found);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&values);
    if (valid.obj)
        PyBuffer_Release(&valid);
    if (!finite)
        Py_RETURN_NONE;
    PyObject *sum = as_bytes(found.sum, SUM_LIMBS), *square = as_bytes(found.square, SQUARE_LIMBS);
    if (!sum || !square) {
        Py_XDECREF(sum);
        Py_XDECREF(square);
        return NULL;
    }
    return Py_BuildValue("nNNdd", found.count, sum, square, found.low, found.high);
}

/* Whether all are finite, those too that lie under a null: nothing else gives a zero times zero. */
static int all_finite(const double *values, Py_ssize_t count)
{
    enum { APART = 8 }; /* sums that do not wait for each other */
    double zeros[APART] = {0.0}, zero = 0.0;
    Py_ssize_t whole = count - count % APART;
    for (Py_ssize_t at = 0; at < whole; at += APART)
        for (int lane = 0; lane < APART; lane++)
            zeros[lane] += values[at + lane] * 0.0;
    for (Py_ssize_t at = whole; at < count; at++)
        zero += values[at] * 0.0;
    for (int lane = 0; lane < APART; lane++)
        zero += zeros[lane];
    return zero == 0.0;
}

static PyObject *surely_finite(PyObject *module, PyObject *arguments)
{
    PyObject *numbers;
    Py_ssize_t offset, count;
    Py_buffer values, valid;
    int found;
    if (!PyArg_ParseTuple(arguments, "Onn", &numbers, &offset, &count) ||
        !views(numbers, Py_None, offset, count, &values, &valid))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = all_finite((const double *)values.buf + offset, count);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&values);
    return PyBool_FromLong(found);
}

/* 0 if a value that is there has no finite code. */
static int scale(const double *values, Py_ssize_t count, const uint8_t *valid, Py_ssize_t first, double shift,
                 double unit, float fill, float *out)
{
    int finite = 1;
    for (Py_ssize_t at = 0; at < count; at++)
        out[at] = (float)((values[at] - shift) / unit);
    if (valid)
        for (Py_ssize_t at = 0; at < count; at++)
            out[at] = is_valid(valid, first + at) ? out[at] : fill;
    for (Py_ssize_t at = 0; at < count; at++)
        finite &= fabsf(out[at]) < INFINITY;
    return finite;
}

static PyObject *scaled(PyObject *module, PyObject *arguments)
{
    PyObject *numbers, *bits, *target;
    Py_ssize_t offset, count;
    double shift, unit, fill;
    Py_buffer values, valid, out;
    if (!PyArg_ParseTuple(arguments, "OOnndddO", &numbers, &bits, &offset, &count, &shift, &unit, &fill, &target) ||
        !views(numbers, bits, offset, count, &values, &valid))
        return NULL;
    PyObject *answer = NULL;
    if (PyObject_GetBuffer(target, &out, PyBUF_WRITABLE) == 0) {
        if (out.len < 4 * count)
            PyErr_SetString(PyExc_ValueError, "the target is too short");
        else {
            int finite = 1;
            enum { PART = 1 << 13 }; /* stays in a core's cache between the passes */
            Py_BEGIN_ALLOW_THREADS
            for (Py_ssize_t at = 0; at < count; at += PART) {
                Py_ssize_t size = count - at < PART ? count - at : PART;
                finite &= scale((const double *)values.buf + offset + at, size, valid.buf, offset + at, shift, unit,
                                (float)fill, (float *)out.buf + at);
            }
            Py_END_ALLOW_THREADS
            answer = PyBool_FromLong(finite);
        }
        PyBuffer_Release(&out);
    }
    PyBuffer_Release(&values);
    if (valid.obj)
        PyBuffer_Release(&valid);
    return answer;
}

static PyMethodDef METHODS[] = {
    {"described", described, METH_VARARGS,
     "described(values, valid, offset, count): (count, sum, sum of squares, low, high), or None."},
    {"surely_finite", surely_finite, METH_VARARGS,
     "surely_finite(values, offset, count): whether all are, what lies under a null too."},
    {"scaled", scaled, METH_VARARGS,
     "scaled(values, valid, offset, count, shift, unit, fill, target): fill the target; whether all codes are finite."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_numbers", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__numbers(void)
{
    return PyModuleDef_Init(&MODULE);
}
