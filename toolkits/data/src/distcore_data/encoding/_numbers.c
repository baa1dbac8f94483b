/* Exact sums of doubles, their extremes, and doubles as scaled floats, in one pass each: what numbers.py tries first.

   A double is a whole number of 53 bits times a power of two. Those of one exponent are added up as integers of 128 bits,
   and the few exponents that occur at the end, so every sum is exact, and the bits are those that exactsum.py gives. Where
   the processor has vectors of 512 bits, values of similar size are cut into integers of a few common units instead. */

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

/* RUN: values that vectors of LANES look at at once; the sum of so many integers below 2**51 has 63 bits. top: of values whose
   units and squares are far from the ends of what a double can be. PATIENCE: after a run of values that vectors do not take,
   the next to be tried. */
enum { LANES = 8, RUN = 2048, LOWEST_TOP = -400, HIGHEST_TOP = 480, PATIENCE = 16 };

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

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define VECTORS __attribute__((target("avx512f")))

static int there(void)
{
    return __builtin_cpu_supports("avx512f");
}

/* A number is rounded to a unit, what that leaves of it to one 2**52 times smaller, and so on. A cut is 1.5 * 2**52 units:
   around it doubles are whole units, so adding it rounds a number of at most 2**51 of them, and the sum's bits are the cut's
   plus the number in units. Subtracting gives what was rounded off, without an error (Rump, Ogita and Oishi, "Accurate
   floating-point summation, part I", 2008, section 3). */
VECTORS static inline __m512d cut_off(__m512d number, __m512d cut, __m512i *units)
{
    __m512d rounded = _mm512_add_pd(number, cut);
    *units = _mm512_add_epi64(*units, _mm512_castpd_si512(rounded));
    return _mm512_sub_pd(number, _mm512_sub_pd(rounded, cut));
}

/* Add the units that so many numbers had. bits: the unit's place in the limbs. */
VECTORS static void add_units(int64_t *limbs, __m512i units, double cut, Py_ssize_t numbers, int bits)
{
    uint64_t word, lane[LANES], sum = 0;
    memcpy(&word, &cut, 8);
    _mm512_storeu_si512(lane, units);
    for (int i = 0; i < LANES; i++)
        sum += lane[i]; /* modulo 2**64, from which the cuts are taken again */
    int64_t total = (int64_t)(sum - word * (uint64_t)numbers);
    add_shifted(limbs, total < 0 ? -(uint64_t)total : (uint64_t)total, total < 0, (unsigned)bits);
}

/* Which of the up to LANES values from `at` on are there. */
static inline unsigned lanes(const uint8_t *valid, Py_ssize_t at, Py_ssize_t count)
{
    unsigned all = count < LANES ? (1u << count) - 1 : 0xff, shift = at % 8, bits;
    if (!valid)
        return all;
    bits = valid[at / 8] >> shift;
    if (shift && count > 8 - shift)
        bits |= (unsigned)valid[at / 8 + 1] << (8 - shift);
    return bits & all;
}

/* Look at up to RUN values; 0, and nothing was changed, if they are not finite or differ too much in size. The largest lies
   below 2**(top + 1), and all are multiples of the second unit, 2**(top - 102). A square is a rounded product, of at most
   2**(2 * top + 2), and its error, of at most 2**(2 * top - 52): multiples of 2**(2 * top - 204) then, which the fourth of
   their units divides. */
VECTORS static int describe_run(const double *values, Py_ssize_t count, const uint8_t *valid, Py_ssize_t first, Found *found)
{
    __m512d low = _mm512_set1_pd(INFINITY), high = _mm512_set1_pd(-INFINITY);
    Py_ssize_t counted = 0, numbers = (count + LANES - 1) / LANES * LANES;
    for (Py_ssize_t at = 0; at < count; at += LANES) {
        unsigned mask = lanes(valid, first + at, count - at);
        __m512d x = _mm512_maskz_loadu_pd((__mmask8)mask, values + at);
        low = _mm512_mask_min_pd(low, (__mmask8)mask, low, x);
        high = _mm512_mask_max_pd(high, (__mmask8)mask, high, x);
        counted += __builtin_popcount(mask);
    }
    double lowest = _mm512_reduce_min_pd(low), highest = _mm512_reduce_max_pd(high);
    double largest = fmax(fabs(lowest), fabs(highest));
    int top = 0;
    if (!counted)
        return 1;
    if (largest > 0.0) /* 0: nothing but zeros, or NaN, which no cut takes */
        top = largest < INFINITY ? ilogb(largest) : HIGHEST_TOP + 1;
    if (top < LOWEST_TOP || top > HIGHEST_TOP)
        return 0;

    enum { UNITS = 2, SQUARE_UNITS = 4 };
    double cut[UNITS], square_cut[SQUARE_UNITS];
    __m512d cuts[UNITS], square_cuts[SQUARE_UNITS];
    __m512i sum[UNITS], square[SQUARE_UNITS], error[SQUARE_UNITS], rest = _mm512_setzero_si512();
    for (int i = 0; i < UNITS; i++) {
        cuts[i] = _mm512_set1_pd(cut[i] = ldexp(1.5, top + 2 - 52 * i));
        sum[i] = rest;
    }
    for (int i = 0; i < SQUARE_UNITS; i++) {
        square_cuts[i] = _mm512_set1_pd(square_cut[i] = ldexp(1.5, 2 * top + 3 - 52 * i));
        square[i] = error[i] = rest;
    }
    for (Py_ssize_t at = 0; at < count; at += LANES) {
        __m512d x = _mm512_maskz_loadu_pd((__mmask8)lanes(valid, first + at, count - at), values + at);
        __m512d product = _mm512_mul_pd(x, x), off = _mm512_fmsub_pd(x, x, product);
        for (int i = 0; i < UNITS; i++)
            x = cut_off(x, cuts[i], &sum[i]);
        for (int i = 0; i < SQUARE_UNITS; i++)
            product = cut_off(product, square_cuts[i], &square[i]);
        for (int i = 1; i < SQUARE_UNITS; i++)
            off = cut_off(off, square_cuts[i], &error[i]);
        rest = _mm512_or_si512(rest, _mm512_castpd_si512(x));
    }
    if ((uint64_t)_mm512_reduce_or_epi64(rest) << 1) /* a zero may have a sign */
        return 0;
    for (int i = 0; i < UNITS; i++)
        add_units(found->sum, sum[i], cut[i], numbers, top - 50 - 52 * i + 1074);
    for (int i = 0; i < SQUARE_UNITS; i++)
        add_units(found->square, square[i], square_cut[i], numbers, 2 * top - 49 - 52 * i + 2148);
    for (int i = 1; i < SQUARE_UNITS; i++)
        add_units(found->square, error[i], square_cut[i], numbers, 2 * top - 49 - 52 * i + 2148);
    found->low = fmin(found->low, lowest), found->high = fmax(found->high, highest), found->count += counted;
    return 1;
}

#else
static int there(void)
{
    return 0;
}

static int describe_run(const double *values, Py_ssize_t count, const uint8_t *valid, Py_ssize_t first, Found *found)
{
    return 0;
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
    int finite = 1, vectors = there();
    Py_ssize_t next = 0; /* to be tried as a run */
    found->low = INFINITY, found->high = -INFINITY;
    for (Py_ssize_t start = 0; start < count && finite; start += BLOCK) {
        Py_ssize_t stop = Py_MIN(start + BLOCK, count);
        Used used = {EXPONENTS, 0};
        for (Py_ssize_t at = start; at < stop && finite; at += RUN) {
            Py_ssize_t size = Py_MIN(RUN, stop - at);
            if (vectors && at >= next) {
                if (describe_run(values + at, size, valid, first + at, found))
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
    double zeros[LANES] = {0.0}, zero = 0.0;
    Py_ssize_t whole = count - count % LANES;
    for (Py_ssize_t at = 0; at < whole; at += LANES)
        for (int lane = 0; lane < LANES; lane++)
            zeros[lane] += values[at + lane] * 0.0;
    for (Py_ssize_t at = whole; at < count; at++)
        zero += values[at] * 0.0;
    for (int lane = 0; lane < LANES; lane++)
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
