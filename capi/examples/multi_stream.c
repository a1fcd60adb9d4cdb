/*
 * Two streams of one capture share memory: who takes over whose place, when, and why not before.
 * Runs without a GPU. From the repository's root:
 *
 *     cargo xtask install --prefix /tmp/regraph
 *     export PKG_CONFIG_PATH=/tmp/regraph/lib/pkgconfig LD_LIBRARY_PATH=/tmp/regraph/lib
 *     cc -std=c99 capi/examples/multi_stream.c $(pkg-config --cflags --libs regraph) -o multi_stream
 *     ./multi_stream
 *
 * On a GPU the engine comes from regraph_engine_create_cuda(), and the regraph_sim calls are the CUDA
 * driver's own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <regraph.h>

#define MIB ((uint64_t)1 << 20)

/* Ends the program where a call fails. */
static void must(regraph_error error, const char *call) {
    if (error != REGRAPH_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, regraph_error_name(error), regraph_last_error_message());
        exit(EXIT_FAILURE);
    }
}
#define MUST(call) must(call, #call)

static void tell_out_of_memory(const regraph_out_of_memory *report, void *user_data) {
    int *times = (int *)user_data;
    *times += 1;
    printf("observer: %" PRIu64 " MiB asked for, the pool holds %" PRIu64 " of %" PRIu64 " MiB\n",
           report->requested / MIB, report->reserved / MIB, report->limit / MIB);
}

/* Says why the stream may not take what is free. */
static void explain(const regraph_engine *engine, regraph_pool pool, regraph_stream stream) {
    regraph_explanation *explanation = NULL;
    size_t index;
    MUST(regraph_explain(engine, pool, stream, &explanation));
    for (index = 0; index < regraph_explanation_count(explanation); index++) {
        const regraph_free_range *range = regraph_explanation_get(explanation, index);
        if (range->refusal == REGRAPH_REFUSAL_MARKER) {
            printf("explain: %" PRIu64 " MiB at %#" PRIx64 " wait for node %p of stream %p\n",
                   range->bytes / MIB, range->address, (void *)range->marker, (void *)range->stream);
        } else if (range->refusal != REGRAPH_REFUSAL_NONE) {
            printf("explain: %#" PRIx64 ": %s\n", range->address, range->text);
        }
    }
    regraph_explanation_destroy(explanation);
}

int main(void) {
    regraph_config *config = NULL;
    regraph_engine *engine = NULL;
    regraph_pool pool;
    regraph_stream a, b;
    regraph_capture_id capture;
    regraph_block first, second, third;
    regraph_graph graph;
    regraph_capture_report report;
    regraph_executable executable;
    regraph_statistics statistics;
    regraph_error error;
    int refused = 0;

    printf("regraph %s\n", regraph_version_string());
    MUST(regraph_config_create(&config));
    MUST(regraph_config_set_settings(config, "memory_limit_mb:4096"));
    MUST(regraph_engine_create_sim(0, config, &engine));
    regraph_config_destroy(config);
    MUST(regraph_observe_out_of_memory(engine, tell_out_of_memory, &refused));
    MUST(regraph_pool_create(engine, 64 * MIB, &pool));
    MUST(regraph_sim_create_stream(engine, &a));
    MUST(regraph_sim_create_stream(engine, &b));

    MUST(regraph_sim_begin_capture(engine, a)); /* cuStreamBeginCapture */
    MUST(regraph_begin_capture(engine, pool, a, &capture));
    MUST(regraph_allocate(engine, pool, 4 * MIB, a, &first));
    MUST(regraph_sim_launch(engine, a, false)); /* writes it */
    MUST(regraph_sim_wait(engine, b, a));       /* the fork */
    MUST(regraph_sim_launch(engine, b, false)); /* reads it */
    MUST(regraph_record_stream(engine, first.id, b));
    MUST(regraph_free(engine, first.id));

    explain(engine, pool, a); /* b may still be reading */
    MUST(regraph_allocate(engine, pool, 4 * MIB, a, &second));
    printf("second: %s\n", second.address == first.address ? "the first's place" : "new memory");
    MUST(regraph_sim_launch(engine, a, false));

    MUST(regraph_sim_wait(engine, a, b)); /* the join: b has read it */
    MUST(regraph_allocate(engine, pool, 4 * MIB, a, &third));
    printf("third: %s\n", third.address == first.address ? "the first's place" : "new memory");
    MUST(regraph_sim_launch(engine, a, false));

    /* A request that cannot be met leaves the capture alive. */
    error = regraph_allocate(engine, pool, 1024 * MIB, a, &first);
    if (error != REGRAPH_ERROR_OUT_OF_MEMORY) {
        fprintf(stderr, "1 GiB of a pool of 64 MiB: %s\n", regraph_error_name(error));
        return EXIT_FAILURE;
    }
    printf("%s: %.60s...\n", regraph_error_name(error), regraph_last_error_message());
    printf("told %d time\n", refused);

    MUST(regraph_sim_end_capture(engine, a, &graph)); /* cuStreamEndCapture */
    MUST(regraph_end_capture(engine, capture, graph, &report));
    printf("graph: %" PRIu64 " nodes, %" PRIu64 " blocks, %s\n", report.nodes, report.blocks,
           report.verified ? "verified" : "not verified");

    MUST(regraph_sim_instantiate(engine, graph, &executable));
    MUST(regraph_sim_launch_graph(engine, executable, a));
    MUST(regraph_sim_synchronize(engine));

    MUST(regraph_get_statistics(engine, &statistics));
    printf("statistics: %" PRIu64 " MiB reserved, %" PRIu64 " MiB allocated, %" PRIu64 " MiB at most, %" PRIu64
           " out of memory\n",
           statistics.all.reserved_bytes.current / MIB, statistics.all.allocated_bytes.current / MIB,
           statistics.all.allocated_bytes.peak / MIB, statistics.counts.num_ooms);

    MUST(regraph_free(engine, second.id));
    MUST(regraph_free(engine, third.id));
    MUST(regraph_sim_destroy_executable(engine, executable));
    MUST(regraph_sim_destroy_graph(engine, graph));
    MUST(regraph_release_graph(engine, report.graph));
    MUST(regraph_pool_destroy(engine, pool));
    regraph_engine_destroy(engine);
    return EXIT_SUCCESS;
}
