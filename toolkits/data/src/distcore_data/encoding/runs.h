/* A run of values looked at by vectors: what _numbers.c includes once for each width of them. It defines

   LANES                      doubles in a vector
   VECTORS                    what the compiler may use
   Doubles, Words             vectors of doubles and of as many integers of 64 bits, by macros
   ALL(number)                one in every lane
   LOADED(mask, from)         the lanes in the mask, zeros elsewhere, of which nothing is read
   LOWER, HIGHER(mask, a, b)  a, where the mask leaves a lane out, else the lower or higher of both
   SQUARE_LESS(x, number)     x * x - number, rounded once

   and gets describe_run_LANES. */

#define PASTED(name, lanes) name##_##lanes
#define WITH_LANES(name, lanes) PASTED(name, lanes)
#define OF(name) WITH_LANES(name, LANES)

/* A number is rounded to a unit, what that leaves of it to one 2**52 times smaller, and so on. A cut is 1.5 * 2**52 units:
   around it doubles are whole units, so adding it rounds a number of at most 2**51 of them, and the sum's bits are the cut's
   plus the number in units. Subtracting gives what was rounded off, without an error (Rump, Ogita and Oishi, "Accurate
   floating-point summation, part I", 2008, section 3). */
VECTORS static inline Doubles OF(cut_off)(Doubles number, Doubles cut, Words *units)
{
    Doubles rounded = number + cut;
    *units += (Words)rounded;
    return number - (rounded - cut);
}

/* Add the units that so many numbers had. bits: the unit's place in the limbs. */
VECTORS static void OF(add_units)(int64_t *limbs, Words units, double cut, Py_ssize_t numbers, int bits)
{
    uint64_t word, sum = 0;
    memcpy(&word, &cut, 8);
    for (int i = 0; i < LANES; i++)
        sum += (uint64_t)units[i]; /* modulo 2**64, from which the cuts are taken again */
    int64_t total = (int64_t)(sum - word * (uint64_t)numbers);
    add_shifted(limbs, total < 0 ? -(uint64_t)total : (uint64_t)total, total < 0, (unsigned)bits);
}

/* As Run says. The largest value lies below 2**(top + 1), and all are multiples of the second unit, 2**(top - 102). A square
   is a rounded product, of at most 2**(2 * top + 2), and its error, of at most 2**(2 * top - 52): multiples of
   2**(2 * top - 204) then, which the fourth of their units divides. */
VECTORS static int OF(describe_run)(const double *values, Py_ssize_t count, const uint8_t *valid, Py_ssize_t first, Found *found)
{
    Doubles low = ALL(INFINITY), high = ALL(-INFINITY);
    Py_ssize_t counted = 0, numbers = (count + LANES - 1) / LANES * LANES;
    for (Py_ssize_t at = 0; at < count; at += LANES) {
        unsigned mask = lanes(valid, first + at, count - at, LANES);
        Doubles x = LOADED(mask, values + at);
        low = LOWER(mask, low, x);
        high = HIGHER(mask, high, x);
        counted += __builtin_popcount(mask);
    }
    double lowest = INFINITY, highest = -INFINITY;
    for (int i = 0; i < LANES; i++)
        lowest = fmin(lowest, low[i]), highest = fmax(highest, high[i]);
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
    Doubles cuts[UNITS], square_cuts[SQUARE_UNITS];
    Words sum[UNITS], square[SQUARE_UNITS], error[SQUARE_UNITS], rest = {0};
    for (int i = 0; i < UNITS; i++) {
        cuts[i] = ALL(cut[i] = ldexp(1.5, top + 2 - 52 * i));
        sum[i] = rest;
    }
    for (int i = 0; i < SQUARE_UNITS; i++) {
        square_cuts[i] = ALL(square_cut[i] = ldexp(1.5, 2 * top + 3 - 52 * i));
        square[i] = error[i] = rest;
    }
    for (Py_ssize_t at = 0; at < count; at += LANES) {
        Doubles x = LOADED(lanes(valid, first + at, count - at, LANES), values + at);
        Doubles product = x * x, off = SQUARE_LESS(x, product);
        for (int i = 0; i < UNITS; i++)
            x = OF(cut_off)(x, cuts[i], &sum[i]);
        for (int i = 0; i < SQUARE_UNITS; i++)
            product = OF(cut_off)(product, square_cuts[i], &square[i]);
        for (int i = 1; i < SQUARE_UNITS; i++)
            off = OF(cut_off)(off, square_cuts[i], &error[i]);
        rest |= (Words)x;
    }
    uint64_t left = 0;
    for (int i = 0; i < LANES; i++)
        left |= (uint64_t)rest[i];
    if (left << 1) /* a zero may have a sign */
        return 0;
    for (int i = 0; i < UNITS; i++)
        OF(add_units)(found->sum, sum[i], cut[i], numbers, top - 50 - 52 * i + 1074);
    for (int i = 0; i < SQUARE_UNITS; i++)
        OF(add_units)(found->square, square[i], square_cut[i], numbers, 2 * top - 49 - 52 * i + 2148);
    for (int i = 1; i < SQUARE_UNITS; i++)
        OF(add_units)(found->square, error[i], square_cut[i], numbers, 2 * top - 49 - 52 * i + 2148);
    found->low = fmin(found->low, lowest), found->high = fmax(found->high, highest), found->count += counted;
    return 1;
}

#undef PASTED
#undef WITH_LANES
#undef OF
#undef LANES
#undef VECTORS
#undef Doubles
#undef Words
#undef ALL
#undef LOADED
#undef LOWER
#undef HIGHER
#undef SQUARE_LESS
