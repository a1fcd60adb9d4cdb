/* A process with engines forks while other threads are inside them: the child makes no call of these engines, and ends or
   starts another program; the parent goes on as before. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, FORKS = 40 };

typedef struct {
    regraph_engine *engine;
    regraph_pool pool;
    regraph_stream stream;
} bench;

static volatile int over = 0;

/* Allocates and frees until the parent has forked often enough. */
static void *work(void *with) {
    bench it = *(bench *)with;
    regraph_block block;
    uint64_t bytes = 1;
    while (!over) {
        /* Not by OK, which counts. */
        if (regraph_allocate(it.engine, it.pool, bytes, it.stream, &block) != REGRAPH_OK) abort();
        if (regraph_free(it.engine, block.id) != REGRAPH_OK) abort();
        bytes = (bytes * 7 + 513) % (8 * MIB) + 1;
    }
    return NULL;
}

int main(void) {
    bench each[THREADS];
    pthread_t threads[THREADS];
    regraph_statistics statistics;
    int i, status;
    OK(regraph_engine_create_sim(256 * MIB, NULL, &each[0].engine));
    OK(regraph_pool_create(each[0].engine, REGRAPH_NO_LIMIT, &each[0].pool));
    for (i = 0; i < THREADS; i++) {
        each[i] = each[0];
        OK(regraph_sim_create_stream(each[0].engine, &each[i].stream));
        CHECK(pthread_create(&threads[i], NULL, work, &each[i]) == 0);
    }
    for (i = 0; i < FORKS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* A child that waited for a lock of the parent's other threads would not end. */
            alarm(20);
            if (i % 2 == 0) execl("/bin/sh", "sh", "-c", "exit 0", (char *)NULL);
            _exit(EXIT_SUCCESS);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    over = 1;
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(regraph_pool_get_statistics(each[0].engine, each[0].pool, &statistics));
    CHECK(statistics.all.allocated_bytes.current == 0);
    regraph_engine_destroy(each[0].engine);
    printf("%d checks\n", checks);
    return EXIT_SUCCESS;
}
