/* Names of another engine, of what is gone, and that never were: every call that receives one says so,
   and nothing else happens. */
#include "check.h"

typedef struct {
    regraph_engine *engine;
    regraph_pool pool;
    regraph_stream stream;
    regraph_block block;
    regraph_capture_id capture;
    regraph_graph_id graph, captured;
    regraph_executable executable;
} bench;

/* One of everything, made by the same calls in every engine. */
static bench begin(void) {
    bench it;
    regraph_capture_id capture;
    regraph_capture_report report;
    regraph_graph graph = NULL;
    regraph_block block;
    int i;
    memset(&it, 0, sizeof it);
    OK(regraph_engine_create_sim(256 * MIB, NULL, &it.engine));
    OK(regraph_pool_create(it.engine, REGRAPH_NO_LIMIT, &it.pool));
    OK(regraph_sim_create_stream(it.engine, &it.stream));
    for (i = 0; i < 2; i++) {
        OK(regraph_sim_begin_capture(it.engine, it.stream));
        OK(regraph_begin_capture(it.engine, it.pool, it.stream, &capture));
        OK(regraph_allocate(it.engine, it.pool, 4 * MIB, it.stream, &block));
        OK(regraph_sim_launch(it.engine, it.stream, false));
        OK(regraph_free(it.engine, block.id));
        OK(regraph_sim_end_capture(it.engine, it.stream, &graph));
        OK(regraph_end_capture(it.engine, capture, graph, &report));
        it.graph = report.graph;
    }
    OK(regraph_sim_instantiate(it.engine, graph, &it.executable));
    OK(regraph_begin_stream_capture(it.engine, it.pool, it.stream, REGRAPH_CAPTURE_RELAXED, &capture));
    OK(regraph_finish_stream_capture(it.engine, capture, &report));
    it.captured = report.graph;
    OK(regraph_begin_stream_capture(it.engine, it.pool, it.stream, REGRAPH_CAPTURE_RELAXED, &it.capture));
    OK(regraph_allocate(it.engine, it.pool, 4 * MIB, it.stream, &it.block));
    return it;
}

static void unknown_pool(bench it, regraph_pool pool) {
    regraph_engine *e = it.engine;
    regraph_block block;
    regraph_capture_id capture = 0;
    regraph_statistics statistics;
    regraph_explanation *explanation = NULL;
    uint64_t bytes = 77;
    bool suspended = true;
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_allocate(e, pool, 1, it.stream, &block));
    SAYS("another engine");
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_allocate_fixed(e, pool, 1, it.stream, &block));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_begin_capture(e, pool, it.stream, &capture));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_begin_stream_capture(e, pool, NULL, 0, &capture));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_explain(e, pool, it.stream, &explanation));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_get_statistics(e, pool, &statistics));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_set_name(e, pool, "x"));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_suspend(e, pool, &bytes));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_borrow(e, pool, 1, it.stream, &block));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_get_lent_bytes(e, pool, &bytes));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_suspend_discarding(e, pool, &bytes));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_resume(e, pool, &bytes));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_is_suspended(e, pool, &suspended));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_is_short(e, pool, &suspended));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_compact(e, pool, &bytes));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_get_excess_bytes(e, pool, &bytes));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_follow(e, pool, it.stream));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_synchronize(e, pool));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_destroy(e, pool));
    NAMED(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_release(e, pool));
    SAYS("another engine");
    CHECK(capture == 0 && bytes == 77 && explanation == NULL);
}

static void unknown_graph(bench it, regraph_graph_id graph) {
    regraph_engine *e = it.engine;
    uint64_t bytes = 77;
    NAMED(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_release_graph(e, graph));
    SAYS("another engine");
    NAMED(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_launch_graph(e, graph, it.stream));
    NAMED(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_launch_executable(e, graph, it.executable, it.stream));
    NAMED(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_graph_get_handles(e, graph, NULL, NULL));
    NAMED(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_graph_minimum_bytes(e, graph, &bytes));
    NAMED(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_graph_forget_journal(e, graph));
    CHECK(bytes == 77);
}

static void unknown_capture(bench it, regraph_capture_id capture) {
    regraph_engine *e = it.engine;
    regraph_capture_id same = capture;
    regraph_block block;
    uint64_t bytes = 77;
    NAMED(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_end_capture(e, capture, (regraph_graph)(uintptr_t)77, NULL));
    SAYS("not under way in this engine");
    NAMED(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_abandon_capture(e, capture));
    NAMED(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_finish_stream_capture(e, capture, NULL));
    NAMED(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_repeat_stream_capture(e, &same));
    NAMED(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_capture_allocate(e, capture, 1, it.stream, &block));
    NAMED(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_capture_allocate_fixed(e, capture, 1, it.stream, &block));
    NAMED(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_plan_capture(e, capture, NULL));
    NAMED(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_capture_minimum_bytes(e, capture, &bytes));
    NAMED(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_write_trace(e, capture, it.stream, "x"));
    CHECK(bytes == 77 && same == capture);
}

static void unknown_block(bench it, regraph_block_id block) {
    regraph_engine *e = it.engine;
    NAMED(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_free(e, block));
    SAYS("not live in this engine");
    NAMED(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_free_from(e, block, it.stream));
    NAMED(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_record_stream(e, block, it.stream));
    NAMED(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_record_use(e, block, it.stream));
}

/* Everything of the engine is as it was made. */
static void unharmed(bench it) {
    regraph_capture_report report;
    regraph_statistics statistics;
    OK(regraph_pool_get_statistics(it.engine, it.pool, &statistics));
    CHECK(statistics.all.allocated_bytes.current == 4 * MIB);
    OK(regraph_sim_launch(it.engine, it.stream, false));
    OK(regraph_free(it.engine, it.block.id));
    OK(regraph_finish_stream_capture(it.engine, it.capture, &report));
    CHECK(report.verified && report.blocks == 1);
    OK(regraph_launch_executable(it.engine, it.graph, it.executable, it.stream));
    OK(regraph_launch_graph(it.engine, it.captured, it.stream));
    OK(regraph_launch_graph(it.engine, report.graph, it.stream));
    OK(regraph_pool_synchronize(it.engine, it.pool));
    OK(regraph_empty_cache(it.engine, NULL));
    OK(regraph_pool_get_statistics(it.engine, it.pool, &statistics));
    CHECK(statistics.all.reserved_bytes.current == 4 * MIB); /* the graphs' */
}

static void of_another_engine(void) {
    bench one = begin(), other = begin();
    unknown_pool(one, other.pool);
    unknown_graph(one, other.graph);
    unknown_graph(one, other.captured);
    unknown_capture(one, other.capture);
    unknown_block(one, other.block.id);
    unharmed(one);
    unharmed(other);
    regraph_engine_destroy(one.engine);
    /* The engine is gone, its names are not given again. */
    one = begin();
    unknown_pool(other, one.pool);
    unknown_graph(other, one.graph);
    regraph_engine_destroy(one.engine);
    regraph_engine_destroy(other.engine);
}

/* The rows of what is gone are in use again. */
static void of_what_is_gone(void) {
    bench it = begin();
    regraph_engine *e = it.engine;
    regraph_pool gone, pool;
    regraph_capture_id capture;
    regraph_capture_report first, second;
    regraph_block stale, fresh;
    regraph_stream stream;
    int i;
    OK(regraph_sim_create_stream(e, &stream));
    for (i = 0; i < 3; i++) {
        OK(regraph_pool_create(e, REGRAPH_NO_LIMIT, &gone));
        OK(regraph_begin_stream_capture(e, gone, stream, REGRAPH_CAPTURE_RELAXED, &capture));
        OK(regraph_allocate(e, gone, MIB, stream, &stale));
        OK(regraph_free(e, stale.id));
        OK(regraph_finish_stream_capture(e, capture, &first));
        OK(regraph_release_graph(e, first.graph));
        if (i == 1) {
            OK(regraph_pool_release(e, gone));
        } else {
            OK(regraph_pool_destroy(e, gone));
        }
        OK(regraph_pool_create(e, REGRAPH_NO_LIMIT, &pool));
        CHECK(memcmp(&pool, &gone, sizeof pool) != 0);
        OK(regraph_begin_stream_capture(e, pool, stream, REGRAPH_CAPTURE_RELAXED, &capture));
        OK(regraph_allocate(e, pool, MIB, stream, &fresh));
        OK(regraph_finish_stream_capture(e, capture, &second));
        unknown_pool(it, gone);
        unknown_graph(it, first.graph);
        unknown_capture(it, first.capture);
        unknown_capture(it, second.capture);
        unknown_block(it, stale.id);
        OK(regraph_launch_graph(e, second.graph, stream));
        OK(regraph_pool_synchronize(e, pool));
        OK(regraph_free(e, fresh.id));
        OK(regraph_release_graph(e, second.graph));
        OK(regraph_pool_destroy(e, pool));
    }
    unharmed(it);
    regraph_engine_destroy(e);
}

static void that_never_were(void) {
    bench it = begin();
    regraph_pool pool;
    regraph_graph_id graph;
    regraph_block_id block;
    int word, bit;
    memset(&pool, 0, sizeof pool);
    memset(&graph, 0, sizeof graph);
    memset(&block, 0, sizeof block);
    unknown_pool(it, pool);
    unknown_graph(it, graph);
    unknown_block(it, block);
    unknown_capture(it, 0);
    for (bit = 0; bit < 64; bit++) {
        for (word = 0; word < 2; word++) {
            pool = it.pool;
            pool.words[word] ^= (uint64_t)1 << bit;
            unknown_pool(it, pool);
            graph = it.captured;
            graph.words[word] ^= (uint64_t)1 << bit;
            /* The number of the engine's other graph is one bit away. */
            if (memcmp(&graph, &it.graph, sizeof graph) != 0 && !(word == 1 && bit < 2)) {
                unknown_graph(it, graph);
            }
        }
        unknown_capture(it, it.capture ^ ((uint64_t)1 << bit));
    }
    unharmed(it);
    regraph_engine_destroy(it.engine);
}

int main(void) {
    of_another_engine();
    of_what_is_gone();
    that_never_were();
    printf("%d checks\n", checks);
    return 0;
}
