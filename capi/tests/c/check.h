/* Checks that say where they fail. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <regraph.h>

static int checks = 0;

static void fail(const char *file, int line, const char *what, const char *found) {
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, what, found, regraph_last_error_message());
    exit(EXIT_FAILURE);
}

#define CHECK(condition)                                             \
    do {                                                             \
        checks++;                                                    \
        if (!(condition)) fail(__FILE__, __LINE__, #condition, "no"); \
    } while (0)

/* The call comes to this. */
#define IS(expected, call)                                                                  \
    do {                                                                                    \
        regraph_error error_ = (call);                                                      \
        checks++;                                                                           \
        if (error_ != (expected)) fail(__FILE__, __LINE__, #call, regraph_error_name(error_)); \
    } while (0)

/* The same, with a message that begins with the call's name. */
#define NAMED(expected, call)                                                              \
    do {                                                                                   \
        IS(expected, call);                                                                \
        CHECK(strncmp(regraph_last_error_message(), #call, strcspn(#call, "(") + 1) == 0); \
    } while (0)

#define OK(call) IS(REGRAPH_OK, call)
#define MIB ((uint64_t)1 << 20)

/* The latest message has this in it. */
#define SAYS(part) CHECK(strstr(regraph_last_error_message(), part) != NULL)

#endif
