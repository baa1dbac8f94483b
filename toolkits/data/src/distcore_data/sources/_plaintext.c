/* Rows of plain text as doubles and dictionary codes, in one pass: what the readers of delimited.py and jsonlines.py try
   first.

   Plain means: quotes around whole texts alone, every row as many fields as the header, numbers such as -12.5e3 of at
   most 19 digits; of JSON, an object of scalars in each line, no key twice, and no backslash. Whatever else comes up, the
   functions give None at once, and Arrow's reader takes the range: it alone decides what a text means and what is an
   error. So this file has no opinion on bad input, only the duty to give the same bits where it answers.

   Numbers are rounded correctly: Lemire, "Number parsing at a gigabyte per second", 2021 (the method of Eisel). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "texthash.h"

/* Powers of ten with which no double of up to 19 digits is subnormal or too large. */
enum { LOWEST = -307, HIGHEST = 288, DIGITS = 19 };

/* Bytes of a text: what dictionaries count in 32 bits stays far from overflowing. */
enum { LONGEST = 1 << 28 };
enum { SKIP = 0, NUMBER = 1, CATEGORY = 2, WHOLE = 3 }; /* WHOLE: a category of whole numbers, as their texts */

typedef struct {
    uint64_t head; /* the first eight bytes, zeros behind a shorter text */
    uint32_t start, size;
} Entry;

/* A column's distinct texts. slots: index + 1 of an entry, or 0; their number is a power of two, at least twice `count`. */
typedef struct {
    Entry *entries;
    uint32_t *slots;
    uint32_t count, mask;
} Dictionary;

/* absent: a bit for each row without a value; NULL if every one has one so far. */
typedef struct {
    uint8_t *absent;
    Py_ssize_t missing;
    Dictionary texts;
} Field;

typedef struct {
    const char *text, *end;
    char delimiter, quote; /* quote: 0 where there is none in the text */
    Py_ssize_t count, room;
    const char *kinds;
    void **values; /* of each field: doubles or codes, `room` of them. A row of a wide table reads these and no Field */
    Field *fields;
    const uint64_t (*powers)[2]; /* 10**q for q from LOWEST: the top 128 bits of 5**q, high word first */
} Job;

/* ------------------------------------------------------------------ numbers */

/* Eight digit values, the first in the lowest byte, as a number. */
static uint64_t eight(uint64_t v)
{
    v = v * 10 + (v >> 8);
    v = ((v & 0x000000FF000000FFu) * 0x000F424000000064u + ((v >> 16) & 0x000000FF000000FFu) * 0x0000271000000001u) >> 32;
    return v;
}

static const char *digits_at(const char *p, const char *end, uint64_t *value)
{
    static const uint64_t ten[8] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    while (end - p >= 8) {
        uint64_t v = word_at(p) ^ 0x3030303030303030u;
        uint64_t other = ((v + 0x7676767676767676u) | v) & HIGH;
        if (other) {
            int here = __builtin_ctzll(other) >> 3, half = 32 - 4 * here; /* two shifts: 64 at once mean none */
            *value = *value * ten[here] + eight(v << half << half);
            return p + here;
        }
        *value = *value * 100000000 + eight(v);
        p += 8;
    }
    for (; p < end && (unsigned char)(*p - '0') < 10; p++)
        *value = *value * 10 + (uint64_t)(*p - '0');
    return p;
}

static const char *digits_end(const char *p, const char *end)
{
    for (; end - p >= 8; p += 8) {
        uint64_t v = word_at(p) ^ 0x3030303030303030u;
        uint64_t other = ((v + 0x7676767676767676u) | v) & HIGH;
        if (other)
            return p + (__builtin_ctzll(other) >> 3);
    }
    while (p < end && (unsigned char)(*p - '0') < 10)
        p++;
    return p;
}

/* The double nearest to value * 10**power, value not 0; 0 where the method cannot tell. */
static int nearest(uint64_t value, int power, const uint64_t (*powers)[2], uint64_t *bits)
{
    const uint64_t *five = powers[power - LOWEST];
    int shift = __builtin_clzll(value);
    value <<= shift;
    unsigned __int128 product = (unsigned __int128)value * five[0];
    uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
    if ((high & 0x1FF) == 0x1FF) { /* a carry from further down may decide */
        uint64_t more = (uint64_t)(((unsigned __int128)value * five[1]) >> 64);
        low += more;
        high += low < more;
    }
    if (low == UINT64_MAX && (power < -27 || power > 55))
        return 0;
    int top = (int)(high >> 63);
    uint64_t mantissa = high >> (top + 9);
    int64_t exponent = ((217706 * (int64_t)power) >> 16) + 63 + top - shift + 1023;
    if (low <= 1 && power >= -4 && power <= 23 && (mantissa & 3) == 1 && (mantissa << (top + 9)) == high)
        mantissa &= ~(uint64_t)1; /* exactly between two doubles: to the even one */
    mantissa = (mantissa + (mantissa & 1)) >> 1;
    if (mantissa >> 53) {
        mantissa >>= 1;
        exponent++;
    }
    if (exponent <= 0 || exponent >= 0x7FF)
        return 0;
    *bits = (mantissa & (((uint64_t)1 << 52) - 1)) | ((uint64_t)exponent << 52);
    return 1;
}

/* Whole numbers up to 2**53 and these powers of ten are doubles, so that their quotient is rounded once (Clinger, "How to
   read floating point numbers accurately", 1990). Of numbers with 16 digits some are larger and some are not: a processor
   that guesses wrong loses more than this gains, so it is for short ones. */
enum { POWERS = 22 };
#define SHORT ((uint64_t)1 << 40)
static const double TEN[POWERS + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Behind the number at p; NULL where there is none that is plain. */
static const char *number_at(const char *p, const Job *job, double *found)
{
    const char *end = job->end;
    uint64_t value = 0, bits = 0, sign = *p == '-';
    p += sign;
    const char *start = p;
    if (end - p > 2 && p[1] == '.' && (unsigned char)(*p - '0') < 10)
        value = (uint64_t)(*p++ - '0');
    else
        p = digits_at(p, end, &value);
    int64_t count = p - start, power = 0;
    if (p < end && *p == '.') {
        const char *fraction = ++p;
        p = digits_at(p, end, &value);
        power = fraction - p;
        count -= power;
    }
    if (count == 0)
        return NULL;
    if (count > DIGITS) {
        for (const char *q = start; q < p && (*q == '0' || *q == '.'); q++)
            count -= *q == '0';
        if (count > DIGITS)
            return NULL;
    }
    if (p < end && (*p | 0x20) == 'e') {
        uint64_t size = 0;
        int down = ++p < end && *p == '-';
        p += down || (p < end && *p == '+');
        const char *first = p;
        p = digits_at(p, end, &size);
        if (p == first || p - first > 4)
            return NULL;
        power += down ? -(int64_t)size : (int64_t)size;
    }
    if (value < SHORT && power <= 0 && power >= -POWERS) {
        double quotient = (double)value / TEN[-power];
        memcpy(&bits, &quotient, 8);
    } else if (value && (power < LOWEST || power > HIGHEST || !nearest(value, (int)power, job->powers, &bits)))
        return NULL;
    bits |= sign << 63;
    memcpy(found, &bits, 8);
    return p;
}

/* ------------------------------------------------------------------ categories */

/* The delimiter or line end that closes the field at p, or the end. */
static const char *field_end(const char *p, const Job *job)
{
    for (; job->end - p >= 8; p += 8) {
        uint64_t word = word_at(p);
        uint64_t found = bytes_of(word, job->delimiter) | bytes_of(word, '\n') | bytes_of(word, '\r');
        if (found)
            return p + (__builtin_ctzll(found) >> 3);
    }
    while (p < job->end && *p != job->delimiter && *p != '\n' && *p != '\r')
        p++;
    return p;
}

/* The same in a text with quotes, for a field that begins without one; NULL where one comes all the same. */
static const char *unquoted_end(const char *p, const Job *job)
{
    const char *end = field_end(p, job);
    return memchr(p, job->quote, (size_t)(end - p)) ? NULL : end;
}

/* The quote that closes the field whose text begins at p; two quotes are one of the text. NULL where none does. */
static const char *closing_quote(const char *p, const Job *job)
{
    while ((p = memchr(p, job->quote, (size_t)(job->end - p)))) {
        if (p + 1 == job->end || p[1] != job->quote)
            return p;
        p += 2;
    }
    return NULL;
}

/* Bytes of a text with one quote for two, copied to `to` unless that is NULL. */
static Py_ssize_t unquoted(char *to, const char *text, Py_ssize_t size, char quote)
{
    if (!quote) {
        if (to)
            memcpy(to, text, (size_t)size);
        return size;
    }
    Py_ssize_t count = 0;
    for (Py_ssize_t at = 0; at < size; at++, count++) {
        if (to)
            to[count] = text[at];
        at += text[at] == quote;
    }
    return count;
}

static int grow(Dictionary *texts, const char *text)
{
    uint32_t slots = texts->mask ? 4 * (texts->mask + 1) : 64;
    Entry *entries = realloc(texts->entries, sizeof(Entry) * (slots / 2));
    if (entries)
        texts->entries = entries;
    uint32_t *fresh = entries ? calloc(slots, sizeof(uint32_t)) : NULL;
    if (!fresh)
        return 0;
    free(texts->slots);
    texts->slots = fresh;
    texts->mask = slots - 1;
    for (uint32_t index = 0; index < texts->count; index++) {
        const Entry *each = &entries[index];
        uint64_t slot = hash_of(each->head, text + each->start, each->size);
        while (fresh[slot & texts->mask])
            slot++;
        fresh[slot & texts->mask] = index + 1;
    }
    return 1;
}

/* The code of a text, a new one where it was not seen before; -1 without memory. */
static int32_t code_of(Dictionary *texts, const Job *job, const char *p, uint32_t size)
{
    if (2 * texts->count >= texts->mask && !grow(texts, job->text))
        return -1;
    uint64_t head = head_of(p, size, job->end);
    uint64_t slot = hash_of(head, p, size);
    for (uint32_t index; (index = texts->slots[slot & texts->mask]); slot++) {
        const Entry *each = &texts->entries[index - 1];
        if (each->head == head && each->size == size &&
            (size <= 8 || memcmp(job->text + each->start + 8, p + 8, size - 8) == 0))
            return (int32_t)(index - 1);
    }
    texts->entries[texts->count] = (Entry){head, (uint32_t)(p - job->text), size};
    texts->slots[slot & texts->mask] = ++texts->count;
    return (int32_t)(texts->count - 1);
}

/* ------------------------------------------------------------------ rows */

enum { NOT_PLAIN = -1, NO_MEMORY = -2 };

/* Notes that a field has no value in a row; 0 without memory. */
static int set_absent(const Job *job, Py_ssize_t at, Py_ssize_t row)
{
    Field *field = &job->fields[at];
    if (!field->absent && !(field->absent = calloc((size_t)(job->room + 7) / 8, 1)))
        return 0;
    field->absent[row >> 3] |= (uint8_t)(1 << (row & 7));
    field->missing++;
    if (job->kinds[at] == NUMBER)
        ((double *)job->values[at])[row] = 0.0;
    else
        ((int32_t *)job->values[at])[row] = 0;
    return 1;
}

/* Reads one row's fields; where it ends, or NULL with the reason in *why. */
static const char *row_at(const char *p, Job *job, Py_ssize_t row, int *why)
{
    *why = NOT_PLAIN;
    for (Py_ssize_t at = 0; at < job->count; at++) {
        int kind = job->kinds[at];
        const char *start = p, *stop;
        if (at) {
            if (p == job->end || *p != job->delimiter)
                return NULL;
            start = ++p;
        }
        if (kind == NUMBER) {
            if (p < job->end && *p != job->delimiter && *p != '\n' && *p != '\r' &&
                !(p = number_at(p, job, (double *)job->values[at] + row)))
                return NULL;
            stop = p;
        } else {
            if (job->quote && p < job->end && *p == job->quote) {
                start = p + 1;
                if (!(stop = closing_quote(start, job)))
                    return NULL;
                p = stop + 1;
            } else if (!(p = stop = job->quote ? unquoted_end(p, job) : field_end(p, job)))
                return NULL;
            if (kind == CATEGORY && stop > start) {
                int32_t code = code_of(&job->fields[at].texts, job, start, (uint32_t)(stop - start));
                if (code < 0) {
                    *why = NO_MEMORY;
                    return NULL;
                }
                ((int32_t *)job->values[at])[row] = code;
            }
        }
        if (stop == start && kind != SKIP && !set_absent(job, at, row)) {
            *why = NO_MEMORY;
            return NULL;
        }
    }
    return p;
}

/* Reads all rows; how many there are, NOT_PLAIN or NO_MEMORY. */
static Py_ssize_t read_rows(Job *job)
{
    const char *p = job->text;
    Py_ssize_t row = 0;
    int why;
    while (p < job->end) {
        if (*p != '\n' && *p != '\r') { /* a blank line is no row */
            if (row == job->room)
                return NOT_PLAIN; /* someone writes to the file */
            if (!(p = row_at(p, job, row++, &why)))
                return why;
        }
        if (p < job->end && *p == '\r' && ++p == job->end)
            return NOT_PLAIN;
        if (p < job->end && *p++ != '\n')
            return NOT_PLAIN;
    }
    return row;
}

/* ------------------------------------------------------------------ JSON lines */

/* What a column's values are; null is nothing. */
enum { BOOLEAN = 1, INTEGER = 2, FLOAT = 4, STRING = 8 };

/* Integers of so many digits are doubles; texts of floats of so many are neither infinite nor subnormal. */
enum { EXACT_DIGITS = 15, FLOAT_DIGITS = 200, MOST_KEYS = 1 << 14, FEW_STEPS = 1 << 16, MOST_STEPS = 32 };

/* head: the first eight bytes, as of an Entry. row: the last one that had the key, counted from 1. */
typedef struct {
    const char *name;
    uint64_t head;
    Py_ssize_t size, row;
    int types;
} Key;

/* keys: those of job's fields; or, to learn them, those that were met, of which there is room for `room`. steps: keys that
   were compared in vain to find `looked` known ones. */
typedef struct {
    Job *job;
    Key *keys;
    Py_ssize_t count, room, looked, steps;
    int learning;
} Objects;

static const char *blanks_end(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r'))
        p++;
    return p;
}

/* The quote that closes the string at p; NULL where something else than plain text comes first. */
static const char *string_end(const char *p, const char *end)
{
    for (; end - p >= 8; p += 8) {
        uint64_t word = word_at(p);
        uint64_t control = (word - 0x20 * ONES) & ~word & HIGH; /* the lowest mark is right, as in `bytes_of` */
        uint64_t found = bytes_of(word, '"') | bytes_of(word, '\\') | control;
        if (found) {
            p += __builtin_ctzll(found) >> 3;
            return *p == '"' ? p : NULL;
        }
    }
    for (; p < end && (unsigned char)*p >= 0x20 && *p != '\\'; p++)
        if (*p == '"')
            return p;
    return NULL;
}

#ifdef __SSE2__
/* A bit for each of the 16 bytes at p that is a digit. */
static inline uint32_t digits_of(const char *p)
{
    __m128i over = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)p), _mm_set1_epi8('0'));
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(over, _mm_set1_epi8(9)), over));
}
#endif

static int is_plain(const char *text, Py_ssize_t size)
{
    for (Py_ssize_t at = 0; at < size; at++)
        if ((unsigned char)text[at] < 0x20 || text[at] == '"' || text[at] == '\\')
            return 0;
    return 1;
}

/* Behind the decimal number at p, such as 0.25, whose digits are among the next 32 bytes; NULL where another thing stands. */
static const char *decimal_end(const char *p, const char *end)
{
#ifdef __SSE2__
    if (end - p >= 32) {
        uint32_t others = ~(digits_of(p) | digits_of(p + 16) << 16), behind = others & (others - 1);
        if (behind) {
            int dot = __builtin_ctz(others), stop = __builtin_ctz(behind);
            if (dot && p[dot] == '.' && stop > dot + 1 && (p[stop] | 0x20) != 'e' && (dot == 1 || *p != '0'))
                return p + stop;
        }
    }
#endif
    return NULL;
}

/* Behind the number at p, and whether it is an INTEGER or a FLOAT; NULL where there is none that is plain. */
static const char *json_number_end(const char *p, const char *end, int *type)
{
    int negative = *p == '-';
    const char *start = p += negative, *part = decimal_end(p, end);
    if (part) {
        *type = FLOAT;
        return part;
    }
    p = digits_end(p, end);
    Py_ssize_t count = p - start;
    if (count == 0 || (*start == '0' && count > 1))
        return NULL;
    *type = INTEGER;
    if (p < end && *p == '.') {
        part = ++p;
        p = digits_end(p, end);
        count += p - part;
        if (p == part)
            return NULL;
        *type = FLOAT;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        p += p < end && (*p == '-' || *p == '+');
        part = p;
        p = digits_end(p, end);
        if (p == part || p - part > 2)
            return NULL;
        *type = FLOAT;
    }
    if (*type == INTEGER ? count > EXACT_DIGITS || (negative && *start == '0') : count > FLOAT_DIGITS)
        return NULL;
    return p;
}

/* Whether what `number_at` has read is a number of JSON, too; -0 is not plain: as an integer it has no sign. */
static int is_json_number(const char *p, const char *end)
{
    int negative = *p == '-';
    p += negative;
    const char *dot = end - p > 1 && p[1] == '.' ? p + 1 : memchr(p, '.', (size_t)(end - p));
    if (*p == '0' && end - p > 1 && (unsigned char)(p[1] - '0') < 10)
        return 0;
    if (*p == '.' || (dot && (dot + 1 == end || (unsigned char)(dot[1] - '0') >= 10)))
        return 0;
    return !(negative && *p == '0' && end - p == 1);
}

/* Behind the scalar at p, and what it is; NULL where there is none that is plain. */
static const char *scalar_end(const char *p, const char *end, int *type)
{
    static const struct {
        const char *text;
        int size, type;
    } words[] = {{"null", 4, 0}, {"true", 4, BOOLEAN}, {"false", 5, BOOLEAN}};
    if (p == end)
        return NULL;
    if (*p == '"') {
        *type = STRING;
        return (p = string_end(p + 1, end)) ? p + 1 : NULL;
    }
    if (*p == '-' || (unsigned char)(*p - '0') < 10)
        return json_number_end(p, end, type);
    for (int at = 0; at < 3; at++)
        if (end - p >= words[at].size && memcmp(p, words[at].text, (size_t)words[at].size) == 0) {
            *type = words[at].type;
            return p + words[at].size;
        }
    return NULL;
}

/* Behind the value at p, which goes into the field; NULL with the reason in *why. */
static const char *field_value(const char *p, Job *job, Py_ssize_t at, Py_ssize_t row, int *why)
{
    const char *start = p;
    int type = 0, kind = job->kinds[at];
    if (kind == NUMBER && p < job->end && (*p == '-' || (unsigned char)(*p - '0') < 10)) {
        p = number_at(p, job, (double *)job->values[at] + row);
        return p && is_json_number(start, p) ? p : NULL;
    }
    if (!(p = scalar_end(p, job->end, &type)))
        return NULL;
    if (type == 0) {
        if (set_absent(job, at, row))
            return p;
        *why = NO_MEMORY;
        return NULL;
    }
    int quote = kind == CATEGORY;
    if (kind == NUMBER || type != (quote ? STRING : INTEGER))
        return NULL;
    int32_t code = code_of(&job->fields[at].texts, job, start + quote, (uint32_t)(p - start - 2 * quote));
    if (code < 0) {
        *why = NO_MEMORY;
        return NULL;
    }
    ((int32_t *)job->values[at])[row] = code;
    return p;
}

/* Whether keys come in another order, or many are not wanted, so that a reader which hashes their names is faster. */
static int is_searching(const Objects *all)
{
    return all->steps > FEW_STEPS && all->steps / MOST_STEPS > all->looked;
}

static int is_key(const Key *key, const char *name, Py_ssize_t size, uint64_t head)
{
    return key->size == size && key->head == head && (size <= 8 || memcmp(key->name + 8, name + 8, (size_t)size - 8) == 0);
}

/* The quote behind this key if it is what stands at p, else NULL. */
static const char *same_key_end(const char *p, const char *end, const Key *key)
{
    Py_ssize_t size = key->size;
    if (size < 0 || end - p <= size || p[size] != '"')
        return NULL;
    return is_key(key, p, size, head_of(p, (uint32_t)size, end)) ? p + size : NULL;
}

/* The place of a key, most likely `next`; that of a new one where keys are learnt; -1 where it is not wanted, -2 with the
   reason in *why. */
static Py_ssize_t place_of(Objects *all, const char *name, Py_ssize_t size, Py_ssize_t next, int *why)
{
    uint64_t head = head_of(name, (uint32_t)size, all->job->end);
    all->looked++;
    for (Py_ssize_t seen = 0; seen < all->count; seen++, next++) {
        if (next >= all->count)
            next = 0;
        if (is_key(&all->keys[next], name, size, head)) {
            all->steps += seen;
            return is_searching(all) ? -2 : next;
        }
    }
    if (!all->learning) {
        all->steps += all->count;
        return is_searching(all) ? -2 : -1;
    }
    if (all->count == all->room) {
        Py_ssize_t room = 2 * all->room + 64;
        Key *keys = room > MOST_KEYS ? NULL : realloc(all->keys, sizeof(Key) * (size_t)room);
        if (!keys) {
            *why = room > MOST_KEYS ? NOT_PLAIN : NO_MEMORY;
            return -2;
        }
        all->keys = keys;
        all->room = room;
    }
    all->keys[all->count] = (Key){name, head, size, 0, 0};
    return all->count++;
}

/* Reads the object at p; where it ends, or NULL with the reason in *why. */
static const char *object_at(const char *p, Objects *all, Py_ssize_t row, int *why)
{
    const char *end = all->job->end;
    Py_ssize_t next = 0;
    *why = NOT_PLAIN;
    p = blanks_end(p + 1, end);
    if (p < end && *p == '}')
        return p + 1;
    for (;;) {
        if (p == end || *p != '"')
            return NULL;
        const char *name = p + 1;
        Py_ssize_t at = next;
        if (name < end && next < all->count && (p = same_key_end(name, end, &all->keys[next])))
            all->looked++;
        else if (!(p = string_end(name, end)) || (at = place_of(all, name, p - name, next, why)) < -1)
            return NULL;
        p = blanks_end(p + 1, end);
        if (p == end || *p != ':')
            return NULL;
        p = blanks_end(p + 1, end);
        if (at >= 0) {
            Key *key = &all->keys[at];
            if (key->row == row + 1)
                return NULL; /* twice */
            key->row = row + 1;
            next = at + 1;
        }
        int type = 0;
        if (at < 0 || all->learning)
            p = scalar_end(p, end, &type);
        else
            p = field_value(p, all->job, at, row, why);
        if (!p)
            return NULL;
        if (all->learning)
            all->keys[at].types |= type;
        p = blanks_end(p, end);
        if (p == end || (*p != ',' && *p != '}'))
            return NULL;
        if (*p == '}')
            return p + 1;
        p = blanks_end(p + 1, end);
    }
}

/* Reads all rows; how many there are, NOT_PLAIN or NO_MEMORY. */
static Py_ssize_t read_objects(Objects *all)
{
    Job *job = all->job;
    const char *p = job->text;
    Py_ssize_t row = 0;
    int why;
    while ((p = blanks_end(p, job->end)) < job->end) {
        if (*p != '\n') {
            if (*p != '{' || row == job->room)
                return NOT_PLAIN;
            if (!(p = object_at(p, all, row, &why)))
                return why;
            for (Py_ssize_t at = 0; at < job->count; at++)
                if (all->keys[at].row != row + 1 && !set_absent(job, at, row))
                    return NO_MEMORY;
            row++;
            p = blanks_end(p, job->end);
            if (p < job->end && *p != '\n')
                return NOT_PLAIN;
        }
        p += p < job->end;
    }
    return row;
}

/* ------------------------------------------------------------------ Python */

static PyObject *lines(PyObject *module, PyObject *argument)
{
    Py_buffer text;
    if (PyObject_GetBuffer(argument, &text, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t found = 1;
    const char *bytes = text.buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < text.len;) { /* counts of one byte: compilers then compare many bytes at once */
        Py_ssize_t stop = text.len - at < 128 ? text.len : at + 128;
        uint8_t here = 0;
        for (; at < stop; at++)
            here += bytes[at] == '\n';
        found += here;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&text);
    return PyLong_FromSsize_t(found);
}

/* For Arrow, a bit for each of so many rows with a value; None where all have one. */
static PyObject *validity(const Field *field, Py_ssize_t rows)
{
    if (!field->missing)
        return Py_NewRef(Py_None);
    Py_ssize_t size = (rows + 7) / 8;
    PyObject *bits = PyBytes_FromStringAndSize(NULL, size);
    char *bytes = bits ? PyBytes_AsString(bits) : NULL;
    for (Py_ssize_t at = 0; bytes && at < size; at++)
        bytes[at] = (char)~field->absent[at];
    return bits;
}

/* (missing, validity, offsets, texts) of a category, (missing, validity) of a number. */
static PyObject *described(const Job *job, Py_ssize_t at, Py_ssize_t rows)
{
    const Field *field = &job->fields[at];
    PyObject *valid = validity(field, rows);
    if (!valid || job->kinds[at] == NUMBER)
        return valid ? Py_BuildValue("(nN)", field->missing, valid) : NULL;
    Py_ssize_t count = field->texts.count, total = 0;
    for (Py_ssize_t index = 0; index < count; index++)
        total += unquoted(NULL, job->text + field->texts.entries[index].start, field->texts.entries[index].size, job->quote);
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
    PyObject *texts = PyBytes_FromStringAndSize(NULL, total);
    if (!offsets || !texts) {
        Py_DECREF(valid);
        Py_XDECREF(offsets);
        Py_XDECREF(texts);
        return NULL;
    }
    char *ends = PyBytes_AsString(offsets), *bytes = PyBytes_AsString(texts);
    int32_t end = 0;
    for (Py_ssize_t index = 0; index <= count; index++) {
        memcpy(ends + index * (Py_ssize_t)sizeof end, &end, sizeof end);
        if (index < count) {
            const Entry *each = &field->texts.entries[index];
            end += (int32_t)unquoted(bytes + end, job->text + each->start, each->size, job->quote);
        }
    }
    return Py_BuildValue("(nNNN)", field->missing, valid, offsets, texts);
}

static PyObject *results(const Job *job, Py_ssize_t found)
{
    if (found == NO_MEMORY)
        return PyErr_NoMemory();
    if (found == NOT_PLAIN)
        Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    for (Py_ssize_t at = 0; list && at < job->count; at++) {
        PyObject *each = job->kinds[at] ? described(job, at, found) : Py_NewRef(Py_None);
        if (!each || PyList_Append(list, each) < 0)
            Py_CLEAR(list);
        Py_XDECREF(each);
    }
    return list ? Py_BuildValue("(nN)", found, list) : NULL;
}

/* Where each field's values go: starts[field] bytes into a buffer, checked to hold a job's rows. */
static int place_fields(Job *job, const Py_buffer *values, const Py_buffer *starts)
{
    int ready = starts->len == job->count * 8;
    for (Py_ssize_t at = 0; ready && at < job->count; at++) {
        if (job->kinds[at] == SKIP)
            continue;
        int64_t start;
        memcpy(&start, (const char *)starts->buf + 8 * at, 8);
        ready = start >= 0 && start % 8 == 0 && start <= values->len &&
                (values->len - start) / (job->kinds[at] == NUMBER ? 8 : 4) >= job->room;
        job->values[at] = (char *)values->buf + start;
    }
    if (!ready)
        PyErr_SetString(PyExc_ValueError, "a column has no room in the buffer");
    return ready;
}

/* The rows that `read` finds. names: None, or a list of those of JSON's keys. */
static PyObject *read_all(const Py_buffer *text, int delimiter, int quote, const Py_buffer *kinds, const Py_buffer *powers,
                          Py_ssize_t room, const Py_buffer *values, const Py_buffer *starts, PyObject *names)
{
    PyObject *answer = NULL;
    size_t count = (size_t)kinds->len;
    Job job = {text->buf, (const char *)text->buf + text->len, (char)delimiter, (char)quote, kinds->len, room,
               kinds->buf, calloc(count + 1, sizeof(void *)), calloc(count + 1, sizeof(Field)), powers->buf};
    Objects all = {.job = &job, .count = kinds->len, .room = kinds->len, .keys = calloc(count + 1, sizeof(Key))};
    int ready = 0;
    if (!job.values || !job.fields || !all.keys)
        PyErr_NoMemory();
    else if (text->len > LONGEST || powers->len != 16 * (HIGHEST - LOWEST + 1))
        PyErr_SetString(PyExc_ValueError, "the text is too long, or the powers are not those that are needed");
    else
        ready = place_fields(&job, values, starts);
    for (Py_ssize_t at = 0; ready && names && at < kinds->len; at++) {
        PyObject *name = PyList_GetItem(names, at);
        char *bytes;
        Py_ssize_t size;
        ready = name && PyBytes_AsStringAndSize(name, &bytes, &size) == 0;
        if (ready) /* plain text has no key of which a part would be written with a backslash */
            all.keys[at] = (Key){bytes, head_of(bytes, (uint32_t)size, bytes + size), is_plain(bytes, size) ? size : -1, 0, 0};
        if (ready && job.kinds[at] == SKIP) {
            PyErr_SetString(PyExc_ValueError, "a key that is not wanted has a name");
            ready = 0;
        }
    }
    if (ready) {
        Py_ssize_t found;
        Py_BEGIN_ALLOW_THREADS
        found = names ? read_objects(&all) : read_rows(&job);
        Py_END_ALLOW_THREADS
        answer = results(&job, found);
    }
    for (Py_ssize_t at = 0; at < kinds->len && job.fields; at++) {
        free(job.fields[at].absent);
        free(job.fields[at].texts.entries);
        free(job.fields[at].texts.slots);
    }
    free(job.values);
    free(job.fields);
    free(all.keys);
    return answer;
}

static void release(Py_buffer *const views[5])
{
    for (int at = 0; at < 5; at++)
        PyBuffer_Release(views[at]);
}

static PyObject *rows(PyObject *module, PyObject *arguments)
{
    Py_buffer text, kinds, powers, values, starts;
    int delimiter;
    Py_ssize_t room;
    if (!PyArg_ParseTuple(arguments, "y*iy*y*nw*y*", &text, &delimiter, &kinds, &powers, &room, &values, &starts))
        return NULL;
    PyObject *answer = read_all(&text, delimiter, 0, &kinds, &powers, room, &values, &starts, NULL);
    release((Py_buffer *[]){&text, &kinds, &powers, &values, &starts});
    return answer;
}

static PyObject *quoted(PyObject *module, PyObject *arguments)
{
    Py_buffer text, kinds, powers, values, starts;
    int delimiter, quote;
    Py_ssize_t room;
    if (!PyArg_ParseTuple(arguments, "y*iiy*y*nw*y*", &text, &delimiter, &quote, &kinds, &powers, &room, &values, &starts))
        return NULL;
    PyObject *answer = read_all(&text, delimiter, quote, &kinds, &powers, room, &values, &starts, NULL);
    release((Py_buffer *[]){&text, &kinds, &powers, &values, &starts});
    return answer;
}

static PyObject *objects(PyObject *module, PyObject *arguments)
{
    Py_buffer text, kinds, powers, values, starts;
    PyObject *names;
    Py_ssize_t room;
    if (!PyArg_ParseTuple(arguments, "y*O!y*y*nw*y*", &text, &PyList_Type, &names, &kinds, &powers, &room, &values, &starts))
        return NULL;
    PyObject *answer = read_all(&text, 0, 0, &kinds, &powers, room, &values, &starts, names);
    release((Py_buffer *[]){&text, &kinds, &powers, &values, &starts});
    return answer;
}

static PyObject *keys(PyObject *module, PyObject *argument)
{
    Py_buffer text;
    if (PyObject_GetBuffer(argument, &text, PyBUF_SIMPLE) < 0)
        return NULL;
    Job job = {.text = text.buf, .end = (const char *)text.buf + text.len, .room = PY_SSIZE_T_MAX - 1};
    Objects all = {.job = &job, .learning = 1};
    Py_ssize_t found;
    Py_BEGIN_ALLOW_THREADS
    found = read_objects(&all);
    Py_END_ALLOW_THREADS
    PyObject *list = NULL;
    if (found == NO_MEMORY)
        PyErr_NoMemory();
    else if (found == NOT_PLAIN)
        list = Py_NewRef(Py_None);
    else
        list = PyList_New(0);
    for (Py_ssize_t at = 0; found >= 0 && list && at < all.count; at++) {
        PyObject *each = Py_BuildValue("(y#i)", all.keys[at].name, all.keys[at].size, all.keys[at].types);
        if (!each || PyList_Append(list, each) < 0)
            Py_CLEAR(list);
        Py_XDECREF(each);
    }
    free(all.keys);
    PyBuffer_Release(&text);
    return list;
}

static PyObject *hash(PyObject *module, PyObject *argument)
{
    Py_buffer text;
    if (PyObject_GetBuffer(argument, &text, PyBUF_SIMPLE) < 0)
        return NULL;
    uint64_t found = 0;
    if (text.len > LONGEST)
        PyErr_SetString(PyExc_ValueError, "the text is too long");
    else {
        const char *bytes = text.buf;
        found = hash_of(head_of(bytes, (uint32_t)text.len, bytes + text.len), bytes, (uint32_t)text.len);
    }
    PyBuffer_Release(&text);
    return PyErr_Occurred() ? NULL : PyLong_FromUnsignedLongLong(found);
}

static PyObject *deepest(PyObject *module, PyObject *argument)
{
    Py_buffer text;
    if (PyObject_GetBuffer(argument, &text, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t depth = 0, found = 0;
    const char *bytes = text.buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < text.len; at++) {
        char each = bytes[at];
        if (each == '"') {
            for (at++; at < text.len && bytes[at] != '"'; at++)
                at += bytes[at] == '\\';
        } else if (each == '{' || each == '[') {
            if (++depth > found)
                found = depth;
        } else if (each == '}' || each == ']')
            depth -= depth > 0;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&text);
    return PyLong_FromSsize_t(found);
}

/* How many names the outermost objects have, at most `most` + 1; NO_MEMORY. Two of one hash count as one. */
static Py_ssize_t count_names(const char *p, const char *end, Py_ssize_t most)
{
    Py_ssize_t depth = 0, count = 0, room = 2;
    most = most < (end - p) / 4 ? most : (end - p) / 4; /* "":0 is the shortest */
    while (room < 2 * (most + 2))
        room *= 2;
    uint64_t *met = calloc((size_t)room, sizeof(uint64_t));
    if (!met)
        return NO_MEMORY;
    for (; p < end && count <= most; p++) {
        if (*p == '"') {
            const char *name = ++p;
            for (; p < end && *p != '"'; p++)
                p += *p == '\\';
            if (p >= end)
                break;
            const char *behind = blanks_end(p + 1, end);
            if (depth != 1 || behind == end || *behind != ':')
                continue;
            uint32_t size = (uint32_t)(p - name);
            uint64_t found = hash_of(head_of(name, size, end), name, size) | 1; /* 0 is a free place */
            uint64_t at = found >> 1;
            for (at &= (uint64_t)room - 1; met[at] && met[at] != found; at = (at + 1) & ((uint64_t)room - 1))
                ;
            count += !met[at];
            met[at] = found;
        } else if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth -= depth > 0;
    }
    free(met);
    return count;
}

static PyObject *names(PyObject *module, PyObject *arguments)
{
    Py_buffer text;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(arguments, "y*n", &text, &most))
        return NULL;
    Py_ssize_t found = 0;
    if (text.len > LONGEST)
        PyErr_SetString(PyExc_ValueError, "the text is too long");
    else {
        Py_BEGIN_ALLOW_THREADS
        found = count_names(text.buf, (const char *)text.buf + text.len, most < 0 ? 0 : most);
        Py_END_ALLOW_THREADS
        if (found == NO_MEMORY)
            PyErr_NoMemory();
    }
    PyBuffer_Release(&text);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(found);
}

static PyMethodDef METHODS[] = {
    {"deepest", deepest, METH_O, "deepest(text): how many lists and objects of a JSON text are open at once, at most."},
    {"hash", hash, METH_O, "hash(text): by which this process finds a text among those seen before."},
    {"keys", keys, METH_O, "keys(text): JSON's (key, 1 boolean + 2 integer + 4 float + 8 string), by first appearance; or None."},
    {"lines", lines, METH_O, "lines(text): an upper bound of its rows."},
    {"names", names, METH_VARARGS, "names(text, most): how many names JSON's outermost objects have, at most one more than `most`."},
    {"objects", objects, METH_VARARGS,
     "objects(text, names, kinds, powers, room, values, starts): as `rows`, of JSON lines and the keys of these names."},
    {"quoted", quoted, METH_VARARGS,
     "quoted(text, delimiter, quote, kinds, powers, room, values, starts): as `rows`, of a text with quotes."},
    {"rows", rows, METH_VARARGS,
     "rows(text, delimiter, kinds, powers, room, values, starts): fill the buffer; (rows, what each column is), or None."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_plaintext", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__plaintext(void)
{
    return choose_seed() ? PyModuleDef_Init(&MODULE) : NULL;
}
