/* float32 as the double that its shortest text reads as: 0.1f is 0.1, not 0.10000000149. What shortest.py tries first.

   That text is a decimal of 1 to 9 digits. If it has 6 or fewer, it is the decimal of 6 digits that lies nearest to the float,
   but for zeros at its end, so those of 6, 7, 8 and 9 digits are tried. Each is a whole number below 2**53 times or over a
   power of ten that is a double itself, so that one operation rounds it as reading its text would (Clinger, "How to Read
   Floating Point Numbers Accurately", 1990). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { FEWEST_DIGITS = 6, MOST_DIGITS = 9 };

/* The power of ten at or below a float, for which decimals are tried: digits of a smaller one would be counted in steps that
   no double holds, and of a larger one a decimal lies so near to the middle of two floats that a double cannot tell whose it
   is. Every float between was compared with the text that Arrow makes of it (tests/sources/test_shortest.py). */
enum { LOWEST = -14, HIGHEST = 25 };

/* Powers up to 1e22 are doubles and are counted with; those behind are the nearest doubles, and floats are compared with them,
   which are none of theirs. */
static const double TEN[HIGHEST + 2] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13,
                                        1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26};

/* size * 10**power, rounded. */
static inline double scaled(double size, int power)
{
    return power < 0 ? size / TEN[-power] : size * TEN[power];
}

/* Whether a size is 10**power or more. */
static inline int reaches(double size, int power)
{
    return power < 0 ? size * TEN[-power] >= 1 : size >= TEN[power];
}

/* floor(log10(2**exponent)). */
static inline int power_of(int exponent)
{
    return exponent * 1233 >> 12;
}

/* The whole number nearest to size * 10**power, which is below 2**51, and the even one of two. */
static double whole(double size, int power)
{
    double rounded = scaled(size, power), near = (rounded + 0x1.8p52) - 0x1.8p52;
    if (fabs(rounded - near) != 0.5)
        return near;
    /* What was rounded to a half may have been more or less. */
    double floor = near > rounded ? near - 1 : near;
    double rest = power < 0 ? fma(-rounded, TEN[-power], size) : fma(size, TEN[power], -rounded);
    return rest == 0 ? near : floor + (rest > 0);
}

/* The double of a float's text; NaN if it is not found here. */
static double shortest(float value)
{
    double size = fabsf(value), found;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 23 & 0xff) - 127;
    if (size == 0 || exponent == 128)
        return value;
    int power = power_of(exponent); /* or one less than the power that is looked for */
    if (power < LOWEST - 1 || power > HIGHEST)
        return NAN;
    power += reaches(size, power + 1);
    if (power < LOWEST || power > HIGHEST)
        return NAN;
    for (int digits = FEWEST_DIGITS; digits <= MOST_DIGITS; digits++) {
        int places = digits - 1 - power;
        found = scaled(whole(size, places), -places);
        if ((float)found == (float)size)
            break;
    }
    return value < 0 ? -found : found;
}

/* ------------------------------------------------------------------ four at a time

   Whether a decimal of so many digits is the float's is seen before it is rounded: it lies nearer to the float than half of
   what this stands from the next one. Where that is too close to say, of powers of two, whose neighbours are not equally far,
   and of floats from some 10**5 on, of which a decimal of 6 digits may end before the point, `shortest` is asked. */

#if defined(__x86_64__) && defined(__GNUC__)
#define VECTORS __attribute__((target("avx2")))
enum { LANES = 4, EXPONENTS = 256 };
typedef double Doubles __attribute__((vector_size(8 * LANES)));
typedef int64_t Words __attribute__((vector_size(8 * LANES)));

/* Of floats of one exponent: half of what lies between two of them; 10**5 over their power of ten, the first if `times` their
   size is below `bound`; zeros where `shortest` is asked. */
typedef struct {
    double half, scale[2], times, bound;
} Exponent;

static Exponent KNOWN[EXPONENTS];

static void make_known(void)
{
    for (int biased = 1; biased < EXPONENTS - 1; biased++) {
        int exponent = biased - 127, power = power_of(exponent), most = FEWEST_DIGITS - 1;
        if (power < LOWEST || power >= most)
            continue;
        Exponent *known = &KNOWN[biased];
        known->half = ldexp(1, exponent - 24);
        known->scale[0] = TEN[most - power];
        known->scale[1] = TEN[most - power - 1];
        known->times = power < -1 ? TEN[-power - 1] : 1;
        known->bound = power < -1 ? 1 : TEN[power + 1];
    }
}

VECTORS static void find_four(const float *from, double *to)
{
    Doubles size, half, scale, found, chosen = {0};
    Words settled = {0}, unsure = {0};
    for (int lane = 0; lane < LANES; lane++) {
        float each = fabsf(from[lane]);
        uint32_t bits;
        memcpy(&bits, &each, sizeof bits);
        const Exponent *known = &KNOWN[bits >> 23];
        size[lane] = each;
        half[lane] = bits << 9 ? known->half : 0;
        scale[lane] = known->scale[each * known->times >= known->bound];
    }
    half *= scale;
    for (int digits = FEWEST_DIGITS; digits <= MOST_DIGITS; digits++, scale *= 10, half *= 10) {
        Doubles rounded = size * scale, near = (rounded + 0x1.8p52) - 0x1.8p52;
        Doubles away = (Doubles)((Words)(rounded - near) & INT64_MAX);
        /* The product is off by 2**-53 of itself at most, which is 2**-28 of half the distance. */
        Words yes = (away < half * (1 - 0x1p-24)) & (away < 0.5), no = away > half * (1 + 0x1p-24);
        chosen = (Doubles)((Words)chosen | ((Words)scale & yes & ~settled));
        unsure |= ~(yes | no | settled);
        settled |= yes;
    }
    found = ((size * chosen + 0x1.8p52) - 0x1.8p52) / chosen;
    settled &= ~unsure;
    for (int lane = 0; lane < LANES; lane++)
        to[lane] = settled[lane] ? copysign(found[lane], from[lane]) : shortest(from[lane]);
}

static int has_vectors(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
enum { LANES = 4 };

static void make_known(void)
{
}

static void find_four(const float *from, double *to)
{
    for (int lane = 0; lane < LANES; lane++)
        to[lane] = shortest(from[lane]);
}

static int has_vectors(void)
{
    return 0;
}
#endif

static void find(const float *from, Py_ssize_t count, double *to)
{
    Py_ssize_t at = 0;
    if (has_vectors())
        for (; at + LANES <= count; at += LANES)
            find_four(from + at, to + at);
    for (; at < count; at++)
        to[at] = shortest(from[at]);
}

/* doubles(values, offset, count, target): how many are not found. */
static PyObject *doubles(PyObject *module, PyObject *arguments)
{
    Py_buffer values, target;
    Py_ssize_t offset, count, missing = 0;
    if (!PyArg_ParseTuple(arguments, "y*nnw*", &values, &offset, &count, &target))
        return NULL;
    int fits = offset >= 0 && count >= 0 && offset <= values.len / 4 && count <= values.len / 4 - offset && count <= target.len / 8;
    if (fits) {
        const float *from = (const float *)values.buf + offset;
        double *to = target.buf;
        Py_BEGIN_ALLOW_THREADS
        find(from, count, to);
        for (Py_ssize_t at = 0; at < count; at++)
            missing += isnan(to[at]) && !isnan(from[at]);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&target);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the values are not so many, or the target has no room for them");
        return NULL;
    }
    return PyLong_FromSsize_t(missing);
}

static PyMethodDef METHODS[] = {
    {"doubles", doubles, METH_VARARGS, "doubles(values, offset, count, target): fill the target, with NaN for those not found, which it counts."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_floats", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__floats(void)
{
    make_known();
    return PyModuleDef_Init(&MODULE);
}
