/* Hashes of texts, by which the compiled parts find those that were seen before. */

#ifndef DISTCORE_TEXTHASH_H
#define DISTCORE_TEXTHASH_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#if !defined(__SIZEOF_INT128__) || !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "128-bit integers and little-endian words are needed; distcore works without this module"
#endif

#define ONES 0x0101010101010101u
#define HIGH 0x8080808080808080u

static inline uint64_t word_at(const char *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* The high bit of each byte of a word that is `byte`; above the lowest such byte others may be marked, too. */
static inline uint64_t bytes_of(uint64_t word, char byte)
{
    uint64_t x = word ^ (ONES * (unsigned char)byte);
    return (x - ONES) & ~x & HIGH;
}

/* The first eight bytes of a text, zeros behind a shorter one. end: of the memory that may be read. */
static inline uint64_t head_of(const char *text, uint32_t size, const char *end)
{
    uint64_t word = 0;
    if (size == 0)
        return 0;
    if (end - text < 8)
        memcpy(&word, text, size < 8 ? size : 8);
    else if (size >= 8)
        word = word_at(text);
    else
        word = word_at(text) << (64 - 8 * size) >> (64 - 8 * size);
    return word;
}

/* Random for each process, so that nobody can choose texts that all want the same slot. No result depends on it. */
static uint64_t SEED[2];

static inline uint64_t mixed(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)(a ^ SEED[0]) * (b ^ SEED[1]);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_of(uint64_t head, const char *text, uint32_t size)
{
    uint64_t hash = mixed(head, size);
    for (uint32_t at = 8; at < size; at += 8) {
        uint64_t word = 0;
        memcpy(&word, text + at, size - at < 8 ? size - at : 8);
        hash = mixed(word, hash);
    }
    return hash;
}

/* Once a process, however often a module is imported: tables that were made before go by it. */
static int choose_seed(void)
{
    static int chosen;
    if (chosen)
        return 1;
    PyObject *os = PyImport_ImportModule("os");
    PyObject *drawn = os ? PyObject_CallMethod(os, "urandom", "n", (Py_ssize_t)sizeof SEED) : NULL;
    const char *bytes = drawn ? PyBytes_AsString(drawn) : NULL;
    if (bytes)
        memcpy(SEED, bytes, sizeof SEED);
    chosen = bytes != NULL;
    Py_XDECREF(drawn);
    Py_XDECREF(os);
    return chosen;
}

#endif
