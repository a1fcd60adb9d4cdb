/* Graphs that the library instantiates and launches, their order, and the memory that they need. */
#include "check.h"

typedef struct {
    regraph_engine *engine;
    regraph_pool pool, other;
    regraph_stream a, b;
} bench;

static bench begin(const char *settings) {
    bench it;
    regraph_config *config = NULL;
    memset(&it, 0, sizeof it);
    OK(regraph_config_create(&config));
    OK(regraph_config_set_settings(config, settings));
    OK(regraph_engine_create_sim(1024 * MIB, config, &it.engine));
    regraph_config_destroy(config);
    OK(regraph_pool_create(it.engine, REGRAPH_NO_LIMIT, &it.pool));
    OK(regraph_pool_create(it.engine, REGRAPH_NO_LIMIT, &it.other));
    OK(regraph_sim_create_stream(it.engine, &it.a));
    OK(regraph_sim_create_stream(it.engine, &it.b));
    return it;
}

/* Two blocks in turn on one stream. */
static void work(bench it) {
    regraph_block block;
    int i;
    for (i = 0; i < 2; i++) {
        OK(regraph_allocate(it.engine, it.pool, 4 * MIB, it.a, &block));
        OK(regraph_sim_launch(it.engine, it.a, false));
        OK(regraph_free(it.engine, block.id));
    }
}

static regraph_graph_id captured(bench it) {
    regraph_capture_id capture;
    regraph_capture_report report;
    OK(regraph_begin_stream_capture(it.engine, it.pool, it.a, REGRAPH_CAPTURE_THREAD_LOCAL, &capture));
    work(it);
    OK(regraph_finish_stream_capture(it.engine, capture, &report));
    CHECK(report.capture == capture && report.blocks == 2 && report.nodes == 2 && report.verified);
    return report.graph;
}

/* A graph whose CUDA calls are the caller's. */
static regraph_graph_id owned_by_the_caller(bench it, regraph_graph *graph, regraph_executable *executable) {
    regraph_capture_id capture;
    regraph_capture_report report;
    OK(regraph_sim_begin_capture(it.engine, it.a));
    OK(regraph_begin_capture(it.engine, it.pool, it.a, &capture));
    work(it);
    OK(regraph_sim_end_capture(it.engine, it.a, graph));
    OK(regraph_end_capture(it.engine, capture, *graph, &report));
    OK(regraph_sim_instantiate(it.engine, *graph, executable));
    return report.graph;
}

static uint64_t used(bench it) {
    uint64_t bytes = 0;
    OK(regraph_empty_cache(it.engine, NULL));
    OK(regraph_sim_used_bytes(it.engine, &bytes));
    return bytes;
}

static void graphs_share_executables(void) {
    bench it = begin("");
    regraph_engine *e = it.engine;
    regraph_executable_figures figures;
    regraph_graph_id first, second, third, none;
    regraph_graph handle = NULL;
    regraph_executable executable = NULL;
    uint64_t bytes = 1;
    OK(regraph_pool_keep_executables(e, it.pool, MIB, REGRAPH_SHARE_SAME_FUNCTIONS));
    first = captured(it);
    second = captured(it);
    OK(regraph_pool_get_executables(e, it.pool, &figures));
    CHECK(figures.graphs == 2 && figures.graph_nodes == 4 && figures.executables == 0);
    OK(regraph_graph_get_handles(e, first, &handle, &executable));
    CHECK(handle != NULL && executable == NULL);
    OK(regraph_launch_graph(e, first, it.a));
    OK(regraph_graph_prepare(e, second, it.b));
    OK(regraph_launch_graph(e, second, it.b));
    OK(regraph_graph_pin(e, second, true));
    OK(regraph_graph_foreseen_bytes(e, second, &bytes));
    CHECK(bytes == 0); /* a simulated executable takes none */
    OK(regraph_pool_get_executables(e, it.pool, &figures));
    CHECK(figures.executables == 1 && figures.made == 1 && figures.updates == 1 && figures.nodes == 2);
    CHECK(figures.evicted == 0 && figures.refused == 0 && figures.bytes == 0 && figures.counted == 0);

    /* A graph that the caller captured. */
    third = owned_by_the_caller(it, &handle, &executable);
    IS(REGRAPH_ERROR_NOT_INSTANTIATED, regraph_graph_prepare(e, third, it.a));
    IS(REGRAPH_ERROR_NOT_INSTANTIATED, regraph_graph_pin(e, third, true));
    OK(regraph_sim_destroy_executable(e, executable));
    OK(regraph_graph_take(e, third, handle, it.a));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_graph_take(e, third, handle, it.a));
    OK(regraph_launch_graph(e, third, it.a));
    OK(regraph_pool_release_executables(e, it.pool, &bytes));
    OK(regraph_pool_get_executables(e, it.pool, &figures));
    CHECK(figures.graphs == 3 && figures.executables == 1 && figures.updates == 2);
    OK(regraph_graph_pin(e, second, false));
    OK(regraph_pool_release_executables(e, it.pool, NULL));
    OK(regraph_pool_get_executables(e, it.pool, &figures));
    CHECK(figures.executables == 0 && figures.evicted == 1);

    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_pool_keep_executables(e, it.pool, MIB, 3));
    memset(&none, 0, sizeof none);
    IS(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_graph_take(e, none, handle, it.a));
    IS(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_graph_foreseen_bytes(e, none, &bytes));
    OK(regraph_pool_keep_executables(e, it.pool, REGRAPH_NO_LIMIT, REGRAPH_SHARE_ANY_FUNCTIONS));
    OK(regraph_pool_keep_executables(e, it.pool, REGRAPH_NO_LIMIT, REGRAPH_SHARE_NONE));
    OK(regraph_launch_graph(e, first, it.a));
    OK(regraph_release_graph(e, first));
    OK(regraph_release_graph(e, second));
    OK(regraph_release_graph(e, third));
    OK(regraph_sim_synchronize(e));
    OK(regraph_pool_destroy(e, it.pool));
    IS(REGRAPH_ERROR_DRIVER, regraph_sim_destroy_graph(e, handle)); /* it is destroyed */
    regraph_engine_destroy(e);
}

static void the_library_owns_a_graph(void) {
    bench it = begin("");
    regraph_engine *e = it.engine;
    regraph_graph_id graph = captured(it);
    regraph_graph handle = NULL;
    regraph_executable executable = NULL;
    uint64_t bytes = 0;
    OK(regraph_launch_graph(e, graph, it.a));
    OK(regraph_graph_get_handles(e, graph, &handle, &executable));
    CHECK(handle != NULL && executable != NULL);
    OK(regraph_graph_get_handles(e, graph, NULL, NULL));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_launch_executable(e, graph, executable, it.a));
    SAYS("regraph_launch_graph");

    OK(regraph_graph_minimum_bytes(e, graph, &bytes));
    CHECK(bytes == 4 * MIB);
    OK(regraph_graph_forget_journal(e, graph));
    IS(REGRAPH_ERROR_NO_JOURNAL, regraph_graph_minimum_bytes(e, graph, &bytes));
    SAYS("regraph_graph_forget_journal() has freed the journal");

    {
        regraph_pool named;
        regraph_block block;
        OK(regraph_pool_create_named(e, "activations", MIB, &named));
        IS(REGRAPH_ERROR_OUT_OF_MEMORY, regraph_allocate(e, named, 2 * MIB, it.a, &block));
        SAYS("activations");
        OK(regraph_pool_destroy(e, named));
        OK(regraph_pool_create_named(e, NULL, REGRAPH_NO_LIMIT, &named));
        OK(regraph_pool_destroy(e, named));
        IS(REGRAPH_ERROR_INVALID_TEXT, regraph_pool_create_named(e, "\xff", MIB, &named));
        IS(REGRAPH_ERROR_NULL, regraph_pool_create_named(e, "x", MIB, NULL));
        IS(REGRAPH_ERROR_NULL, regraph_pool_create_named(NULL, "x", MIB, &named));
    }

    /* Its memory stays until its launch has completed. */
    OK(regraph_release_graph(e, graph));
    IS(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_launch_graph(e, graph, it.a));
    IS(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_release_graph(e, graph));
    IS(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_graph_minimum_bytes(e, graph, &bytes));
    IS(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_graph_forget_journal(e, graph));
    IS(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_graph_get_handles(e, graph, NULL, NULL));
    CHECK(used(it) == 4 * MIB);
    IS(REGRAPH_ERROR_POOL_IN_USE, regraph_pool_destroy(e, it.pool));
    OK(regraph_sim_synchronize(e));
    OK(regraph_pool_destroy(e, it.pool));
    CHECK(used(it) == 0);
    IS(REGRAPH_ERROR_DRIVER, regraph_sim_destroy_graph(e, handle)); /* it is destroyed */
    regraph_engine_destroy(e);
}

/* What stream `a` freed goes to stream `b` when `a` has done its work, and that is asked for by
   completing `b` alone: so only if the launch on `b` waits for the one on `a`. */
static bool second_waits_for_first(bench it, regraph_error (*launch)(bench, int, regraph_stream)) {
    regraph_block first, second;
    bool same;
    OK(regraph_allocate(it.engine, it.other, 4 * MIB, it.a, &first));
    OK(regraph_sim_launch(it.engine, it.a, false));
    OK(regraph_free(it.engine, first.id));
    OK(regraph_mark_stream(it.engine, it.a));
    OK(launch(it, 0, it.a));
    OK(launch(it, 1, it.b));
    OK(regraph_sim_synchronize_stream(it.engine, it.b));
    OK(regraph_allocate(it.engine, it.other, 4 * MIB, it.b, &second));
    same = second.address == first.address;
    OK(regraph_free(it.engine, second.id));
    OK(regraph_sim_synchronize(it.engine));
    return same;
}

static regraph_graph_id graphs[2];
static regraph_graph handles[2];
static regraph_executable executables[2];

static regraph_error by_graph(bench it, int which, regraph_stream stream) {
    return regraph_launch_graph(it.engine, graphs[which], stream);
}

static regraph_error by_executable(bench it, int which, regraph_stream stream) {
    return regraph_launch_executable(it.engine, graphs[which], executables[which], stream);
}

static regraph_error without_order(bench it, int which, regraph_stream stream) {
    return regraph_sim_launch_graph(it.engine, executables[which], stream);
}

static void graphs_of_a_pool_never_run_at_once(void) {
    bench it = begin("");
    regraph_engine *e = it.engine;
    regraph_capture_id capture;
    int i;
    for (i = 0; i < 2; i++) graphs[i] = captured(it);
    CHECK(used(it) == 4 * MIB); /* they share memory */
    CHECK(second_waits_for_first(it, by_graph));
    for (i = 0; i < 2; i++) OK(regraph_release_graph(e, graphs[i]));

    for (i = 0; i < 2; i++) graphs[i] = owned_by_the_caller(it, &handles[i], &executables[i]);
    CHECK(second_waits_for_first(it, by_executable));
    CHECK(!second_waits_for_first(it, without_order));
    IS(REGRAPH_ERROR_NOT_INSTANTIATED, regraph_launch_graph(e, graphs[0], it.a));
    IS(REGRAPH_ERROR_NOT_INSTANTIATED, regraph_graph_get_handles(e, graphs[0], NULL, NULL));

    /* The inputs of a graph are filled after its last launch. */
    OK(by_executable(it, 0, it.a));
    OK(regraph_pool_follow(e, it.pool, it.b));
    OK(regraph_pool_synchronize(e, it.pool));

    /* What the graphs do not keep is lent between launches. */
    {
        regraph_block block;
        uint64_t bytes = 1, before = used(it);
        OK(regraph_pool_borrow(e, it.pool, 2 * MIB, it.b, &block));
        OK(regraph_pool_get_lent_bytes(e, it.pool, &bytes));
        CHECK(bytes == 2 * MIB && used(it) == before);
        OK(regraph_sim_launch(e, it.b, false));
        IS(REGRAPH_ERROR_BLOCKS_LENT, by_executable(it, 0, it.a));
        SAYS("free them first");
        OK(regraph_free(e, block.id));
        OK(by_executable(it, 0, it.a));
        OK(regraph_pool_get_lent_bytes(e, it.pool, &bytes));
        CHECK(bytes == 0);
    }

    /* Not on a stream that captures, and not without memory. */
    OK(regraph_begin_stream_capture(e, it.other, it.b, REGRAPH_CAPTURE_RELAXED, &capture));
    IS(REGRAPH_ERROR_CAPTURING, by_executable(it, 0, it.b));
    SAYS("regraph_launch_executable(): ");
    NAMED(REGRAPH_ERROR_CAPTURING, regraph_pool_follow(e, it.pool, it.b));
    {
        regraph_block block;
        NAMED(REGRAPH_ERROR_CAPTURING, regraph_pool_borrow(e, it.pool, MIB, it.b, &block));
    }
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_end_capture(e, capture, handles[0], NULL));
    SAYS("regraph_finish_stream_capture");
    OK(regraph_abandon_capture(e, capture));
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_finish_stream_capture(e, capture, NULL));
    OK(by_executable(it, 0, it.b)); /* it captures no more */
    OK(regraph_pool_suspend(e, it.pool, NULL)); /* waits for the launch */
    IS(REGRAPH_ERROR_POOL_SUSPENDED, by_executable(it, 0, it.b));
    NAMED(REGRAPH_ERROR_POOL_SUSPENDED, regraph_pool_follow(e, it.pool, it.b));
    OK(regraph_pool_resume(e, it.pool, NULL));
    OK(by_executable(it, 0, it.b));
    IS(REGRAPH_ERROR_PER_THREAD_STREAM, by_executable(it, 0, (regraph_stream)(uintptr_t)2));
    OK(regraph_sim_synchronize(e));
    for (i = 0; i < 2; i++) {
        OK(regraph_release_graph(e, graphs[i]));
        OK(regraph_sim_destroy_executable(e, executables[i]));
        OK(regraph_sim_destroy_graph(e, handles[i]));
    }
    OK(regraph_pool_destroy(e, it.pool));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_follow(e, it.pool, it.a));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_synchronize(e, it.pool));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_release(e, it.pool));
    IS(REGRAPH_ERROR_UNKNOWN_POOL,
       regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_GLOBAL, &capture));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_begin_stream_capture(e, it.other, it.a, 3, &capture));
    regraph_engine_destroy(e);
}

/* Memory that is taken apart as it comes and lies close together the second time. */
static uint64_t reserved_after(bool twice) {
    static const uint64_t sizes[] = {6, 10, 4, 14, 8, 2};
    bench it = begin("expandable_segments:True");
    regraph_engine *e = it.engine;
    regraph_capture_id capture, first;
    regraph_capture_report report;
    regraph_statistics statistics;
    regraph_block live[6], last;
    uint64_t least = 0, again = 0;
    int round, i;
    OK(regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_THREAD_LOCAL, &capture));
    first = capture;
    for (round = 0; round < (twice ? 2 : 1); round++) {
        if (round == 1) OK(regraph_repeat_stream_capture(e, &capture));
        for (i = 0; i < 6; i++) {
            OK(regraph_allocate(e, it.pool, sizes[i] * MIB, it.a, &live[i]));
            OK(regraph_sim_launch(e, it.a, false));
        }
        /* Every second one goes: what is left is not wide enough for the last. */
        for (i = 0; i < 6; i += 2) OK(regraph_free(e, live[i].id));
        OK(regraph_allocate(e, it.pool, 18 * MIB, it.a, &last));
        OK(regraph_sim_launch(e, it.a, false));
        for (i = 1; i < 6; i += 2) OK(regraph_free(e, live[i].id));
        OK(regraph_free(e, last.id));
    }
    OK(regraph_capture_minimum_bytes(e, capture, &least));
    OK(regraph_finish_stream_capture(e, capture, &report));
    CHECK((capture != first) == twice);
    CHECK(report.blocks == 7);
    CHECK(report.layout_blocks == (twice ? 7u : 0u) && report.layout_followed == report.layout_blocks);
    OK(regraph_graph_minimum_bytes(e, report.graph, &again));
    CHECK(least == again && least == 44 * MIB);
    OK(regraph_launch_graph(e, report.graph, it.a));
    OK(regraph_empty_cache(e, NULL));
    OK(regraph_pool_get_statistics(e, it.pool, &statistics));
    regraph_engine_destroy(e); /* the library's graph goes with it */
    return statistics.all.reserved_bytes.current;
}

static void captured_twice(void) {
    uint64_t once = reserved_after(false), twice = reserved_after(true);
    CHECK(once == 62 * MIB);
    CHECK(twice == 44 * MIB);
}

/* A pool that is given up goes with what lies in it. */
static void a_pool_is_given_up(void) {
    bench it = begin("");
    regraph_engine *e = it.engine;
    regraph_graph_id graph = captured(it);
    regraph_capture_id capture;
    regraph_capture_report report;
    regraph_graph captured_graph;
    regraph_pool pools[2];
    regraph_block block;
    int i, j;
    OK(regraph_allocate(e, it.pool, 4 * MIB, it.a, &block));
    OK(regraph_pool_release(e, it.pool));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_release(e, it.pool));
    OK(regraph_launch_graph(e, graph, it.a));
    OK(regraph_sim_synchronize(e));
    OK(regraph_free(e, block.id));
    CHECK(used(it) == 4 * MIB); /* the graph's */
    OK(regraph_release_graph(e, graph));
    CHECK(used(it) == 0);
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_destroy(e, it.pool));
    /* A capture keeps the pools that it uses, announced or not, until it has come to a graph or to nothing. */
    for (i = 0; i < 4; i++) {
        for (j = 0; j < 2; j++) OK(regraph_pool_create(e, REGRAPH_NO_LIMIT, &pools[j]));
        OK(regraph_sim_begin_capture(e, it.a));
        if (i == 0) {
            OK(regraph_allocate(e, pools[0], 4 * MIB, it.a, &block));
            OK(regraph_free(e, block.id));
        }
        OK(regraph_begin_capture(e, pools[1], it.a, &capture));
        if (i == 0) OK(regraph_begin_capture(e, pools[0], it.a, &capture));
        OK(regraph_allocate(e, pools[1], 4 * MIB, it.a, &block));
        OK(regraph_sim_launch(e, it.a, false));
        OK(regraph_free(e, block.id));
        for (j = 0; j < 2; j++) OK(regraph_pool_release(e, pools[j]));
        IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_begin_capture(e, pools[1], it.a, &capture));
        OK(regraph_sim_end_capture(e, it.a, &captured_graph));
        if (i < 2) {
            OK(regraph_end_capture(e, capture, captured_graph, &report));
        } else {
            OK(regraph_close_capture(e, capture, captured_graph));
        }
        if (i == 2) OK(regraph_capture_verdict(e, capture, &report));
        if (i == 3) {
            OK(regraph_abandon_capture(e, capture));
        } else {
            CHECK(used(it) > 0);
            OK(regraph_release_graph(e, report.graph));
        }
        OK(regraph_empty_cache(e, NULL));
        CHECK(used(it) == 0);
    }
    regraph_engine_destroy(e);
}

/* A stream outside the capture would get a block that is not the graph's. */
static void blocks_of_a_capture(void) {
    bench it = begin("");
    regraph_engine *e = it.engine;
    regraph_capture_id capture;
    regraph_capture_report report;
    regraph_block block, fixed;
    OK(regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_RELAXED, &capture));
    IS(REGRAPH_ERROR_NOT_CAPTURING, regraph_capture_allocate(e, capture, 4 * MIB, it.b, &block));
    IS(REGRAPH_ERROR_NOT_CAPTURING, regraph_capture_allocate_fixed(e, capture, 4 * MIB, it.b, &block));
    OK(regraph_capture_allocate(e, capture, 4 * MIB, it.a, &block));
    OK(regraph_capture_allocate_fixed(e, capture, 4 * MIB, it.a, &fixed));
    CHECK(block.address != fixed.address);
    OK(regraph_sim_launch(e, it.a, false));
    OK(regraph_free(e, block.id));
    OK(regraph_sim_wait(e, it.b, it.a)); /* it joins */
    OK(regraph_capture_allocate(e, capture, 4 * MIB, it.b, &block));
    OK(regraph_sim_launch(e, it.b, false));
    OK(regraph_sim_wait(e, it.a, it.b));
    IS(REGRAPH_ERROR_ZERO_BYTES, regraph_capture_allocate(e, capture, 0, it.a, &fixed));
    IS(REGRAPH_ERROR_NULL, regraph_capture_allocate(e, capture, 1, it.a, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_capture_allocate_fixed(NULL, capture, 1, it.a, &fixed));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_write_trace(e, capture, it.b, "x")); /* it only joined */
    OK(regraph_finish_stream_capture(e, capture, &report));
    CHECK(report.blocks == 3);
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_capture_allocate(e, capture, 1, it.a, &fixed));
    OK(regraph_free(e, block.id));
    regraph_engine_destroy(e); /* one block is never freed */
}

static void captures_that_fail(void) {
    bench it = begin("check:False");
    regraph_engine *e = it.engine;
    regraph_capture_id capture, before;
    regraph_block block;
    regraph_graph_id graph;
    uint64_t bytes = 0;
    OK(regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_GLOBAL, &capture));
    before = capture;
    IS(REGRAPH_ERROR_NO_JOURNAL, regraph_capture_minimum_bytes(e, capture, &bytes));
    IS(REGRAPH_ERROR_NO_JOURNAL, regraph_repeat_stream_capture(e, &capture));
    CHECK(capture == before); /* and it goes on */
    IS(REGRAPH_ERROR_DRIVER,
       regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_GLOBAL, &before));
    OK(regraph_allocate(e, it.pool, 4 * MIB, it.a, &block));
    OK(regraph_sim_launch(e, it.a, false));
    OK(regraph_sim_invalidate_capture(e, it.a));
    NAMED(REGRAPH_ERROR_CAPTURE_INVALIDATED, regraph_finish_stream_capture(e, capture, NULL));
    SAYS("has ended without a graph");
    OK(regraph_free(e, block.id));
    capture = 999;
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_repeat_stream_capture(e, &capture));
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_capture_minimum_bytes(e, capture, &bytes));

    /* The stream captures again after that. Without a report the graph is the engine's. */
    OK(regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_GLOBAL, &capture));
    OK(regraph_finish_stream_capture(e, capture, NULL));
    /* An engine is destroyed with a capture under way. */
    OK(regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_GLOBAL, &capture));
    memset(&graph, 0xff, sizeof graph);
    IS(REGRAPH_ERROR_NULL, regraph_begin_stream_capture(NULL, it.pool, it.b, 0, &capture));
    IS(REGRAPH_ERROR_NULL, regraph_begin_stream_capture(e, it.pool, it.b, 0, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_repeat_stream_capture(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_repeat_stream_capture(NULL, &capture));
    IS(REGRAPH_ERROR_NULL, regraph_finish_stream_capture(NULL, capture, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_launch_graph(NULL, graph, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_launch_executable(NULL, graph, NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_launch_executable(e, graph, NULL, it.a));
    SAYS("`executable` is null");
    IS(REGRAPH_ERROR_NULL, regraph_graph_take(e, graph, NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_end_capture(e, capture, NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_close_capture(e, capture, NULL));
    SAYS("`graph` is null");
    IS(REGRAPH_ERROR_NULL, regraph_graph_get_handles(NULL, graph, NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_graph_minimum_bytes(NULL, graph, &bytes));
    IS(REGRAPH_ERROR_NULL, regraph_graph_minimum_bytes(e, graph, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_capture_minimum_bytes(NULL, capture, &bytes));
    IS(REGRAPH_ERROR_NULL, regraph_capture_minimum_bytes(e, capture, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_graph_forget_journal(NULL, graph));
    IS(REGRAPH_ERROR_NULL, regraph_pool_release(NULL, it.pool));
    IS(REGRAPH_ERROR_NULL, regraph_pool_follow(NULL, it.pool, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_pool_synchronize(NULL, it.pool));
    regraph_engine_destroy(e);
}

/* One call to the driver fails, each in turn. Returns whether one did. */
static bool with_a_failing_call(uint64_t skip) {
    bench it = begin("");
    regraph_engine *e = it.engine;
    regraph_capture_id capture;
    regraph_capture_report report;
    regraph_block block;
    bool failed = true, captured = false;
    OK(regraph_sim_fail_driver_call(e, skip));
    if (regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_RELAXED, &capture) == REGRAPH_OK) {
        bool allocated = regraph_allocate(e, it.pool, 4 * MIB, it.a, &block) == REGRAPH_OK;
        if (allocated) {
            OK(regraph_sim_launch(e, it.a, false));
            OK(regraph_free(e, block.id));
        }
        if (regraph_repeat_stream_capture(e, &capture) == REGRAPH_OK) {
            if (regraph_finish_stream_capture(e, capture, &report) == REGRAPH_OK) {
                captured = true;
                failed = !allocated || regraph_launch_graph(e, report.graph, it.a) != REGRAPH_OK;
            }
        } else {
            regraph_abandon_capture(e, capture); /* unknown if it has ended */
        }
    }
    if (captured) OK(regraph_release_graph(e, report.graph));
    {
        regraph_capture_id under_way = 1;
        /* The failure may come here; it comes once. */
        if (regraph_sim_capture_info(e, it.a, &under_way, NULL) != REGRAPH_OK) {
            failed = true;
            OK(regraph_sim_capture_info(e, it.a, &under_way, NULL));
        }
        CHECK(under_way == 0);
    }
    OK(regraph_sim_synchronize(e));
    /* One that has not come by then comes in one of these. */
    if (regraph_pool_destroy(e, it.pool) != REGRAPH_OK) failed = true;
    if (regraph_empty_cache(e, NULL) != REGRAPH_OK) failed = true;
    if (!failed) CHECK(used(it) == 0);
    regraph_engine_destroy(e);
    return failed;
}

/* A graph that was released while it ran goes with the next launch of its pool, which holds another graph. */
static void a_launch_lets_released_graphs_go(void) {
    bench it = begin("");
    regraph_graph_id first = captured(it), second = captured(it);
    OK(regraph_launch_graph(it.engine, first, it.a));
    OK(regraph_release_graph(it.engine, first));
    OK(regraph_sim_synchronize(it.engine));
    OK(regraph_launch_graph(it.engine, second, it.a));
    OK(regraph_release_graph(it.engine, second));
    OK(regraph_sim_synchronize(it.engine));
    OK(regraph_pool_destroy(it.engine, it.pool));
    CHECK(used(it) == 0);
    regraph_engine_destroy(it.engine);
}

static void calls_to_the_driver_that_fail(void) {
    uint64_t skip;
    int failures = 0;
    for (skip = 0; skip < 80; skip++) failures += with_a_failing_call(skip);
    CHECK(failures > 10 && failures < 80);
}

int main(void) {
    the_library_owns_a_graph();
    graphs_share_executables();
    graphs_of_a_pool_never_run_at_once();
    captured_twice();
    a_pool_is_given_up();
    blocks_of_a_capture();
    captures_that_fail();
    a_launch_lets_released_graphs_go();
    calls_to_the_driver_that_fail();
    printf("%d checks\n", checks);
    return 0;
}
