/* Distinct texts of Arrow's string arrays, tokens between separators, and positions in a vocabulary: what texts.py tries first.

   One table of open addressing for all three. Its slots and entries lie all over the memory, so keys are looked for in
   batches, whose slots and entries are asked for before the first of them is needed. What a hash finds is compared as
   text: hashes decide about speed and never about results. Offsets are checked before a text is touched. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "texthash.h"

/* LONGEST: bytes of a text that is taken. SLOTS: of a table at first; a power of two, at least four batches. FEW: slots
   of a table that may still grow step by step. */
enum { BATCH = 32, LONGEST = 1 << 30, SLOTS = 1 << 10, FEW = 1 << 16 };

typedef struct {
    uint64_t head; /* the first eight bytes, zeros behind a shorter one */
    const char *text;
    uint32_t size, hash;
} Entry;

/* index: that of the entry + 1, or 0. */
typedef struct {
    uint32_t index, hash;
} Slot;

/* mask + 1 slots, a power of two; see `most`. */
typedef struct {
    Entry *entries;
    Slot *slots;
    uint32_t count, mask;
} Table;

/* Rows [first, first + count) of a string array. wide: offsets of 64 bits. valid: bits, or NULL. */
typedef struct {
    Py_buffer offsets, data, bits;
    const uint8_t *valid;
    int wide;
    Py_ssize_t first, count;
} Strings;

enum { FOUND = 0, NO_MEMORY = -1, OUT_OF_RANGE = -2, TOO_LONG = -3 };

/* ------------------------------------------------------------------ the table */

/* Zeros. Huge pages, where there are such: a table is entered all over, and each small page is a fault and a walk. */
static void *take_pages(uint64_t bytes)
{
    void *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= 1 << 22)
        madvise(found, bytes, MADV_HUGEPAGE);
#endif
    return found;
}

/* Entries of so many slots at most: the fewer, the fewer keys stand in another one's place; the more, the less memory is
   new, and of a large table that is what takes time. */
static inline uint64_t most(uint64_t slots)
{
    return slots > FEW ? slots / 4 * 3 : slots / 2;
}

static void release_table(Table *table)
{
    uint64_t slots = (uint64_t)table->mask + 1;
    if (table->slots) {
        munmap(table->slots, sizeof(Slot) * slots);
        munmap(table->entries, sizeof(Entry) * most(slots));
    }
    *table = (Table){NULL, NULL, 0, 0};
}

/* A table of the same entries with more slots, a power of two. */
static int grow(Table *table, uint64_t slots)
{
    if (slots > (uint64_t)UINT32_MAX + 1)
        return 0;
    Table fresh = {take_pages(sizeof(Entry) * most(slots)), take_pages(sizeof(Slot) * slots), table->count, (uint32_t)(slots - 1)};
    if (!fresh.entries || !fresh.slots) {
        if (fresh.entries)
            munmap(fresh.entries, sizeof(Entry) * most(slots));
        if (fresh.slots)
            munmap(fresh.slots, sizeof(Slot) * slots);
        return 0;
    }
    if (table->count)
        memcpy(fresh.entries, table->entries, sizeof(Entry) * table->count);
    for (uint32_t index = 0; index < fresh.count; index++) {
        uint32_t hash = fresh.entries[index].hash, at = hash & fresh.mask;
        while (fresh.slots[at].index)
            at = (at + 1) & fresh.mask;
        fresh.slots[at] = (Slot){index + 1, hash};
    }
    release_table(table);
    *table = fresh;
    return 1;
}

/* Room for a batch more. seen: keys that were looked for; left: those that are to come. */
static int ensure(Table *table, uint64_t seen, uint64_t left)
{
    uint64_t slots = table->slots ? (uint64_t)table->mask + 1 : 0, wanted = slots ? 2 * slots : SLOTS;
    if ((uint64_t)table->count + BATCH <= most(slots))
        return 1;
    /* Where most keys were new ones, those to come are taken to be, too: growing again and again costs as much as the rest.
       They fill two thirds at most then, which is below `most`. */
    if (wanted > FEW && 2 * (uint64_t)table->count > seen)
        while (wanted / 3 * 2 < table->count + left + BATCH)
            wanted *= 2;
    return grow(table, wanted);
}

static inline Entry key_of(const char *text, uint32_t size, const char *end)
{
    uint64_t head = head_of(text, size, end), hash = hash_of(head, text, size);
    return (Entry){head, text, size, (uint32_t)(hash ^ hash >> 32)};
}

static inline int same(const Entry *left, const Entry *right)
{
    return left->head == right->head && left->size == right->size &&
           (left->size <= 8 || memcmp(left->text + 8, right->text + 8, left->size - 8) == 0);
}

/* The slot of the key, which is empty if no entry is the same. */
static inline Slot *slot_of(const Table *table, const Entry *key)
{
    uint32_t at = key->hash & table->mask;
    for (;; at = (at + 1) & table->mask) {
        Slot *slot = &table->slots[at];
        if (!slot->index || (slot->hash == key->hash && same(&table->entries[slot->index - 1], key)))
            return slot;
    }
}

/* The key's place among the entries; it becomes the last of them if it is none. `ensure` was asked for the room. */
static inline uint32_t place_of(Table *table, const Entry *key)
{
    Slot *slot = slot_of(table, key);
    if (!slot->index) {
        table->entries[table->count] = *key;
        *slot = (Slot){++table->count, key->hash};
    }
    return slot->index - 1;
}

/* Ask for the memory where the keys will be looked for. */
static inline void approach(const Table *table, const Entry *keys, int count)
{
    for (int at = 0; at < count; at++)
        __builtin_prefetch(&table->slots[keys[at].hash & table->mask]);
    for (int at = 0; at < count; at++) {
        uint32_t index = table->slots[keys[at].hash & table->mask].index;
        if (index)
            __builtin_prefetch(&table->entries[index - 1]);
    }
}

/* ------------------------------------------------------------------ string arrays */

static void release_strings(Strings *texts)
{
    PyBuffer_Release(&texts->offsets);
    PyBuffer_Release(&texts->data);
    PyBuffer_Release(&texts->bits);
}

/* The buffers of an array, long enough for its rows; 0: an exception is set, and nothing is to be released. */
static int take_strings(Strings *texts, PyObject *offsets, PyObject *data, PyObject *valid)
{
    texts->offsets.obj = texts->data.obj = texts->bits.obj = NULL;
    if (PyObject_GetBuffer(offsets, &texts->offsets, PyBUF_SIMPLE) < 0 ||
        PyObject_GetBuffer(data, &texts->data, PyBUF_SIMPLE) < 0 ||
        (valid != Py_None && PyObject_GetBuffer(valid, &texts->bits, PyBUF_SIMPLE) < 0)) {
        release_strings(texts);
        return 0;
    }
    texts->valid = texts->bits.obj ? texts->bits.buf : NULL;
    Py_ssize_t room = texts->offsets.len / (texts->wide ? 8 : 4) - 1, first = texts->first, count = texts->count;
    Py_ssize_t marks = texts->valid ? texts->bits.len : PY_SSIZE_T_MAX;
    if (first < 0 || count < 0 || count > INT32_MAX || first > room || count > room - first ||
        (first + count + 7) / 8 > marks) {
        PyErr_SetString(PyExc_ValueError, "the buffers are too short for these rows");
        release_strings(texts);
        return 0;
    }
    return 1;
}

static inline int64_t offset_at(const Strings *texts, Py_ssize_t row)
{
    if (texts->wide)
        return ((const int64_t *)texts->offsets.buf)[texts->first + row];
    return ((const int32_t *)texts->offsets.buf)[texts->first + row];
}

static inline int is_missing(const Strings *texts, Py_ssize_t row)
{
    Py_ssize_t at = texts->first + row;
    return texts->valid && !(texts->valid[at / 8] >> (at % 8) & 1);
}

/* Bytes [*start, *stop) are a row's text. */
static inline int range_of(const Strings *texts, Py_ssize_t row, int64_t *start, int64_t *stop)
{
    *start = offset_at(texts, row), *stop = offset_at(texts, row + 1);
    if (*start < 0 || *stop < *start || *stop > texts->data.len)
        return OUT_OF_RANGE;
    return *stop - *start > LONGEST ? TOO_LONG : FOUND;
}

/* The rows from *row on that are there, as keys: up to a batch of them, and how many; negative: why not. rows: of each. */
static inline int next_keys(const Strings *texts, Py_ssize_t *row, Entry *keys, Py_ssize_t *rows)
{
    const char *data = texts->data.buf, *end = data + texts->data.len;
    int found = 0;
    for (; *row < texts->count && found < BATCH; ++*row) {
        int64_t start, stop;
        if (is_missing(texts, *row))
            continue;
        int why = range_of(texts, *row, &start, &stop);
        if (why)
            return why;
        rows[found] = *row;
        keys[found++] = key_of(data + start, (uint32_t)(stop - start), end);
    }
    return found;
}

/* Codes of the rows that are there, and the table of their texts. */
static int encode_rows(const Strings *texts, Table *table, int32_t *codes)
{
    Entry keys[BATCH];
    Py_ssize_t rows[BATCH], row = 0;
    while (row < texts->count) {
        int found = next_keys(texts, &row, keys, rows);
        if (found < 0)
            return found;
        if (!ensure(table, (uint64_t)(row - found), (uint64_t)(texts->count - row)))
            return NO_MEMORY;
        approach(table, keys, found);
        for (int at = 0; at < found; at++) {
            uint32_t place = place_of(table, &keys[at]);
            if (codes)
                codes[rows[at]] = (int32_t)place;
        }
    }
    return FOUND;
}

static int find_rows(const Strings *texts, const Table *table, int32_t unknown, int32_t *codes)
{
    Entry keys[BATCH];
    Py_ssize_t rows[BATCH], row = 0;
    for (Py_ssize_t at = 0; at < texts->count; at++)
        codes[at] = unknown;
    while (row < texts->count) {
        int found = next_keys(texts, &row, keys, rows);
        if (found < 0)
            return found;
        approach(table, keys, found);
        for (int at = 0; at < found; at++) {
            const Slot *slot = slot_of(table, &keys[at]);
            if (slot->index)
                codes[rows[at]] = (int32_t)(slot->index - 1);
        }
    }
    return FOUND;
}

/* ------------------------------------------------------------------ tokens */

static inline const char *separator_at(const char *p, const char *end, char separator)
{
    for (; end - p >= 8; p += 8) {
        uint64_t marks = bytes_of(word_at(p), separator);
        if (marks)
            return p + (__builtin_ctzll(marks) >> 3);
    }
    while (p < end && *p != separator)
        p++;
    return p;
}

/* What lies between separators, but for empty tokens. codes has room for all of them; ends: tokens up to each row's end. */
static int split_rows(const Strings *texts, char separator, Table *table, int32_t *codes, int64_t *ends)
{
    const char *data = texts->data.buf, *limit = data + texts->data.len;
    Entry keys[BATCH];
    int64_t made = 0, start, stop;
    int waiting = 0;
    for (Py_ssize_t row = 0; row < texts->count; row++) {
        int why = range_of(texts, row, &start, &stop);
        if (why)
            return why;
        const char *end = data + stop;
        for (const char *p = data + start; p < end; p++) {
            const char *begin = p;
            p = separator_at(p, end, separator);
            if (p == begin)
                continue;
            keys[waiting++] = key_of(begin, (uint32_t)(p - begin), limit);
            if (waiting == BATCH) {
                if (!ensure(table, UINT64_MAX, 0))
                    return NO_MEMORY;
                for (int at = 0; at < BATCH; at++)
                    codes[made++] = (int32_t)place_of(table, &keys[at]);
                waiting = 0;
            }
        }
        ends[row] = made + waiting;
    }
    if (!ensure(table, UINT64_MAX, 0))
        return NO_MEMORY;
    for (int at = 0; at < waiting; at++)
        codes[made++] = (int32_t)place_of(table, &keys[at]);
    return FOUND;
}

/* Tokens of the rows at most, or a negative reason. */
static int64_t most_tokens(const Strings *texts, char separator)
{
    int64_t found = texts->count, start = offset_at(texts, 0), stop = offset_at(texts, texts->count);
    if (start < 0 || stop < start || stop > texts->data.len)
        return OUT_OF_RANGE;
    const char *bytes = texts->data.buf;
    while (start < stop) { /* counts of one byte: compilers then compare many bytes at once */
        int64_t until = stop - start < 128 ? stop : start + 128;
        uint8_t here = 0;
        for (; start < until; start++)
            here += bytes[start] == separator;
        found += here;
    }
    return found;
}

/* ------------------------------------------------------------------ Python */

/* (offsets, bytes) of the table's texts in their order. */
static PyObject *labels_of(const Table *table, int wide)
{
    Py_ssize_t width = wide ? 8 : 4, total = 0;
    for (uint32_t index = 0; index < table->count; index++)
        total += table->entries[index].size;
    if (!wide && total > INT32_MAX)
        return PyErr_NoMemory();
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, ((Py_ssize_t)table->count + 1) * width);
    PyObject *texts = PyBytes_FromStringAndSize(NULL, total);
    if (!offsets || !texts) {
        Py_XDECREF(offsets);
        Py_XDECREF(texts);
        return NULL;
    }
    char *ends = PyBytes_AsString(offsets), *bytes = PyBytes_AsString(texts);
    int64_t at = 0;
    memset(ends, 0, (size_t)width);
    for (uint32_t index = 0; index < table->count; index++) {
        const Entry *each = &table->entries[index];
        if (each->size <= 8)
            memcpy(bytes + at, &each->head, each->size);
        else
            memcpy(bytes + at, each->text, each->size);
        at += each->size;
        memcpy(ends + ((Py_ssize_t)index + 1) * width, &at, (size_t)width); /* little-endian */
    }
    return Py_BuildValue("(NN)", offsets, texts);
}

/* NULL with the exception of a reason, or None if Arrow may take it. */
static PyObject *refused(int why)
{
    if (why == NO_MEMORY)
        return PyErr_NoMemory();
    if (why == TOO_LONG)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "the offsets of the texts lie outside of their bytes");
    return NULL;
}

/* The writable codes of so many rows; 0: an exception is set, and nothing is to be released. */
static int take_target(PyObject *target, Py_ssize_t rows, Py_buffer *codes)
{
    if (PyObject_GetBuffer(target, codes, PyBUF_WRITABLE) < 0)
        return 0;
    if (codes->len / 4 < rows) {
        PyErr_SetString(PyExc_ValueError, "the target is too short");
        PyBuffer_Release(codes);
        return 0;
    }
    return 1;
}

static PyObject *encoded(PyObject *module, PyObject *arguments)
{
    PyObject *offsets, *data, *valid, *target, *answer = NULL;
    Strings texts;
    if (!PyArg_ParseTuple(arguments, "OpOOnnO", &offsets, &texts.wide, &data, &valid, &texts.first, &texts.count, &target) ||
        !take_strings(&texts, offsets, data, valid))
        return NULL;
    Py_buffer codes;
    if (take_target(target, texts.count, &codes)) {
        Table table = {NULL, NULL, 0, 0};
        int why;
        Py_BEGIN_ALLOW_THREADS
        if (texts.valid)
            memset(codes.buf, 0, 4 * (size_t)texts.count);
        why = encode_rows(&texts, &table, codes.buf);
        Py_END_ALLOW_THREADS
        answer = why ? refused(why) : labels_of(&table, texts.wide);
        release_table(&table);
        PyBuffer_Release(&codes);
    }
    release_strings(&texts);
    return answer;
}

static PyObject *split(PyObject *module, PyObject *arguments)
{
    PyObject *offsets, *data, *answer = NULL;
    int separator;
    Strings texts;
    if (!PyArg_ParseTuple(arguments, "OpOnni", &offsets, &texts.wide, &data, &texts.first, &texts.count, &separator) ||
        !take_strings(&texts, offsets, data, Py_None))
        return NULL;
    int64_t most;
    Py_BEGIN_ALLOW_THREADS
    most = most_tokens(&texts, (char)separator);
    Py_END_ALLOW_THREADS
    if (most < 0 || most > INT32_MAX) {
        answer = refused(most < 0 ? (int)most : TOO_LONG);
        release_strings(&texts);
        return answer;
    }
    PyObject *codes = PyBytes_FromStringAndSize(NULL, 4 * (Py_ssize_t)most);
    PyObject *ends = PyBytes_FromStringAndSize(NULL, 8 * texts.count);
    if (codes && ends) {
        Table table = {NULL, NULL, 0, 0};
        int32_t *into = (int32_t *)PyBytes_AsString(codes);
        int64_t *rows = (int64_t *)PyBytes_AsString(ends);
        int why;
        Py_BEGIN_ALLOW_THREADS
        why = split_rows(&texts, (char)separator, &table, into, rows);
        Py_END_ALLOW_THREADS
        PyObject *labels = why ? refused(why) : labels_of(&table, 1);
        answer = labels && labels != Py_None ? Py_BuildValue("(OON)", codes, ends, labels) : labels;
        release_table(&table);
    }
    Py_XDECREF(codes);
    Py_XDECREF(ends);
    release_strings(&texts);
    return answer;
}

/* A vocabulary, and the array whose memory its entries point to. */
typedef struct {
    Table table;
    Strings texts;
} Vocabulary;

static const char NAME[] = "distcore_data.encoding._texts.vocabulary";

static void release_vocabulary(PyObject *capsule)
{
    Vocabulary *found = PyCapsule_GetPointer(capsule, NAME);
    if (found) {
        release_table(&found->table);
        release_strings(&found->texts);
        free(found);
    }
}

static PyObject *vocabulary(PyObject *module, PyObject *arguments)
{
    PyObject *offsets, *data, *answer = NULL;
    Vocabulary *made = calloc(1, sizeof(Vocabulary));
    if (!made)
        return PyErr_NoMemory();
    if (!PyArg_ParseTuple(arguments, "OpOnn", &offsets, &made->texts.wide, &data, &made->texts.first, &made->texts.count) ||
        !take_strings(&made->texts, offsets, data, Py_None)) {
        free(made);
        return NULL;
    }
    int why;
    Py_BEGIN_ALLOW_THREADS
    why = encode_rows(&made->texts, &made->table, NULL);
    Py_END_ALLOW_THREADS
    if (!why && made->table.count < made->texts.count)
        answer = Py_NewRef(Py_None); /* places are not codes */
    else if (why)
        answer = refused(why);
    else
        answer = PyCapsule_New(made, NAME, release_vocabulary);
    if (!answer || answer == Py_None) {
        release_table(&made->table);
        release_strings(&made->texts);
        free(made);
    }
    return answer;
}

static PyObject *find(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *offsets, *data, *valid, *target, *answer = NULL;
    int unknown;
    Strings texts;
    if (!PyArg_ParseTuple(arguments, "OOpOOnniO", &capsule, &offsets, &texts.wide, &data, &valid, &texts.first,
                          &texts.count, &unknown, &target))
        return NULL;
    const Vocabulary *known = PyCapsule_GetPointer(capsule, NAME);
    if (!known || !take_strings(&texts, offsets, data, valid))
        return NULL;
    Py_buffer codes;
    if (take_target(target, texts.count, &codes)) {
        int why;
        Py_BEGIN_ALLOW_THREADS
        why = find_rows(&texts, &known->table, unknown, codes.buf);
        Py_END_ALLOW_THREADS
        answer = why ? refused(why) : Py_NewRef(Py_True);
        PyBuffer_Release(&codes);
    }
    release_strings(&texts);
    return answer;
}

static PyObject *tally(PyObject *module, PyObject *arguments)
{
    Py_buffer codes, counts;
    if (!PyArg_ParseTuple(arguments, "y*w*", &codes, &counts))
        return NULL;
    const int32_t *each = codes.buf;
    int64_t *target = counts.buf, room = counts.len / 8, wrong = 0;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < codes.len / 4; at++) {
        if ((uint64_t)(int64_t)each[at] < (uint64_t)room)
            target[each[at]]++;
        else
            wrong++;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&codes);
    PyBuffer_Release(&counts);
    if (wrong) {
        PyErr_SetString(PyExc_ValueError, "a code is none of those that are counted");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"encoded", encoded, METH_VARARGS,
     "encoded(offsets, wide, data, valid, first, count, target): fill the codes; (offsets, bytes) of the distinct texts."},
    {"find", find, METH_VARARGS,
     "find(vocabulary, offsets, wide, data, valid, first, count, unknown, target): fill the codes."},
    {"split", split, METH_VARARGS,
     "split(offsets, wide, data, first, count, separator): (codes, ends, (offsets, bytes) of the distinct tokens)."},
    {"tally", tally, METH_VARARGS, "tally(codes, counts): add one to the count of each code."},
    {"vocabulary", vocabulary, METH_VARARGS,
     "vocabulary(offsets, wide, data, first, count): what `find` asks; None if a text is there twice."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_texts", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__texts(void)
{
    return choose_seed() ? PyModuleDef_Init(&MODULE) : NULL;
}
