/* Exact sums of doubles, their extremes, and doubles as scaled floats, in one pass each: what numbers.py tries first.

   A double is a whole number of 53 bits times a power of two. Those of one exponent are added up as integers of 128 bits,
   and the few exponents that occur at the end, so every sum is exact, and the bits are those that exactsum.py gives. */

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

/* 0 if a value is NaN or an infinity. first: the place of the first value in the bits of `valid`, which may be NULL. */
static int describe(const double *values, Py_ssize_t count, const uint8_t *valid, Py_ssize_t first, Found *found)
{
    double low = INFINITY, high = -INFINITY;
    Py_ssize_t counted = 0;
    int finite = 1;
    Slot (*slots)[2] = SLOTS;
    for (Py_ssize_t start = 0; start < count && finite; start += BLOCK) {
        Py_ssize_t stop = start + BLOCK < count ? start + BLOCK : count;
        unsigned from = EXPONENTS, to = 0;
        for (Py_ssize_t at = start; at < stop; at++) {
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
            counted++;
        }
        if (from <= to)
            gather(found, from, to);
    }
    found->low = low, found->high = high, found->count = counted;
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
    {"scaled", scaled, METH_VARARGS,
     "scaled(values, valid, offset, count, shift, unit, fill, target): fill the target; whether all codes are finite."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_numbers", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__numbers(void)
{
    return PyModuleDef_Init(&MODULE);
}
