/* Columns of Parquet as floats, whole numbers, dictionary codes and texts, in one pass: what parquet_columns.py tries first.
   A column is in a chunk of each of some row groups, one after the other.

   Plain means: a column that is in no list and no struct, of floats, of whole numbers of 32 or 64 bits or of byte arrays, in
   pages that are PLAIN or by a dictionary, packed by Snappy or not at all. Whatever else comes up, the functions give None at once,
   and Arrow's reader takes the column: it alone decides what is an error. So this file has no opinion on bad input, only the
   duty to stay within its memory and to give the same values where it answers.

   The format: apache/parquet-format, README.md, Encodings.md and parquet.thrift; Thrift's compact protocol; Snappy's
   format_description.txt. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "little-endian words are needed; distcore works without this module"
#endif

/* Bytes of a chunk or page that are taken; those that may be written behind a page that is unpacked, to copy 16 at once. */
enum { LONGEST = 1 << 30, SLACK = 64 };

enum { NOT_PLAIN = -1, NO_MEMORY = -2 };

typedef struct {
    const uint8_t *at, *end;
} Bytes;

static inline Py_ssize_t left(const Bytes *bytes)
{
    return bytes->end - bytes->at;
}

static inline uint32_t word_of_4(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

static inline uint64_t word_of_8(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* ------------------------------------------------------------------ headers, in Thrift's compact protocol */

enum { STOP = 0, TRUE = 1, FALSE = 2, BYTE = 3, I16 = 4, I32 = 5, I64 = 6, DOUBLE = 7, BINARY = 8, LIST = 9, SET = 10, STRUCT = 12 };
enum { DEEPEST = 8, FIELDS = 9 };

/* Of a page's header: the field of its checksum, as it stands there, and where it is said that there is one. */
enum { CHECKSUM = 4, HAS_CHECKSUM = 0 };

/* 0 where no number of up to 64 bits ends. */
static int varint(Bytes *bytes, uint64_t *number)
{
    *number = 0;
    for (int shift = 0; bytes->at < bytes->end && shift < 64; shift += 7) {
        uint8_t byte = *bytes->at++;
        *number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return 1;
    }
    return 0;
}

/* The type of the next field, and its number in *field; -1 where there is none. */
static int field_type(Bytes *bytes, int *field)
{
    uint64_t number;
    if (bytes->at == bytes->end)
        return -1;
    int byte = *bytes->at++, type = byte & 15;
    if (type == STOP)
        return STOP;
    if (byte >> 4)
        *field += byte >> 4;
    else if (varint(bytes, &number) && number < 1 << 16)
        *field = (int)(number >> 1);
    else
        return -1;
    return *field < 1 << 16 ? type : -1;
}

/* 0 where no value of this type ends. */
static int skip(Bytes *bytes, int type, int depth)
{
    uint64_t size = 0;
    int field = 0, inside;
    if (depth > DEEPEST)
        return 0;
    if (type == TRUE || type == FALSE)
        return 1;
    if (type >= I16 && type <= I64)
        return varint(bytes, &size);
    if (type == STRUCT) {
        while ((inside = field_type(bytes, &field)) > STOP)
            if (!skip(bytes, inside, depth + 1))
                return 0;
        return inside == STOP;
    }
    if (type == LIST || type == SET) {
        if (bytes->at == bytes->end)
            return 0;
        inside = *bytes->at & 15;
        size = *bytes->at++ >> 4;
        if (size == 15 && !varint(bytes, &size))
            return 0;
        if (inside == TRUE || inside == FALSE)
            inside = BYTE; /* a byte in lists alone */
        for (; size; size--)
            if (bytes->at == bytes->end || !skip(bytes, inside, depth + 1))
                return 0;
        return 1;
    }
    if (type == BYTE || type == DOUBLE)
        size = type == BYTE ? 1 : 8;
    else if (type != BINARY || !varint(bytes, &size))
        return 0;
    if (size > (uint64_t)left(bytes))
        return 0;
    bytes->at += size;
    return 1;
}

/* Reads a struct: numbers[n] is field n, if it is a number from 0 to LONGEST or a truth, and STRUCT if it is one that was read
   into `inside`, which may be NULL. 0 where it does not end. */
static int read_struct(Bytes *bytes, int32_t *numbers, int32_t *inside)
{
    int field = 0, type;
    while ((type = field_type(bytes, &field)) > STOP) {
        uint64_t number;
        if (type == STRUCT && inside) {
            if (!read_struct(bytes, inside, NULL))
                return 0;
            if (field < FIELDS)
                numbers[field] = STRUCT;
        } else if (type >= I16 && type <= I64) {
            if (!varint(bytes, &number))
                return 0;
            if (inside && field == CHECKSUM) {
                numbers[HAS_CHECKSUM] = 1;
                numbers[CHECKSUM] = (int32_t)((number >> 1) ^ -(number & 1));
            } else if (field < FIELDS)
                numbers[field] = number & 1 || number >> 1 > LONGEST ? -1 : (int32_t)(number >> 1);
        } else {
            if (!skip(bytes, type, 0))
                return 0;
            if (field < FIELDS && (type == TRUE || type == FALSE))
                numbers[field] = type == TRUE;
        }
    }
    return type == STOP;
}

/* ------------------------------------------------------------------ footers */

/* What is said of a column of a row group. DELTA: whether a page may have an encoding of that name. */
enum { START, BYTES, RAW_BYTES, CODEC, VALUES, DELTA, NUMBERS };

enum { FIRST_DELTA = 5, LAST_DELTA = 7 };

/* Of row groups, one after the other: rows, and NUMBERS of each column. */
typedef struct {
    int64_t *numbers;
    Py_ssize_t count, room;
} Found;

static int64_t *more(Found *found, Py_ssize_t count)
{
    if (found->count + count > found->room) {
        Py_ssize_t room = 2 * found->room + count + 64;
        int64_t *numbers = realloc(found->numbers, sizeof(int64_t) * (size_t)room);
        if (!numbers)
            return NULL;
        found->numbers = numbers;
        found->room = room;
    }
    int64_t *here = found->numbers + found->count;
    memset(here, 0, sizeof(int64_t) * (size_t)count);
    found->count += count;
    return here;
}

static int signed_number(Bytes *bytes, int type, int64_t *number)
{
    uint64_t said;
    if (type < I16 || type > I64 || !varint(bytes, &said))
        return 0;
    *number = (int64_t)(said >> 1) ^ -(int64_t)(said & 1);
    return 1;
}

/* The size of a list of values of this type; -1 where there is none. */
static Py_ssize_t list_size(Bytes *bytes, int type, int inside)
{
    if (type != LIST || bytes->at == bytes->end || (*bytes->at & 15) != inside)
        return -1;
    uint64_t size = *bytes->at++ >> 4;
    if (size == 15 && !varint(bytes, &size))
        return -1;
    return size <= (uint64_t)left(bytes) ? (Py_ssize_t)size : -1;
}

static int read_encodings(Bytes *bytes, int type, int64_t *has_delta)
{
    int64_t encoding;
    for (Py_ssize_t size = list_size(bytes, type, I32); size; size--) {
        if (size < 0 || !signed_number(bytes, I32, &encoding))
            return 0;
        *has_delta |= encoding >= FIRST_DELTA && encoding <= LAST_DELTA;
    }
    return 1;
}

/* ColumnMetaData. 0 where it does not end, or lacks something. */
static int read_column_facts(Bytes *bytes, int64_t *numbers)
{
    int field = 0, type, good = 1;
    int64_t dictionary = 0;
    unsigned seen = 0;
    while (good && (type = field_type(bytes, &field)) > STOP) {
        int64_t *to = field == 4   ? &numbers[CODEC]
                      : field == 5 ? &numbers[VALUES]
                      : field == 6 ? &numbers[RAW_BYTES]
                      : field == 7 ? &numbers[BYTES]
                      : field == 9 ? &numbers[START]
                                   : NULL;
        if (to) {
            good = signed_number(bytes, type, to) && *to >= 0;
            seen |= 1u << field;
        } else if (field == 11)
            good = signed_number(bytes, type, &dictionary);
        else
            good = field == 2 ? read_encodings(bytes, type, &numbers[DELTA]) : skip(bytes, type, 0);
    }
    if (dictionary > 0 && dictionary < numbers[START])
        numbers[START] = dictionary;
    return good && type == STOP && seen == (1u << 4 | 1u << 5 | 1u << 6 | 1u << 7 | 1u << 9);
}

/* ColumnChunk: 0 also where it lies in another file, or is encrypted. */
static int read_chunk_facts(Bytes *bytes, Found *found)
{
    int field = 0, type, good = 1, known = 0;
    while (good && (type = field_type(bytes, &field)) > STOP) {
        if (field == 3 && type == STRUCT && !known++) {
            int64_t *numbers = more(found, NUMBERS);
            good = numbers && read_column_facts(bytes, numbers);
        } else
            good = field != 1 && field != 3 && field < 8 && skip(bytes, type, 0);
    }
    return good && type == STOP && known;
}

static int read_group_facts(Bytes *bytes, Found *found, Py_ssize_t columns)
{
    int field = 0, type, good = 1, known = 0;
    Py_ssize_t at = found->count;
    int64_t rows = -1;
    if (!more(found, 1))
        return 0;
    while (good && (type = field_type(bytes, &field)) > STOP) {
        if (field == 1 && !known++) {
            Py_ssize_t size = list_size(bytes, type, STRUCT);
            good = size == columns;
            for (; good && size; size--)
                good = read_chunk_facts(bytes, found);
        } else
            good = field == 3 ? signed_number(bytes, type, &rows) : field != 1 && skip(bytes, type, 0);
    }
    found->numbers[at] = rows;
    return good && type == STOP && known && rows >= 0;
}

/* FileMetaData, of so many columns. spans: of the schema, and of what the writer says besides, from `start` on; 0 where it does
   not end, or is of an encrypted file. */
static int read_footer(Bytes *bytes, Found *found, Py_ssize_t columns, Py_ssize_t *spans)
{
    const uint8_t *start = bytes->at;
    int field = 0, type, good = 1, known = 0;
    memset(spans, 0, 4 * sizeof *spans);
    while (good && (type = field_type(bytes, &field)) > STOP) {
        Py_ssize_t *span = field == 2 ? spans : field == 5 ? spans + 2 : NULL;
        if (field == 4 && !known++) {
            Py_ssize_t size = list_size(bytes, type, STRUCT);
            good = size >= 0;
            for (; good && size; size--)
                good = read_group_facts(bytes, found, columns);
            continue;
        }
        Py_ssize_t from = bytes->at - start;
        good = field != 4 && field < 8 && skip(bytes, type, 0);
        if (good && span)
            span[0] = from, span[1] = bytes->at - start;
    }
    return good && type == STOP && known && left(bytes) == 0;
}

/* ------------------------------------------------------------------ Snappy */

/* 3 bytes stand for 64 at most. */
enum { MOST_PACKED = 22 };

/* Copy to `to` what lies `back` bytes before it, which may reach into what is copied. There is SLACK behind. */
static inline void copy_back(uint8_t *to, size_t back, size_t size)
{
    const uint8_t *from = to - back;
    if (back >= 16) {
        for (size_t at = 0; at < size; at += 16)
            memcpy(to + at, from + at, 16);
    } else if (back >= 8) {
        for (size_t at = 0; at < size; at += 8)
            memcpy(to + at, from + at, 8);
    } else {
        for (size_t at = 0; at < size; at++)
            to[at] = from[at];
    }
}

/* Unpack to exactly `size` bytes, behind which SLACK more may be written; 0 where the packed ones are not those of as many. */
static int unpack(Bytes packed, uint8_t *to, size_t size)
{
    uint64_t said;
    uint8_t *start = to, *end = to + size;
    if (!varint(&packed, &said) || said != size)
        return 0;
    const uint8_t *p = packed.at, *stop = packed.end;
    while (p < stop) {
        unsigned tag = *p++;
        size_t length = tag >> 2, back;
        if ((tag & 3) == 0) {
            if (length < 16 && stop - p >= 16 && end - to >= (Py_ssize_t)length + 1) {
                memcpy(to, p, 16);
                to += length + 1;
                p += length + 1;
                continue;
            }
            if (length >= 60) {
                unsigned more = (unsigned)length - 59;
                if (stop - p < (Py_ssize_t)more)
                    return 0;
                length = 0;
                for (unsigned at = 0; at < more; at++)
                    length |= (size_t)p[at] << (8 * at);
                p += more;
            }
            length++;
            if (length > (size_t)(stop - p) || length > (size_t)(end - to))
                return 0;
            memcpy(to, p, length);
            to += length;
            p += length;
            continue;
        }
        unsigned wide = (tag & 3) == 3 ? 4 : tag & 3;
        if (stop - p < (Py_ssize_t)wide)
            return 0;
        if (wide == 1) {
            length = (length & 7) + 4;
            back = (size_t)(tag >> 5) << 8 | *p;
        } else {
            length++;
            back = wide == 2 ? (size_t)p[0] | (size_t)p[1] << 8 : word_of_4(p);
        }
        p += wide;
        if (back == 0 || back > (size_t)(to - start) || length > (size_t)(end - to))
            return 0;
        copy_back(to, back, length);
        to += length;
    }
    return to == end;
}

/* ------------------------------------------------------------------ checksums */

/* [n][byte]: what the byte, with n bytes behind it, adds to a CRC-32 of a page (of eight bytes at once: Intel's "slicing"). */
static uint32_t checksums[8][256];

static void fill_checksums(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
        checksums[0][byte] = sum;
    }
    for (int behind = 1; behind < 8; behind++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t sum = checksums[behind - 1][byte];
            checksums[behind][byte] = sum >> 8 ^ checksums[0][sum & 0xff];
        }
}

static uint32_t checksum_of(Bytes bytes)
{
    uint32_t sum = 0xffffffffu;
    for (; left(&bytes) >= 8; bytes.at += 8) {
        uint64_t word = word_of_8(bytes.at) ^ sum;
        sum = 0;
        for (int at = 0; at < 8; at++)
            sum ^= checksums[7 - at][word >> 8 * at & 0xff];
    }
    for (; left(&bytes); bytes.at++)
        sum = sum >> 8 ^ checksums[0][(sum ^ *bytes.at) & 0xff];
    return ~sum;
}

/* ------------------------------------------------------------------ pages */

/* The kinds of pages, and the fields of a page's header where what is said of each stands. */
enum { DATA_PAGE = 0, DICTIONARY_PAGE = 2, DATA_PAGE_V2 = 3 };
enum { OF_DATA = 5, OF_DICTIONARY = 7, OF_DATA_V2 = 8 };
enum { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3, RLE_DICTIONARY = 8 };

typedef struct {
    uint8_t *bytes;
    size_t room;
} Room;

/* What the column is to become: words of 64 or 32 bits, codes in the dictionary, or texts behind one another. */
enum { WORDS, SHORT_WORDS, CODES, TEXTS };

typedef struct {
    Bytes chunk;
    int kind, is_packed, is_optional;
    Py_ssize_t rows, row, missing; /* rows: up to the end of this chunk; row: the next */
    Room dictionary_room, page_room, codes_room;
    Bytes dictionary;
    const uint8_t **texts; /* where the length of each of the dictionary's texts stands */
    uint32_t entries;      /* of the dictionary; a chunk has one at most */
    void *words;
    int32_t *codes;          /* or, of texts, offsets [rows + 1] */
    uint8_t *valid;          /* a bit for each row */
    uint8_t *data;           /* of texts */
    Py_ssize_t used, behind; /* bytes of data: what the texts need, and how many there are */
} Column;

static int make_room(Room *room, size_t size)
{
    if (room->room >= size)
        return 1;
    uint8_t *bytes = malloc(size); /* what was there is needed no more */
    if (!bytes)
        return 0;
    free(room->bytes);
    *room = (Room){bytes, size};
    return 1;
}

/* The bytes of a page, unpacked into the room if they are packed; NOT_PLAIN or NO_MEMORY else. */
static int page_bytes(Bytes *body, int is_packed, int32_t raw, Room *room)
{
    if (!is_packed)
        return left(body) == raw ? 0 : NOT_PLAIN;
    if (raw / MOST_PACKED > left(body)) /* nobody's claim takes memory */
        return NOT_PLAIN;
    if (!make_room(room, (size_t)raw + SLACK))
        return NO_MEMORY;
    if (!unpack(*body, room->bytes, (size_t)raw))
        return NOT_PLAIN;
    *body = (Bytes){room->bytes, room->bytes + raw};
    return 0;
}

static int read_dictionary(Column *column, int32_t raw, const int32_t *about, Bytes body)
{
    int32_t count = about[1];
    if (about[2] != PLAIN && about[2] != PLAIN_DICTIONARY)
        return NOT_PLAIN;
    int failed = page_bytes(&body, column->is_packed, raw, &column->dictionary_room);
    if (failed)
        return failed;
    column->dictionary = body;
    column->entries = (uint32_t)count;
    if (column->kind == WORDS || column->kind == SHORT_WORDS)
        return left(&body) == (column->kind == WORDS ? 8 : 4) * (Py_ssize_t)count ? 0 : NOT_PLAIN;
    if (count > left(&body) / 4)
        return NOT_PLAIN;
    free(column->texts);
    if (!(column->texts = malloc(sizeof *column->texts * ((size_t)count + 1))))
        return NO_MEMORY;
    for (int32_t at = 0; at < count; at++) {
        if (left(&body) < 4)
            return NOT_PLAIN;
        column->texts[at] = body.at;
        uint32_t size = word_of_4(body.at);
        body.at += 4;
        if (size > (size_t)left(&body))
            return NOT_PLAIN;
        body.at += size;
    }
    return body.at == body.end ? 0 : NOT_PLAIN;
}

/* Reads `count` numbers of `width` bits in runs and packed groups of eight, each below `limit`; 0 where they are not all that
   is there. */
static int read_runs(Bytes *bytes, int width, int32_t *out, Py_ssize_t count, uint32_t limit)
{
    const uint64_t mask = ((uint64_t)1 << width) - 1;
    uint64_t highest = 0;
    while (count) {
        uint64_t header, number = 0;
        if (!varint(bytes, &header) || header >> 1 == 0 || header >> 1 > LONGEST)
            return 0;
        Py_ssize_t size = (Py_ssize_t)(header >> 1);
        if (header & 1) {
            Py_ssize_t many = size * 8, room = size * width;
            if (room > left(bytes))
                return 0;
            if (many > count) /* the last groups are filled up */
                many = count;
            const uint8_t *from = bytes->at;
            Py_ssize_t at = 0, bit = 0, safe = left(bytes) - 8;
            for (; at < many && bit >> 3 <= safe; at++, bit += width) {
                uint64_t found = word_of_8(from + (bit >> 3)) >> (bit & 7) & mask;
                highest = found > highest ? found : highest;
                out[at] = (int32_t)found;
            }
            if (at < many) { /* the last bytes, with zeros behind */
                uint8_t tail[16 + 8] = {0};
                Py_ssize_t first = bit >> 3;
                memcpy(tail, from + first, (size_t)(left(bytes) - first));
                for (; at < many; at++, bit += width) {
                    uint64_t found = word_of_8(tail + ((bit >> 3) - first)) >> (bit & 7) & mask;
                    highest = found > highest ? found : highest;
                    out[at] = (int32_t)found;
                }
            }
            bytes->at += room;
            size = many;
        } else {
            int wide = (width + 7) / 8;
            if (left(bytes) < wide || size > count)
                return 0;
            for (int at = 0; at < wide; at++)
                number |= (uint64_t)bytes->at[at] << (8 * at);
            bytes->at += wide;
            highest = number > highest ? number : highest;
            for (Py_ssize_t at = 0; at < size; at++)
                out[at] = (int32_t)number;
        }
        out += size;
        count -= size;
    }
    return highest < limit && left(bytes) == 0;
}

static void set_bits(uint8_t *bits, Py_ssize_t from, Py_ssize_t to)
{
    for (; from < to && from & 7; from++)
        bits[from >> 3] |= (uint8_t)(1 << (from & 7));
    memset(bits + (from >> 3), 0xff, (size_t)(to - from) >> 3);
    for (from += (to - from) & ~(Py_ssize_t)7; from < to; from++)
        bits[from >> 3] |= (uint8_t)(1 << (from & 7));
}

/* Sets the bits of a page's rows that are there, and gives how many; NOT_PLAIN or NO_MEMORY else. */
static Py_ssize_t read_levels(Column *column, Bytes levels, Py_ssize_t count)
{
    uint64_t header;
    Bytes ahead = levels;
    if (varint(&ahead, &header) && header == 2 * (uint64_t)count && left(&ahead) == 1 && *ahead.at == 1) {
        set_bits(column->valid, column->row, column->row + count); /* one run: all are there */
        return count;
    }
    if (!make_room(&column->codes_room, 4 * (size_t)count))
        return NO_MEMORY;
    int32_t *found = (int32_t *)column->codes_room.bytes;
    if (!read_runs(&levels, 1, found, count, 2))
        return NOT_PLAIN;
    Py_ssize_t present = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t row = column->row + at;
        column->valid[row >> 3] |= (uint8_t)(found[at] << (row & 7));
        present += found[at];
    }
    return present;
}

static inline int is_valid(const Column *column, Py_ssize_t row)
{
    return !column->valid || column->valid[row >> 3] >> (row & 7) & 1;
}

/* Of values that lie at the beginning of `count` places, each to its row's; zeros where none is. */
#define SPREAD(values, column, count, present)                                                                                   \
    for (Py_ssize_t at = (count), from = (present); at-- > 0 && from <= at;)                                                     \
    (values)[at] = is_valid(column, (column)->row + at) ? (values)[--from] : 0

/* The rows' words, those of the dictionary or those that lie in the page. */
#define READ_WORDS(Word, word_of, column, values, by_codes, codes, count, present)                                               \
    Word *words = (Word *)(column)->words + (column)->row;                                                                       \
    if (by_codes)                                                                                                                \
        for (Py_ssize_t at = 0; at < (present); at++)                                                                            \
            words[at] = word_of((column)->dictionary.at + sizeof(Word) * (size_t)(codes)[at]);                                   \
    else if (left(&(values)) != (Py_ssize_t)sizeof(Word) * (present))                                                            \
        return NOT_PLAIN;                                                                                                        \
    else                                                                                                                         \
        memcpy(words, (values).at, sizeof(Word) * (size_t)(present));                                                            \
    SPREAD(words, column, count, present)

/* Texts that do not fit are only counted. */
static int append_text(Column *column, const uint8_t *text, uint32_t size)
{
    if (size >= (size_t)(LONGEST - column->used))
        return 0;
    if ((Py_ssize_t)size <= column->behind - column->used)
        memcpy(column->data + column->used, text, size);
    column->used += size;
    return 1;
}

/* Whether values stand in the dictionary, and their places in the page. */
static inline int is_by_codes(int encoding)
{
    return encoding == RLE_DICTIONARY || encoding == PLAIN_DICTIONARY;
}

/* Reads a page's values, of which `present` are there in `count` rows. */
static int read_values(Column *column, Bytes values, int encoding, Py_ssize_t count, Py_ssize_t present)
{
    int by_codes = is_by_codes(encoding);
    int32_t *codes = column->codes + column->row; /* where they are what is wanted */
    if (by_codes && present) {
        if (left(&values) == 0 || *values.at > 32 || !column->entries)
            return NOT_PLAIN;
        int width = *values.at++;
        if (column->kind != CODES) {
            if (!make_room(&column->codes_room, 4 * (size_t)count))
                return NO_MEMORY;
            codes = (int32_t *)column->codes_room.bytes;
        }
        if (!read_runs(&values, width, codes, present, column->entries))
            return NOT_PLAIN;
    } else if (!by_codes && (encoding != PLAIN || column->kind == CODES))
        return NOT_PLAIN;
    if (column->kind == CODES) {
        SPREAD(codes, column, count, present);
    } else if (column->kind == WORDS) {
        READ_WORDS(uint64_t, word_of_8, column, values, by_codes, codes, count, present);
    } else if (column->kind == SHORT_WORDS) {
        READ_WORDS(uint32_t, word_of_4, column, values, by_codes, codes, count, present);
    } else {
        int32_t *ends = column->codes + column->row + 1;
        for (Py_ssize_t at = 0, from = 0; at < count; at++) {
            if (is_valid(column, column->row + at)) {
                const uint8_t *text;
                if (by_codes)
                    text = column->texts[codes[from++]];
                else if (left(&values) < 4 || word_of_4(values.at) > (size_t)left(&values) - 4)
                    return NOT_PLAIN;
                else {
                    text = values.at;
                    values.at += 4 + (size_t)word_of_4(text);
                }
                if (!append_text(column, text + 4, word_of_4(text)))
                    return NOT_PLAIN;
            }
            ends[at] = (int32_t)column->used;
        }
        if (!by_codes && left(&values))
            return NOT_PLAIN;
    }
    column->row += count;
    column->missing += count - present;
    return 0;
}

/* A page of the first version: levels and values, packed together. */
static int read_data(Column *column, int32_t raw, const int32_t *about, Bytes body)
{
    Py_ssize_t count = about[1], present = count;
    int failed = page_bytes(&body, column->is_packed, raw, &column->page_room);
    if (failed || about[3] < 0 || about[4] < 0)
        return failed ? failed : NOT_PLAIN;
    if (column->is_optional) {
        if (about[3] != RLE || left(&body) < 4 || word_of_4(body.at) > (size_t)left(&body) - 4)
            return NOT_PLAIN;
        Bytes levels = {body.at + 4, body.at + 4 + word_of_4(body.at)};
        body.at = levels.end;
        if (count && (present = read_levels(column, levels, count)) < 0)
            return (int)present;
    }
    return read_values(column, body, about[2], count, present);
}

/* A page of the second version: levels, then values, which alone are packed. */
static int read_data_v2(Column *column, int32_t raw, const int32_t *about, Bytes body)
{
    Py_ssize_t count = about[1], present = count;
    int32_t size = about[5];
    if (size < 0 || size > left(&body) || size > raw || about[6] != 0 || about[3] != count)
        return NOT_PLAIN;
    Bytes levels = {body.at, body.at + size};
    body.at = levels.end;
    int failed = page_bytes(&body, column->is_packed && about[7] != 0, raw - size, &column->page_room);
    if (failed)
        return failed;
    if (column->is_optional && count && (present = read_levels(column, levels, count)) < 0)
        return (int)present;
    if ((size && !column->is_optional) || about[2] != count - present)
        return NOT_PLAIN;
    return read_values(column, body, about[4], count, present);
}

/* Reads a page's header; NOT_PLAIN where none ends, or it is of none that is taken. */
static int read_header(Bytes *bytes, int32_t *page, int32_t *about)
{
    memset(page, -1, FIELDS * sizeof *page);
    memset(about, -1, FIELDS * sizeof *about);
    if (!read_struct(bytes, page, about) || page[2] < 0 || page[3] < 0 || about[1] < 0)
        return NOT_PLAIN;
    int of = page[1] == DICTIONARY_PAGE ? OF_DICTIONARY : page[1] == DATA_PAGE ? OF_DATA : page[1] == DATA_PAGE_V2 ? OF_DATA_V2 : 0;
    return of && page[of] == STRUCT ? 0 : NOT_PLAIN;
}

/* Reads a chunk; 0, NOT_PLAIN or NO_MEMORY. */
static int read_chunk(Column *column)
{
    int pages = 0, failed; /* pages: whether there was one */
    column->entries = 0;
    if (column->valid && !column->is_optional)
        set_bits(column->valid, column->row, column->rows);
    while (column->row < column->rows) {
        int32_t page[FIELDS], about[FIELDS];
        if (read_header(&column->chunk, page, about) || page[3] > left(&column->chunk))
            return NOT_PLAIN;
        Bytes body = {column->chunk.at, column->chunk.at + page[3]};
        column->chunk.at = body.end;
        if (page[HAS_CHECKSUM] == 1 && checksum_of(body) != (uint32_t)page[CHECKSUM])
            return NOT_PLAIN;
        if (page[1] != DICTIONARY_PAGE && about[1] > column->rows - column->row)
            return NOT_PLAIN;
        if (page[1] == DATA_PAGE)
            failed = read_data(column, page[2], about, body);
        else if (page[1] == DATA_PAGE_V2)
            failed = read_data_v2(column, page[2], about, body);
        else
            failed = pages ? NOT_PLAIN : read_dictionary(column, page[2], about, body);
        if (failed)
            return failed;
        pages = 1;
    }
    return left(&column->chunk) ? NOT_PLAIN : 0;
}

/* ------------------------------------------------------------------ Python */

/* The dictionary as (offsets, texts), both bytes. */
static PyObject *dictionary_of(const Column *column)
{
    Py_ssize_t count = column->entries, total = 0;
    for (Py_ssize_t at = 0; at < count; at++)
        total += word_of_4(column->texts[at]);
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
    PyObject *texts = PyBytes_FromStringAndSize(NULL, total);
    if (!offsets || !texts) {
        Py_XDECREF(offsets);
        Py_XDECREF(texts);
        return NULL;
    }
    char *ends = PyBytes_AsString(offsets), *bytes = PyBytes_AsString(texts);
    int32_t used = 0; /* pages are shorter than LONGEST */
    for (Py_ssize_t at = 0; at <= count; at++) {
        memcpy(ends + at * (Py_ssize_t)sizeof used, &used, sizeof used);
        if (at < count) {
            uint32_t size = word_of_4(column->texts[at]);
            memcpy(bytes + used, column->texts[at] + 4, size);
            used += (int32_t)size;
        }
    }
    return Py_BuildValue("(nNN)", column->missing, offsets, texts);
}

static PyObject *answer_of(const Column *column, int failed)
{
    if (failed == NO_MEMORY)
        return PyErr_NoMemory();
    if (failed)
        Py_RETURN_NONE;
    if (column->kind == CODES)
        return dictionary_of(column);
    if (column->kind == TEXTS)
        return Py_BuildValue("(nn)", column->missing, column->used);
    return PyLong_FromSsize_t(column->missing);
}

/* What a list says of each chunk. */
typedef struct {
    Py_buffer bytes;
    int is_packed, is_optional;
    Py_ssize_t rows;
} Chunk;

/* Those of the list, of which *count have buffers that are to be released; NULL: an exception is set. */
static Chunk *chunks_of(PyObject *list, Py_ssize_t *count)
{
    Py_ssize_t size = PyList_Size(list);
    Chunk *chunks = calloc((size_t)size + 1, sizeof(Chunk));
    if (!chunks)
        PyErr_NoMemory();
    for (*count = 0; chunks && *count < size; ++*count) {
        Chunk *each = &chunks[*count];
        PyObject *said = PyList_GetItem(list, *count);
        if (!said || !PyArg_ParseTuple(said, "y*ppn", &each->bytes, &each->is_packed, &each->is_optional, &each->rows))
            break;
    }
    return chunks;
}

/* Reads all chunks; 0, NOT_PLAIN or NO_MEMORY. */
static int read_column(Column *column, const Chunk *chunks, Py_ssize_t count)
{
    int failed = 0;
    if (column->kind == TEXTS)
        column->codes[0] = 0;
    if (column->kind == CODES && count != 1)
        return NOT_PLAIN; /* each has a dictionary of its own */
    for (Py_ssize_t at = 0; at < count && !failed; at++) {
        const Chunk *each = &chunks[at];
        column->chunk = (Bytes){each->bytes.buf, (const uint8_t *)each->bytes.buf + each->bytes.len};
        column->is_packed = each->is_packed;
        column->is_optional = each->is_optional;
        column->rows += each->rows;
        failed = read_chunk(column);
    }
    return failed;
}

static PyObject *read_as(int kind, PyObject *arguments)
{
    Py_buffer target, valid = {.obj = NULL}, data = {.obj = NULL};
    PyObject *list, *bits, *texts = Py_None, *answer = NULL;
    Py_ssize_t count = 0, rows = 0;
    if (!PyArg_ParseTuple(arguments, kind == TEXTS ? "O!w*OO" : "O!w*O", &PyList_Type, &list, &target, &bits, &texts))
        return NULL;
    Chunk *chunks = chunks_of(list, &count);
    Py_ssize_t room = kind == WORDS ? target.len / 8 : target.len / 4 - (kind == TEXTS);
    int fits = room >= 0;
    for (Py_ssize_t at = 0; at < count && fits; at++) {
        fits = chunks[at].rows >= 0 && chunks[at].rows <= room - rows && (!chunks[at].is_optional || bits != Py_None);
        rows += chunks[at].rows;
    }
    if (chunks && !PyErr_Occurred() && (bits == Py_None || PyObject_GetBuffer(bits, &valid, PyBUF_WRITABLE) == 0) &&
        (texts == Py_None || PyObject_GetBuffer(texts, &data, PyBUF_WRITABLE) == 0)) {
        if (!fits || rows > LONGEST || (valid.obj && valid.len < (rows + 7) / 8))
            PyErr_SetString(PyExc_ValueError, "the buffers are too short for these rows");
        else {
            Column column = {.kind = kind,
                             .words = target.buf,
                             .codes = target.buf,
                             .valid = valid.obj ? valid.buf : NULL,
                             .data = data.buf,
                             .behind = !data.obj ? 0 : data.len < LONGEST ? data.len : LONGEST - 1};
            int failed;
            Py_BEGIN_ALLOW_THREADS
            if (valid.obj)
                memset(valid.buf, 0, (size_t)(rows + 7) / 8);
            failed = read_column(&column, chunks, count);
            Py_END_ALLOW_THREADS
            answer = answer_of(&column, failed);
            free(column.dictionary_room.bytes);
            free(column.page_room.bytes);
            free(column.codes_room.bytes);
            free(column.texts);
        }
    }
    for (Py_ssize_t at = 0; chunks && at < count; at++)
        PyBuffer_Release(&chunks[at].bytes);
    free(chunks);
    if (data.obj)
        PyBuffer_Release(&data);
    if (valid.obj)
        PyBuffer_Release(&valid);
    PyBuffer_Release(&target);
    return answer;
}

static PyObject *footer(PyObject *module, PyObject *arguments)
{
    Py_buffer text;
    Py_ssize_t columns, spans[4];
    if (!PyArg_ParseTuple(arguments, "y*n", &text, &columns))
        return NULL;
    Bytes bytes = {text.buf, (const uint8_t *)text.buf + text.len};
    Found found = {NULL, 0, 0};
    PyObject *answer = NULL;
    if (columns > 0 && read_footer(&bytes, &found, columns, spans))
        answer = Py_BuildValue("(y#(nnnn))", found.count ? (const char *)found.numbers : "",
                               found.count * (Py_ssize_t)sizeof(int64_t), spans[0], spans[1], spans[2], spans[3]);
    else
        answer = Py_NewRef(Py_None);
    free(found.numbers);
    PyBuffer_Release(&text);
    return answer;
}

static PyObject *page(PyObject *module, PyObject *arguments)
{
    Py_buffer text;
    int32_t said[FIELDS], about[FIELDS];
    if (!PyArg_ParseTuple(arguments, "y*", &text))
        return NULL;
    Bytes bytes = {text.buf, (const uint8_t *)text.buf + text.len};
    int failed = read_header(&bytes, said, about), is_dictionary = said[1] == DICTIONARY_PAGE;
    int encoding = said[1] == DATA_PAGE_V2 ? about[4] : about[2];
    int by_codes = !is_dictionary && is_by_codes(encoding);
    PyObject *answer;
    if (failed || !(is_dictionary || by_codes || encoding == PLAIN))
        answer = Py_NewRef(Py_None);
    else
        answer = Py_BuildValue("(niiiOO)", bytes.at - (const uint8_t *)text.buf, said[3], said[2], about[1],
                               is_dictionary ? Py_True : Py_False, by_codes ? Py_True : Py_False);
    PyBuffer_Release(&text);
    return answer;
}

static PyObject *words(PyObject *module, PyObject *arguments)
{
    return read_as(WORDS, arguments);
}

static PyObject *short_words(PyObject *module, PyObject *arguments)
{
    return read_as(SHORT_WORDS, arguments);
}

static PyObject *codes(PyObject *module, PyObject *arguments)
{
    return read_as(CODES, arguments);
}

static PyObject *texts(PyObject *module, PyObject *arguments)
{
    return read_as(TEXTS, arguments);
}

static PyMethodDef METHODS[] = {
    {"footer", footer, METH_VARARGS,
     "footer(text, columns): (of each row group its rows, then START to DELTA of each column, as words of 64 bits; where the "
     "schema and the writer's own words stand), or None."},
    {"page", page, METH_VARARGS,
     "page(text): of the page whose header the text begins with (bytes of the header, bytes behind it, how many they are "
     "unpacked, rows, whether it is a dictionary, whether its values stand in one), or None."},
    {"words", words, METH_VARARGS,
     "words([(chunk, is_packed, is_optional, rows)], values, valid): fill the buffers; how many are missing, or None."},
    {"short_words", short_words, METH_VARARGS, "short_words(chunks, values, valid): the same, of 32 bits."},
    {"codes", codes, METH_VARARGS,
     "codes(chunks, codes, valid): the same of one chunk, and its dictionary: (missing, offsets, texts), or None."},
    {"texts", texts, METH_VARARGS,
     "texts(chunks, offsets, valid, data): the same, of texts: (missing, bytes of data that they need), or None. If "
     "data is shorter than that, its contents are undefined."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_columns", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__columns(void)
{
    fill_checksums();
    return PyModuleDef_Init(&MODULE);
}
