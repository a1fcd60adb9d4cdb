/* Every call of the header, as it is meant to be used and as it is not. */
#include "check.h"

/* A capture under way. */
typedef struct {
    regraph_engine *engine;
    regraph_pool pool;
    regraph_stream a, b;
    regraph_capture_id capture;
} bench;

static bench begin(const char *settings, bool journal) {
    bench it;
    regraph_config *config = NULL;
    memset(&it, 0, sizeof it);
    OK(regraph_config_create(&config));
    OK(regraph_config_set_settings(config, settings));
    OK(regraph_config_set_journal(config, journal));
    OK(regraph_engine_create_sim(1024 * MIB, config, &it.engine));
    regraph_config_destroy(config);
    OK(regraph_pool_create(it.engine, REGRAPH_NO_LIMIT, &it.pool));
    OK(regraph_sim_create_stream(it.engine, &it.a));
    OK(regraph_sim_create_stream(it.engine, &it.b));
    OK(regraph_sim_begin_capture(it.engine, it.a));
    OK(regraph_begin_capture(it.engine, it.pool, it.a, &it.capture));
    return it;
}

static regraph_statistics statistics(const regraph_engine *engine) {
    regraph_statistics it;
    OK(regraph_get_statistics(engine, &it));
    return it;
}

static void versions_and_names(void) {
    CHECK(regraph_version() == REGRAPH_VERSION);
    CHECK(REGRAPH_VERSION ==
          REGRAPH_VERSION_MAJOR * 1000000 + REGRAPH_VERSION_MINOR * 1000 + REGRAPH_VERSION_PATCH);
    CHECK(strlen(regraph_version_string()) >= 5);
    CHECK(strcmp(regraph_error_name(REGRAPH_ERROR_POOL_BUSY), "REGRAPH_ERROR_POOL_BUSY") == 0);
    CHECK(strcmp(regraph_error_name(12345), "unknown") == 0);
    CHECK(strcmp(regraph_last_error_message(), "") == 0);
    CHECK(regraph_last_driver_code() == 0);
}

static void configs(void) {
    regraph_config *config = NULL;
    regraph_engine *engine = NULL;
    IS(REGRAPH_ERROR_NULL, regraph_config_create(NULL));
    OK(regraph_config_create(&config));
    IS(REGRAPH_ERROR_SETTINGS, regraph_config_set_settings(config, "no_such_key:1"));
    SAYS("no_such_key");
    IS(REGRAPH_ERROR_SETTINGS, regraph_config_set_settings(config, "memory_limit_mb:much"));
    IS(REGRAPH_ERROR_INVALID_TEXT, regraph_config_set_settings(config, "\xff\xfe"));
    IS(REGRAPH_ERROR_NULL, regraph_config_set_settings(config, NULL));
    SAYS("settings");
    IS(REGRAPH_ERROR_NULL, regraph_config_set_settings(NULL, ""));
    IS(REGRAPH_ERROR_NULL, regraph_config_set_settings_from_environment(NULL));
    IS(REGRAPH_ERROR_NULL, regraph_config_set_journal(NULL, true));
    IS(REGRAPH_ERROR_NULL, regraph_config_set_find_late_uses(NULL, true));
    IS(REGRAPH_ERROR_NULL, regraph_config_set_refuse_late_uses(NULL, true));
    IS(REGRAPH_ERROR_NULL, regraph_config_set_report_leaks(NULL, true));
    OK(regraph_config_set_settings_from_environment(config));
    OK(regraph_config_set_settings(config, "per_process_memory_fraction:0.5"));
    OK(regraph_config_set_find_late_uses(config, true));
    OK(regraph_config_set_refuse_late_uses(config, true));
    OK(regraph_config_set_report_leaks(config, false));
    IS(REGRAPH_ERROR_NULL, regraph_engine_create_sim(0, config, NULL));
    OK(regraph_engine_create_sim(512 * MIB, config, &engine));
    {
        uint64_t limit = 0;
        regraph_pool pool;
        regraph_block block;
        OK(regraph_get_memory_limit(engine, &limit));
        CHECK(limit == 256 * MIB);
        OK(regraph_pool_create(engine, REGRAPH_NO_LIMIT, &pool));
        OK(regraph_allocate(engine, pool, MIB, NULL, &block));
        CHECK(statistics(engine).all.allocated_bytes.current == MIB); /* figures are always kept */
        CHECK(statistics(engine).all.reserved_bytes.current > 0);
    }
    regraph_engine_destroy(engine);
    regraph_config_destroy(config);
    regraph_config_destroy(NULL);
    regraph_engine_destroy(NULL);
}

/* There may or may not be a GPU here. */
static void cuda(void) {
    regraph_engine *engine = NULL;
    regraph_error error;
    IS(REGRAPH_ERROR_NULL, regraph_engine_create_cuda(0, NULL, NULL));
    error = regraph_engine_create_cuda(0, NULL, &engine);
    if (error == REGRAPH_OK) {
        regraph_stream stream = NULL;
        uint64_t bytes = 0;
        IS(REGRAPH_ERROR_NOT_SIMULATED, regraph_sim_create_stream(engine, &stream));
        IS(REGRAPH_ERROR_NOT_SIMULATED, regraph_sim_used_bytes(engine, &bytes));
        regraph_engine_destroy(engine);
    } else {
        CHECK(error == REGRAPH_ERROR_NO_DRIVER || error == REGRAPH_ERROR_DRIVER ||
              error == REGRAPH_ERROR_NOT_SUPPORTED || error == REGRAPH_ERROR_DRIVER_TOO_OLD);
        CHECK(engine == NULL);
        CHECK(strlen(regraph_last_error_message()) > 10);
    }
    error = regraph_engine_create_cuda(4000000000u, NULL, &engine);
    CHECK(error != REGRAPH_OK && error != REGRAPH_ERROR_PANIC);
}

static void nulls(void) {
    bench it = begin("", false);
    regraph_engine *e = it.engine;
    regraph_block block;
    regraph_pool pool;
    regraph_graph_id graph = {0};
    regraph_statistics figures;
    regraph_stream stream = NULL;
    uint64_t bytes = 0;
    bool suspended = false;
    char *text = NULL;
    regraph_pool_list *pools = NULL;
    regraph_leak_list *leaks = NULL;
    regraph_explanation *explanation = NULL;
    OK(regraph_allocate(e, it.pool, 1, it.a, &block));

    IS(REGRAPH_ERROR_NULL, regraph_pool_create(NULL, 0, &pool));
    SAYS("engine");
    IS(REGRAPH_ERROR_NULL, regraph_pool_create(e, 0, NULL));
    SAYS("pool");
    IS(REGRAPH_ERROR_NULL, regraph_pool_destroy(NULL, it.pool));
    IS(REGRAPH_ERROR_NULL, regraph_pool_suspend(NULL, it.pool, &bytes));
    IS(REGRAPH_ERROR_NULL, regraph_pool_resume(NULL, it.pool, &bytes));
    IS(REGRAPH_ERROR_NULL, regraph_pool_is_suspended(NULL, it.pool, &suspended));
    IS(REGRAPH_ERROR_NULL, regraph_pool_is_suspended(e, it.pool, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_pool_compact(NULL, it.pool, &bytes));
    IS(REGRAPH_ERROR_NULL, regraph_pool_get_excess_bytes(NULL, it.pool, &bytes));
    IS(REGRAPH_ERROR_NULL, regraph_pool_get_excess_bytes(e, it.pool, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_pool_is_short(NULL, it.pool, &suspended));
    IS(REGRAPH_ERROR_NULL, regraph_pool_is_short(e, it.pool, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_pool_borrow(NULL, it.pool, 1, it.a, &block));
    IS(REGRAPH_ERROR_NULL, regraph_pool_borrow(e, it.pool, 1, it.a, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_pool_get_lent_bytes(NULL, it.pool, &bytes));
    IS(REGRAPH_ERROR_NULL, regraph_pool_get_lent_bytes(e, it.pool, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_allocate(NULL, it.pool, 1, it.a, &block));
    IS(REGRAPH_ERROR_NULL, regraph_allocate(e, it.pool, 1, it.a, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_allocate_fixed(NULL, it.pool, 1, it.a, &block));
    IS(REGRAPH_ERROR_NULL, regraph_allocate_fixed(e, it.pool, 1, it.a, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_record_stream(NULL, block.id, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_record_use(NULL, block.id, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_free(NULL, block.id));
    IS(REGRAPH_ERROR_NULL, regraph_free_from(NULL, block.id, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_begin_capture(NULL, it.pool, it.a, &it.capture));
    IS(REGRAPH_ERROR_NULL, regraph_begin_capture(e, it.pool, it.a, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_plan_capture(NULL, it.capture, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_end_capture(NULL, it.capture, NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_close_capture(NULL, it.capture, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_capture_verdict(NULL, it.capture, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_abandon_capture(NULL, it.capture));
    IS(REGRAPH_ERROR_NULL, regraph_release_graph(NULL, graph));
    IS(REGRAPH_ERROR_NULL, regraph_observe_stream(NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_mark_stream(NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_may_capture(NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_retire_stream(NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_write_trace(NULL, it.capture, it.a, "x"));
    IS(REGRAPH_ERROR_NULL, regraph_write_trace(e, it.capture, it.a, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_explain(NULL, it.pool, it.a, &explanation));
    IS(REGRAPH_ERROR_NULL, regraph_explain(e, it.pool, it.a, NULL));
    CHECK(regraph_explanation_count(NULL) == 0 && regraph_explanation_get(NULL, 0) == NULL);
    regraph_explanation_destroy(NULL);
    IS(REGRAPH_ERROR_NULL, regraph_get_statistics(NULL, &figures));
    IS(REGRAPH_ERROR_NULL, regraph_get_statistics(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_pool_get_statistics(NULL, it.pool, &figures));
    IS(REGRAPH_ERROR_NULL, regraph_pool_get_statistics(e, it.pool, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_reset_peaks(NULL));
    IS(REGRAPH_ERROR_NULL, regraph_reset_accumulated(NULL));
    IS(REGRAPH_ERROR_NULL, regraph_set_memory_limit(NULL, 0));
    IS(REGRAPH_ERROR_NULL, regraph_set_memory_fraction(NULL, 0.5));
    IS(REGRAPH_ERROR_NULL, regraph_get_memory_limit(NULL, &bytes));
    IS(REGRAPH_ERROR_NULL, regraph_get_memory_limit(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_empty_cache(NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_trim(NULL, 0, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_get_leaks(NULL, &leaks));
    IS(REGRAPH_ERROR_NULL, regraph_get_leaks(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_get_devices(NULL));
    CHECK(regraph_device_list_count(NULL) == 0 && regraph_device_list_get(NULL, 0) == NULL);
    regraph_device_list_destroy(NULL);
    IS(REGRAPH_ERROR_NULL, regraph_get_pools(NULL, &pools));
    IS(REGRAPH_ERROR_NULL, regraph_get_pools(e, NULL));
    CHECK(regraph_pool_list_count(NULL) == 0 && regraph_pool_list_get(NULL, 0) == NULL);
    regraph_pool_list_destroy(NULL);
    IS(REGRAPH_ERROR_NULL, regraph_pool_set_name(NULL, it.pool, "x"));
    IS(REGRAPH_ERROR_INVALID_TEXT, regraph_pool_set_name(e, it.pool, "\xff"));
    CHECK(regraph_leak_list_count(NULL) == 0 && regraph_leak_list_get(NULL, 0) == NULL);
    regraph_leak_list_destroy(NULL);
    IS(REGRAPH_ERROR_NULL, regraph_observe_out_of_memory(e, NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_write_snapshot_json(NULL, "x"));
    IS(REGRAPH_ERROR_NULL, regraph_write_snapshot_json(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_write_snapshot_pickle(NULL, "x"));
    IS(REGRAPH_ERROR_NULL, regraph_write_snapshot_pickle(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_snapshot_json(NULL, &text));
    IS(REGRAPH_ERROR_NULL, regraph_snapshot_json(e, NULL));
    regraph_string_destroy(NULL);
    IS(REGRAPH_ERROR_NULL, regraph_record_history(NULL, 1));
    IS(REGRAPH_ERROR_NULL, regraph_sim_create_stream(NULL, &stream));
    IS(REGRAPH_ERROR_NULL, regraph_sim_create_stream(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_sim_destroy_stream(NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_sim_launch(NULL, it.a, false));
    IS(REGRAPH_ERROR_NULL, regraph_sim_wait(NULL, it.a, it.b));
    IS(REGRAPH_ERROR_NULL, regraph_sim_begin_capture(NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_sim_capture_info(NULL, it.a, NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_sim_invalidate_capture(NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_sim_end_capture(NULL, it.a, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_sim_end_capture(e, it.a, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_sim_destroy_graph(NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_sim_instantiate(NULL, NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_sim_instantiate(e, NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_sim_launch_graph(NULL, NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_sim_destroy_executable(NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_sim_synchronize_stream(NULL, it.a));
    IS(REGRAPH_ERROR_NULL, regraph_sim_synchronize(NULL));
    IS(REGRAPH_ERROR_NULL, regraph_sim_used_bytes(NULL, &bytes));
    IS(REGRAPH_ERROR_NULL, regraph_sim_used_bytes(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_sim_fail_driver_call(NULL, 0));
    IS(REGRAPH_ERROR_NULL, regraph_sim_panic(NULL));

    /* None of that has done anything. */
    OK(regraph_free(e, block.id));
    OK(regraph_abandon_capture(e, it.capture));
    regraph_engine_destroy(e);
}

static void names_that_name_nothing(void) {
    bench it = begin("", false);
    regraph_engine *e = it.engine;
    regraph_engine *other = NULL;
    regraph_block block, again;
    regraph_block_id forged;
    regraph_pool nowhere;
    regraph_graph_id graph;
    regraph_statistics figures;
    regraph_explanation *explanation = NULL;
    regraph_stream stream = (regraph_stream)(uintptr_t)12345;
    regraph_capture_report report;
    int word, bit;
    nowhere.words[0] = 4000000000u;
    nowhere.words[1] = 0;
    graph.words[0] = 0;
    graph.words[1] = UINT64_MAX;

    IS(REGRAPH_ERROR_ZERO_BYTES, regraph_allocate(e, it.pool, 0, it.a, &block));
    OK(regraph_allocate(e, it.pool, 3, it.a, &block));
    CHECK(block.bytes == 3 && block.address != 0 && block.address % 512 == 0);
    OK(regraph_free(e, block.id));
    IS(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_free(e, block.id));
    SAYS("freed before");
    IS(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_free_from(e, block.id, it.a));
    IS(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_record_stream(e, block.id, it.b));
    IS(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_record_use(e, block.id, it.b));

    /* The place is taken again: the old name stays dead. */
    OK(regraph_allocate(e, it.pool, 3, it.a, &again));
    CHECK(again.address == block.address);
    IS(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_free(e, block.id));
    for (word = 0; word < 3; word++) {
        for (bit = 0; bit < 64; bit++) {
            forged = again.id;
            forged.words[word] ^= (uint64_t)1 << bit;
            IS(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_free(e, forged));
            IS(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_record_stream(e, forged, it.b));
            IS(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_record_use(e, forged, it.b));
        }
    }
    OK(regraph_engine_create_sim(0, NULL, &other));
    IS(REGRAPH_ERROR_UNKNOWN_BLOCK, regraph_free(other, again.id));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_allocate(other, it.pool, 1, it.a, &block));
    SAYS("another engine");
    regraph_engine_destroy(other);

    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_allocate(e, nowhere, 1, it.a, &block));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_destroy(e, nowhere));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_suspend(e, nowhere, NULL));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_resume(e, nowhere, NULL));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_get_statistics(e, nowhere, &figures));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_begin_capture(e, nowhere, it.a, &it.capture));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_explain(e, nowhere, it.a, &explanation));
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_end_capture(e, 999, (regraph_graph)(uintptr_t)77, &report));
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_abandon_capture(e, 999));
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_write_trace(e, 999, it.a, "x"));
    IS(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_release_graph(e, graph));
    IS(REGRAPH_ERROR_NOT_CAPTURING, regraph_begin_capture(e, it.pool, it.b, &it.capture));

    /* CU_STREAM_PER_THREAD */
    IS(REGRAPH_ERROR_PER_THREAD_STREAM,
       regraph_allocate(e, it.pool, 1, (regraph_stream)(uintptr_t)2, &block));
    IS(REGRAPH_ERROR_PER_THREAD_STREAM, regraph_mark_stream(e, (regraph_stream)(uintptr_t)2));
    IS(REGRAPH_ERROR_PER_THREAD_STREAM, regraph_may_capture(e, (regraph_stream)(uintptr_t)2));
    IS(REGRAPH_ERROR_PER_THREAD_STREAM, regraph_observe_stream(e, (regraph_stream)(uintptr_t)2));
    IS(REGRAPH_ERROR_PER_THREAD_STREAM, regraph_pool_follow(e, it.pool, (regraph_stream)(uintptr_t)2));
    IS(REGRAPH_ERROR_PER_THREAD_STREAM, regraph_begin_capture(e, it.pool, (regraph_stream)(uintptr_t)2, &it.capture));
    IS(REGRAPH_ERROR_PER_THREAD_STREAM, regraph_explain(e, it.pool, (regraph_stream)(uintptr_t)2, &explanation));

    /* A stream that the driver does not know. */
    IS(REGRAPH_ERROR_DRIVER, regraph_allocate(e, it.pool, 1, stream, &block));
    CHECK(regraph_last_driver_code() != 0);
    IS(REGRAPH_ERROR_DRIVER, regraph_sim_launch(e, stream, false));
    IS(REGRAPH_ERROR_DRIVER, regraph_sim_destroy_stream(e, stream));
    IS(REGRAPH_ERROR_DRIVER, regraph_sim_destroy_graph(e, (regraph_graph)(uintptr_t)77));
    IS(REGRAPH_ERROR_DRIVER, regraph_sim_destroy_executable(e, (regraph_executable)(uintptr_t)77));
    IS(REGRAPH_ERROR_DRIVER, regraph_sim_begin_capture(e, it.a)); /* it captures already */

    /* A graph that is none. */
    CHECK(regraph_end_capture(e, it.capture, (regraph_graph)(uintptr_t)77, &report) != REGRAPH_OK);
    OK(regraph_free(e, again.id));
    regraph_engine_destroy(e);
}

static void limits(void) {
    bench it = begin("", false);
    regraph_engine *e = it.engine;
    regraph_pool small;
    regraph_block block;
    uint64_t limit = 0;
    regraph_emptied emptied;
    OK(regraph_pool_create(e, 8 * MIB, &small));
    IS(REGRAPH_ERROR_OUT_OF_MEMORY, regraph_allocate(e, small, 9 * MIB, it.a, &block));
    SAYS("out of memory");
    IS(REGRAPH_ERROR_OUT_OF_MEMORY, regraph_allocate(e, it.pool, UINT64_MAX, it.a, &block));
    OK(regraph_set_memory_limit(e, 16 * MIB));
    OK(regraph_get_memory_limit(e, &limit));
    CHECK(limit == 16 * MIB);
    IS(REGRAPH_ERROR_OUT_OF_MEMORY, regraph_allocate(e, it.pool, 32 * MIB, it.a, &block));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_set_memory_fraction(e, 1.5));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_set_memory_fraction(e, -0.5));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_set_memory_fraction(e, 0.0 / (double)(limit - limit)));
    OK(regraph_set_memory_fraction(e, 0.5));
    OK(regraph_get_memory_limit(e, &limit));
    CHECK(limit == 512 * MIB);
    OK(regraph_set_memory_limit(e, REGRAPH_NO_LIMIT));
    OK(regraph_get_memory_limit(e, &limit));
    CHECK(limit == REGRAPH_NO_LIMIT);
    CHECK(statistics(e).counts.num_ooms == 3);
    OK(regraph_allocate(e, it.pool, 32 * MIB, it.a, &block));
    OK(regraph_free(e, block.id));
    OK(regraph_abandon_capture(e, it.capture));
    OK(regraph_trim(e, 1024 * MIB, &emptied));
    CHECK(emptied.released == 0 && emptied.reserved == 32 * MIB && emptied.unused == 0);
    OK(regraph_empty_cache(e, &emptied));
    CHECK(emptied.released == 32 * MIB && emptied.reserved == 0);
    OK(regraph_empty_cache(e, NULL));
    regraph_engine_destroy(e);

    /* A device with more memory than there are addresses. */
    OK(regraph_engine_create_sim(UINT64_MAX, NULL, &e));
    OK(regraph_pool_create(e, REGRAPH_NO_LIMIT, &small));
    OK(regraph_allocate(e, small, MIB, NULL, &block));
    OK(regraph_free(e, block.id));
    OK(regraph_set_memory_fraction(e, 1.0));
    OK(regraph_get_memory_limit(e, &limit));
    CHECK(limit == (uint64_t)1 << 47);
    regraph_engine_destroy(e);
}

/* Calls the engine from inside the callback, and fails there. */
static void observer(const regraph_out_of_memory *report, void *user_data) {
    regraph_engine *e = *(regraph_engine **)user_data;
    regraph_block block;
    CHECK(report->requested == 9 * MIB && report->limit == 8 * MIB && report->capturing);
    CHECK(report->engine_limit == REGRAPH_NO_LIMIT && report->growable);
    CHECK(report->device_total == 1024 * MIB && strstr(report->text, "out of memory") != NULL);
    CHECK(strstr(report->text, "regraph_pool_create()") != NULL); /* and not the call of Rust */
    IS(REGRAPH_ERROR_ZERO_BYTES, regraph_allocate(e, report->pool, 0, report->stream, &block));
    CHECK(statistics(e).counts.num_ooms == 1);
    *(regraph_engine **)user_data = NULL;
}

static void names_a_call(int32_t level, const char *message, void *user_data) {
    if (level == REGRAPH_LOG_INFO && strstr(message, "regraph_pool_create()") != NULL) *(bool *)user_data = true;
}

static void observers(void) {
    bench it = begin("", false);
    regraph_engine *told = it.engine;
    regraph_pool small;
    regraph_block block;
    bool named = false;
    OK(regraph_pool_create(it.engine, 8 * MIB, &small));
    OK(regraph_observe_out_of_memory(it.engine, observer, &told));
    OK(regraph_set_log_level(REGRAPH_LOG_INFO));
    OK(regraph_set_log_callback(names_a_call, &named));
    IS(REGRAPH_ERROR_OUT_OF_MEMORY, regraph_allocate(it.engine, small, 9 * MIB, it.a, &block));
    OK(regraph_set_log_callback(NULL, NULL));
    OK(regraph_set_log_level(REGRAPH_LOG_WARNING));
    CHECK(named);
    CHECK(told == NULL);
    SAYS("out of memory"); /* not what failed inside */
    OK(regraph_allocate(it.engine, small, 7 * MIB, it.a, &block)); /* the capture lives */
    OK(regraph_free(it.engine, block.id));
    OK(regraph_abandon_capture(it.engine, it.capture));
    regraph_engine_destroy(it.engine);
}

static void a_capture(void) {
    bench it = begin("", false);
    regraph_engine *e = it.engine;
    regraph_block first, second, third;
    regraph_explanation *explanation = NULL;
    const regraph_free_range *range;
    regraph_capture_report report;
    regraph_capture_id known = 0;
    regraph_stream other;
    regraph_graph under_capture = NULL, graph = NULL;
    regraph_executable executable = NULL;
    regraph_leak_list *leaks = NULL;
    regraph_statistics figures;

    OK(regraph_allocate(e, it.pool, 4 * MIB, it.a, &first));
    OK(regraph_sim_launch(e, it.a, false));
    OK(regraph_sim_wait(e, it.b, it.a));
    OK(regraph_sim_launch(e, it.b, false));
    OK(regraph_record_stream(e, first.id, it.b));
    OK(regraph_free(e, first.id));

    OK(regraph_explain(e, it.pool, it.a, &explanation));
    CHECK(regraph_explanation_count(explanation) == 1);
    CHECK(regraph_explanation_get(explanation, 1) == NULL);
    range = regraph_explanation_get(explanation, 0);
    CHECK(range->refusal == REGRAPH_REFUSAL_MARKER && range->marker != NULL);
    CHECK(range->has_stream && range->stream == it.a && range->capture == 0);
    CHECK(range->address == first.address && range->bytes == 4 * MIB && range->has_block);
    CHECK(strstr(range->text, "not proven") != NULL);
    regraph_explanation_destroy(explanation);

    OK(regraph_allocate(e, it.pool, 4 * MIB, it.a, &second));
    CHECK(second.address != first.address);
    OK(regraph_sim_launch(e, it.a, false));
    OK(regraph_sim_wait(e, it.a, it.b));
    OK(regraph_explain(e, it.pool, it.a, &explanation));
    range = regraph_explanation_get(explanation, 0);
    CHECK(range->refusal == REGRAPH_REFUSAL_NONE && range->text[0] == 0 && !range->has_stream);
    regraph_explanation_destroy(explanation);
    OK(regraph_allocate(e, it.pool, 4 * MIB, it.a, &third));
    CHECK(third.address == first.address);
    OK(regraph_record_use(e, third.id, it.a));
    OK(regraph_sim_launch(e, it.a, false));
    OK(regraph_observe_stream(e, it.a));
    IS(REGRAPH_ERROR_POOL_IN_USE, regraph_pool_destroy(e, it.pool));
    SAYS("is in use: 2 live blocks, 1 capture under way; free its blocks, end or abandon its captures, and try");
    IS(REGRAPH_ERROR_POOL_BUSY, regraph_pool_suspend(e, it.pool, NULL));
    IS(REGRAPH_ERROR_STREAM_IN_USE, regraph_retire_stream(e, it.a));

    OK(regraph_sim_create_stream(e, &other));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_write_trace(e, it.capture, other, "x"));
    SAYS("expected the stream that the capture began on");
    OK(regraph_write_trace(e, it.capture, it.a, "capture.jsonl"));
    IS(REGRAPH_ERROR_IO, regraph_write_trace(e, it.capture, it.a, "no/such/folder/x"));
    SAYS("no/such/folder/x");
    IS(REGRAPH_ERROR_INVALID_TEXT, regraph_write_trace(e, it.capture, it.a, "\xff"));

    OK(regraph_sim_capture_info(e, it.a, &known, &under_capture));
    CHECK(known == it.capture && under_capture != NULL);
    OK(regraph_end_capture(e, it.capture, under_capture, &report));
    CHECK(report.capture == it.capture && report.nodes == 4 && report.blocks == 3);
    CHECK(report.verified && report.late_uses == 0);
    CHECK(report.planned_bytes == 0 && report.mappings == 0);
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_end_capture(e, it.capture, under_capture, NULL));
    IS(REGRAPH_ERROR_CAPTURE_ENDED, regraph_allocate(e, it.pool, 1, it.a, &first));
    OK(regraph_sim_end_capture(e, it.a, &graph));
    OK(regraph_sim_capture_info(e, it.a, &known, NULL));
    CHECK(known == 0);

    OK(regraph_sim_instantiate(e, graph, &executable));
    OK(regraph_sim_launch_graph(e, executable, it.a));
    OK(regraph_sim_synchronize_stream(e, it.a));
    OK(regraph_sim_synchronize(e));

    OK(regraph_get_leaks(e, &leaks));
    CHECK(regraph_leak_list_count(leaks) == 2 && regraph_leak_list_get(leaks, 2) == NULL);
    CHECK(regraph_leak_list_get(leaks, 0)->address < regraph_leak_list_get(leaks, 1)->address);
    CHECK(regraph_leak_list_get(leaks, 0)->stream == it.a);
    CHECK(strstr(regraph_leak_list_get(leaks, 0)->text, "4 MiB at ") != NULL);
    OK(regraph_free(e, regraph_leak_list_get(leaks, 0)->block));
    OK(regraph_free_from(e, regraph_leak_list_get(leaks, 1)->block, it.b));
    regraph_leak_list_destroy(leaks);

    OK(regraph_pool_get_statistics(e, it.pool, &figures));
    CHECK(figures.all.allocation.allocated == 3 && figures.all.allocation.freed == 3);
    CHECK(figures.all.allocated_bytes.peak == 8 * MIB && figures.large_pool.segment.current > 0);
    CHECK(figures.small_pool.segment.current == 0 && figures.all.unused[5].peak == 0);
    OK(regraph_reset_peaks(e));
    OK(regraph_reset_accumulated(e));
    figures = statistics(e);
    CHECK(figures.all.allocated_bytes.peak == 0 && figures.all.allocation.allocated == 0);
    CHECK(figures.all.reserved_bytes.current == 8 * MIB && figures.counts.num_device_alloc == 0);

    IS(REGRAPH_ERROR_POOL_IN_USE, regraph_pool_destroy(e, it.pool));
    SAYS("in use: 1 graph; release its graphs");
    OK(regraph_sim_destroy_executable(e, executable));
    OK(regraph_sim_destroy_graph(e, graph));
    OK(regraph_release_graph(e, report.graph));
    IS(REGRAPH_ERROR_UNKNOWN_GRAPH, regraph_release_graph(e, report.graph));
    OK(regraph_sim_synchronize(e));
    OK(regraph_retire_stream(e, it.b));
    OK(regraph_sim_destroy_stream(e, it.b));
    OK(regraph_pool_destroy(e, it.pool));
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_pool_destroy(e, it.pool));
    {
        uint64_t used = 1;
        OK(regraph_sim_used_bytes(e, &used));
        CHECK(used == 0);
    }
    regraph_engine_destroy(e);
}

/* Two blocks one after the other, the second one's kernel launched early. Ends the capture in the driver.
   Returns whether the second block took the first one's place. */
static bool early_launch(const bench *it, regraph_block *second, regraph_graph *graph) {
    regraph_block first;
    OK(regraph_allocate(it->engine, it->pool, 4 * MIB, it->a, &first));
    OK(regraph_sim_launch(it->engine, it->a, false));
    OK(regraph_free(it->engine, first.id));
    OK(regraph_allocate(it->engine, it->pool, 4 * MIB, it->a, second));
    OK(regraph_sim_launch(it->engine, it->a, true));
    OK(regraph_sim_end_capture(it->engine, it->a, graph));
    return second->address == first.address;
}

/* A block's next user may start before its last one has completed. */
static void a_refused_capture(void) {
    bench it = begin("programmatic:deny", false);
    regraph_engine *e = it.engine;
    regraph_block second;
    regraph_capture_report report;
    regraph_graph graph;
    memset(&report, 7, sizeof report);
    CHECK(early_launch(&it, &second, &graph));
    IS(REGRAPH_ERROR_REFUSED, regraph_end_capture(e, it.capture, graph, &report));
    SAYS("the capture is refused");
    CHECK(report.mappings == 0x0707070707070707u); /* nothing is written */
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_end_capture(e, it.capture, graph, &report));
    OK(regraph_free(e, second.id));
    OK(regraph_pool_destroy(e, it.pool));
    regraph_engine_destroy(e);
}

/* The second attempt allows for the launch that started early in the first one. */
static void a_capture_again(void) {
    bench it = begin("", false);
    regraph_engine *e = it.engine;
    regraph_block second;
    regraph_graph graph;
    int attempt;
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_set_attempt(e, it.capture, 3));
    for (attempt = REGRAPH_ATTEMPT_FIRST; attempt <= REGRAPH_ATTEMPT_AGAIN; ++attempt) {
        if (attempt == REGRAPH_ATTEMPT_AGAIN) {
            OK(regraph_sim_begin_capture(e, it.a));
            OK(regraph_begin_capture(e, it.pool, it.a, &it.capture));
        }
        OK(regraph_set_attempt(e, it.capture, attempt));
        CHECK(early_launch(&it, &second, &graph) == (attempt == REGRAPH_ATTEMPT_FIRST));
        if (attempt == REGRAPH_ATTEMPT_FIRST) {
            IS(REGRAPH_ERROR_CAPTURE_AGAIN, regraph_end_capture(e, it.capture, graph, NULL));
            SAYS("capture again");
        } else {
            OK(regraph_end_capture(e, it.capture, graph, NULL));
        }
        OK(regraph_free(e, second.id));
    }
    regraph_engine_destroy(e);
}

/* The graph is instantiated while it is verified. */
static void an_end_of_two_steps(void) {
    int abandoned, node;
    for (abandoned = 0; abandoned < 2; ++abandoned) {
        bench it = begin("", false);
        regraph_engine *e = it.engine;
        regraph_block block;
        regraph_capture_report report;
        regraph_graph graph;
        regraph_executable executable;
        for (node = 0; node < 300; ++node) {
            OK(regraph_allocate(e, it.pool, 4 * MIB, it.a, &block));
            OK(regraph_sim_launch(e, it.a, false));
            OK(regraph_free(e, block.id));
        }
        IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_capture_verdict(e, it.capture, &report));
        OK(regraph_sim_capture_info(e, it.a, &it.capture, &graph));
        OK(regraph_close_capture(e, it.capture, graph));
        IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_close_capture(e, it.capture, graph));
        OK(regraph_sim_end_capture(e, it.a, &graph));
        OK(regraph_sim_instantiate(e, graph, &executable));
        IS(REGRAPH_ERROR_POOL_IN_USE, regraph_pool_destroy(e, it.pool));
        if (abandoned) {
            OK(regraph_abandon_capture(e, it.capture));
            IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_capture_verdict(e, it.capture, &report));
        } else {
            OK(regraph_capture_verdict(e, it.capture, &report));
            CHECK(report.verified && report.nodes == 300 && report.blocks == 300);
            OK(regraph_launch_executable(e, report.graph, executable, it.a));
            OK(regraph_release_graph(e, report.graph));
        }
        regraph_engine_destroy(e);
    }
}

static void a_ruined_capture(void) {
    bench it = begin("", false);
    regraph_engine *e = it.engine;
    regraph_block block, after;
    regraph_graph graph;
    OK(regraph_allocate(e, it.pool, 4 * MIB, it.a, &block));
    OK(regraph_sim_invalidate_capture(e, it.a));
    NAMED(REGRAPH_ERROR_CAPTURE_INVALIDATED, regraph_allocate(e, it.pool, 1, it.a, &after));
    IS(REGRAPH_ERROR_DRIVER, regraph_sim_end_capture(e, it.a, &graph));
    CHECK(regraph_last_driver_code() == 901);
    OK(regraph_free(e, block.id));
    OK(regraph_allocate(e, it.pool, 1, it.a, &after)); /* outside captures */
    OK(regraph_free(e, after.id));
    regraph_engine_destroy(e);
}

/* A call rolls it back before the caller knows. */
static void a_ruined_capture_in_a_pool_that_was_given_up(void) {
    bench it = begin("", false);
    regraph_engine *e = it.engine;
    regraph_block block;
    regraph_graph graph;
    OK(regraph_allocate(e, it.pool, 4 * MIB, it.a, &block));
    OK(regraph_pool_release(e, it.pool));
    OK(regraph_sim_invalidate_capture(e, it.a));
    OK(regraph_free(e, block.id));
    IS(REGRAPH_ERROR_DRIVER, regraph_sim_end_capture(e, it.a, &graph));
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_abandon_capture(e, it.capture));
    CHECK(statistics(e).all.reserved_bytes.current == 0);
    regraph_engine_destroy(e);
}

static void journals(void) {
    bench without = begin("check:False", false);
    bench with = begin("check:False", true);
    regraph_capture_report report;
    regraph_graph graph;
    IS(REGRAPH_ERROR_NO_JOURNAL, regraph_write_trace(without.engine, without.capture, without.a, "x"));
    OK(regraph_write_trace(with.engine, with.capture, with.a, "empty.jsonl"));
    OK(regraph_sim_end_capture(with.engine, with.a, &graph));
    OK(regraph_end_capture(with.engine, with.capture, graph, &report));
    CHECK(!report.verified);
    regraph_engine_destroy(without.engine);
    regraph_engine_destroy(with.engine);
}

/* Blocks of 8 MiB on two streams in turn, of which one is in use at a time, and one that never moves.
   Returns what the end of the capture answers. */
static regraph_error planned(bench it, regraph_capture_report *report) {
    regraph_graph under_capture = NULL, graph = NULL;
    regraph_error error;
    regraph_block block, fixed;
    int i;
    OK(regraph_allocate_fixed(it.engine, it.pool, 4 * MIB, it.a, &fixed));
    for (i = 0; i < 10; i++) {
        OK(regraph_allocate(it.engine, it.pool, 8 * MIB, it.a, &block));
        CHECK(block.address != fixed.address);
        OK(regraph_sim_launch(it.engine, it.a, false));
        OK(regraph_free(it.engine, block.id));
        OK(regraph_sim_wait(it.engine, it.b, it.a));
        OK(regraph_allocate(it.engine, it.pool, 8 * MIB, it.b, &block));
        OK(regraph_sim_launch(it.engine, it.b, false));
        OK(regraph_free(it.engine, block.id));
        OK(regraph_sim_wait(it.engine, it.a, it.b));
    }
    OK(regraph_free(it.engine, fixed.id));
    OK(regraph_sim_capture_info(it.engine, it.a, NULL, &under_capture));
    error = regraph_end_capture(it.engine, it.capture, under_capture, report);
    OK(regraph_sim_end_capture(it.engine, it.a, &graph));
    if (error == REGRAPH_OK) {
        regraph_executable executable = NULL;
        OK(regraph_sim_instantiate(it.engine, graph, &executable));
        OK(regraph_sim_launch_graph(it.engine, executable, it.a));
        OK(regraph_sim_synchronize(it.engine));
        OK(regraph_sim_destroy_executable(it.engine, executable));
        OK(regraph_release_graph(it.engine, report->graph));
    }
    OK(regraph_sim_destroy_graph(it.engine, graph));
    return error;
}

static void plans(void) {
    bench it = begin("", false);
    regraph_plan_options options;
    regraph_capture_report report;
    uint64_t most;
    memset(&options, 0, sizeof options);
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_plan_capture(it.engine, it.capture + 1, &options));
    OK(regraph_plan_capture(it.engine, it.capture, &options));
    OK(planned(it, &report));
    CHECK(report.verified && report.planned_bytes == 8 * MIB);
    CHECK(report.planned_minimum_bytes == 8 * MIB && report.planned_new_bytes == 8 * MIB);
    most = report.mappings;
    CHECK(most > 1);
    regraph_engine_destroy(it.engine);

    /* Small pieces are mapped more often: all blocks have the same addresses, of four pieces. */
    it = begin("", false);
    options.max_piece_bytes = 2 * MIB;
    OK(regraph_plan_capture(it.engine, it.capture, &options));
    OK(planned(it, &report));
    CHECK(report.planned_bytes == 8 * MIB && report.mappings == 4 && most < 4);
    regraph_engine_destroy(it.engine);
    it = begin("", false);
    options.max_piece_bytes = 0;
    options.max_mappings = 2;
    OK(regraph_plan_capture(it.engine, it.capture, &options));
    OK(planned(it, &report));
    CHECK(report.planned_bytes >= 8 * MIB && report.mappings <= 2);
    regraph_engine_destroy(it.engine);

    /* By the settings; and not, although they say so. */
    it = begin("plan:exact,plan_max_piece_mb:2", false);
    OK(planned(it, &report));
    CHECK(report.planned_bytes == 8 * MIB && report.mappings == 4);
    regraph_engine_destroy(it.engine);
    it = begin("plan:exact", false);
    OK(regraph_plan_capture(it.engine, it.capture, NULL));
    {
        regraph_block block;
        regraph_graph under_capture = NULL, graph = NULL;
        OK(regraph_allocate(it.engine, it.pool, 8 * MIB, it.a, &block));
        OK(regraph_sim_launch(it.engine, it.a, false));
        OK(regraph_sim_capture_info(it.engine, it.a, NULL, &under_capture));
        OK(regraph_end_capture(it.engine, it.capture, under_capture, &report));
        OK(regraph_sim_end_capture(it.engine, it.a, &graph));
        CHECK(report.verified && report.planned_bytes == 0);
        OK(regraph_free(it.engine, block.id));
        OK(regraph_release_graph(it.engine, report.graph));
        OK(regraph_sim_destroy_graph(it.engine, graph));
    }
    regraph_engine_destroy(it.engine);

    /* Where it does not fit, and where nothing can be mapped later. */
    it = begin("memory_limit_mb:12,plan:exact", false);
    {
        /* One block is live at a time, and kernels on both streams may run at once. */
        regraph_stream streams[2];
        regraph_block block;
        regraph_graph graph = NULL;
        int i;
        streams[0] = it.a;
        streams[1] = it.b;
        IS(REGRAPH_ERROR_OUT_OF_MEMORY, regraph_allocate(it.engine, it.pool, 14 * MIB, it.a, &block));
        OK(regraph_sim_wait(it.engine, it.b, it.a));
        for (i = 0; i < 2; i++) {
            OK(regraph_allocate(it.engine, it.pool, 8 * MIB, streams[i], &block));
            OK(regraph_sim_launch(it.engine, streams[i], false));
            OK(regraph_free(it.engine, block.id));
        }
        OK(regraph_sim_wait(it.engine, it.a, it.b));
        OK(regraph_sim_end_capture(it.engine, it.a, &graph));
        IS(REGRAPH_ERROR_PLAN_OUT_OF_MEMORY, regraph_end_capture(it.engine, it.capture, graph, &report));
        SAYS("16777216");
        OK(regraph_sim_destroy_graph(it.engine, graph));
    }
    regraph_engine_destroy(it.engine);
    it = begin("caching:False", false);
    IS(REGRAPH_ERROR_CANNOT_PLAN, regraph_plan_capture(it.engine, it.capture, &options));
    regraph_engine_destroy(it.engine);
    CHECK(strcmp(regraph_error_name(REGRAPH_ERROR_UNPLANNED), "REGRAPH_ERROR_UNPLANNED") == 0);
}

static void suspending(void) {
    bench it = begin("", false);
    bench uncached = begin("caching:False", false);
    regraph_engine *e = it.engine;
    regraph_pool other;
    regraph_block block, fill, none;
    uint64_t bytes = 1;
    bool suspended = true;
    OK(regraph_abandon_capture(e, it.capture));
    OK(regraph_pool_create(e, REGRAPH_NO_LIMIT, &other));
    OK(regraph_allocate(e, it.pool, 8 * MIB, it.b, &block));
    OK(regraph_pool_is_suspended(e, it.pool, &suspended));
    CHECK(!suspended);
    OK(regraph_pool_resume(e, it.pool, &bytes));
    CHECK(bytes == 0);
    IS(REGRAPH_ERROR_POOL_HAS_BLOCKS, regraph_pool_suspend(e, it.pool, &bytes));
    SAYS("regraph_pool_suspend_discarding()");
    OK(regraph_pool_suspend_discarding(e, it.pool, &bytes));
    CHECK(bytes == 8 * MIB);
    OK(regraph_pool_is_suspended(e, it.pool, &suspended));
    CHECK(suspended && statistics(e).all.suspended_bytes.current == 8 * MIB);
    IS(REGRAPH_ERROR_POOL_SUSPENDED, regraph_allocate(e, it.pool, 1, it.b, &none));
    OK(regraph_allocate(e, other, 1020 * MIB, it.b, &fill));
    IS(REGRAPH_ERROR_RESUME_OUT_OF_MEMORY, regraph_pool_resume(e, it.pool, &bytes));
    OK(regraph_free(e, fill.id));
    OK(regraph_pool_is_short(e, it.pool, &suspended));
    CHECK(!suspended);
    IS(REGRAPH_ERROR_POOL_SUSPENDED, regraph_pool_compact(e, it.pool, &bytes));
    IS(REGRAPH_ERROR_POOL_SUSPENDED, regraph_pool_get_excess_bytes(e, it.pool, &bytes));
    OK(regraph_pool_resume(e, it.pool, &bytes));
    CHECK(bytes == 8 * MIB);
    OK(regraph_free(e, block.id));
    OK(regraph_mark_stream(e, it.b));
    OK(regraph_may_capture(e, it.b));
    regraph_engine_destroy(e);
    OK(regraph_abandon_capture(uncached.engine, uncached.capture));
    IS(REGRAPH_ERROR_CANNOT_SUSPEND, regraph_pool_suspend(uncached.engine, uncached.pool, NULL));
    regraph_engine_destroy(uncached.engine);
}

/* A graph whose memory comes at its end, of a block of so many MiB. */
static regraph_graph_id of_one_block(bench it, uint64_t mib) {
    regraph_plan_options options;
    regraph_capture_id capture;
    regraph_capture_report report;
    regraph_block block;
    memset(&options, 0, sizeof options);
    options.max_mappings = 1;
    OK(regraph_begin_stream_capture(it.engine, it.pool, it.a, REGRAPH_CAPTURE_RELAXED, &capture));
    OK(regraph_plan_capture(it.engine, capture, &options));
    OK(regraph_allocate(it.engine, it.pool, mib * MIB, it.a, &block));
    OK(regraph_sim_launch(it.engine, it.a, false));
    OK(regraph_free(it.engine, block.id));
    OK(regraph_finish_stream_capture(it.engine, capture, &report));
    return report.graph;
}

static void compacting(void) {
    bench it = begin("plan:exact", false);
    regraph_engine *e = it.engine;
    const uint64_t sizes[] = {40, 30};
    regraph_block block;
    regraph_graph_id graphs[2];
    regraph_graph graph = NULL;
    uint64_t excess = 77, gone = 78;
    bool is_short = true;
    int i;
    OK(regraph_allocate(e, it.pool, MIB, it.a, &block));
    IS(REGRAPH_ERROR_POOL_BUSY, regraph_pool_compact(e, it.pool, &gone));
    SAYS("regraph_pool_compact(): ");
    CHECK(gone == 78);
    OK(regraph_free(e, block.id));
    OK(regraph_abandon_capture(e, it.capture));
    OK(regraph_sim_end_capture(e, it.a, &graph));
    OK(regraph_sim_destroy_graph(e, graph));
    /* The larger piece does not fit the smaller graph. */
    for (i = 0; i < 2; i++) graphs[i] = of_one_block(it, sizes[i]);
    CHECK(statistics(e).all.reserved_bytes.current == 70 * MIB);
    OK(regraph_pool_get_excess_bytes(e, it.pool, &excess));
    CHECK(excess == 30 * MIB);
    OK(regraph_pool_compact(e, it.pool, &gone));
    CHECK(gone == excess && statistics(e).all.reserved_bytes.current == 40 * MIB);
    OK(regraph_pool_compact(e, it.pool, NULL));
    OK(regraph_pool_get_excess_bytes(e, it.pool, &excess));
    OK(regraph_pool_is_short(e, it.pool, &is_short));
    CHECK(excess == 0 && !is_short);
    for (i = 0; i < 2; i++) OK(regraph_launch_graph(e, graphs[i], it.a));
    OK(regraph_pool_synchronize(e, it.pool));
    for (i = 0; i < 2; i++) OK(regraph_release_graph(e, graphs[i]));
    regraph_engine_destroy(e);
}

/* Work in three blocks: the last, of 40 MiB, fits neither the 30 that are free by then nor the gaps. */
static void three_blocks(bench it) {
    const uint64_t sizes[] = {30, 10, 40};
    regraph_block blocks[3];
    int i;
    for (i = 0; i < 3; i++) {
        OK(regraph_allocate(it.engine, it.pool, sizes[i] * MIB, it.a, &blocks[i]));
        OK(regraph_sim_launch(it.engine, it.a, false));
        if (i == 1) OK(regraph_free(it.engine, blocks[0].id));
    }
    OK(regraph_free(it.engine, blocks[1].id));
    OK(regraph_free(it.engine, blocks[2].id));
}

/* What a pool holds after a capture of that work. */
static uint64_t held_by_a_capture(bench it) {
    regraph_capture_id capture;
    regraph_capture_report report;
    regraph_statistics held;
    OK(regraph_pool_create(it.engine, REGRAPH_NO_LIMIT, &it.pool));
    OK(regraph_begin_stream_capture(it.engine, it.pool, it.a, REGRAPH_CAPTURE_RELAXED, &capture));
    three_blocks(it);
    OK(regraph_finish_stream_capture(it.engine, capture, &report));
    CHECK(report.verified);
    OK(regraph_pool_get_statistics(it.engine, it.pool, &held));
    OK(regraph_release_graph(it.engine, report.graph));
    return held.all.reserved_bytes.current;
}

static void learning(void) {
    bench it = begin("", false);
    regraph_engine *e = it.engine;
    regraph_graph graph = NULL;
    uint64_t blocks = 77;
    OK(regraph_abandon_capture(e, it.capture));
    OK(regraph_sim_end_capture(e, it.a, &graph));
    OK(regraph_sim_destroy_graph(e, graph));
    IS(REGRAPH_ERROR_NULL, regraph_learn(NULL));
    IS(REGRAPH_ERROR_NULL, regraph_learned(NULL, &blocks));
    IS(REGRAPH_ERROR_NULL, regraph_forget_learned(NULL));
    CHECK(blocks == 77);
    OK(regraph_learned(e, &blocks)); /* nothing was noted */
    CHECK(blocks == 0);
    CHECK(held_by_a_capture(it) == 80 * MIB);
    OK(regraph_learn(e));
    three_blocks(it);
    OK(regraph_learned(e, &blocks));
    CHECK(blocks == 3);
    CHECK(held_by_a_capture(it) == 50 * MIB);
    OK(regraph_forget_learned(e));
    CHECK(held_by_a_capture(it) == 80 * MIB);
    OK(regraph_learn(e));
    OK(regraph_learned(e, NULL));
    regraph_engine_destroy(e);
}

/* What a graph of that work needs, without any memory for it. */
static void estimating(void) {
    bench it = begin("", false);
    regraph_engine *e = it.engine;
    regraph_graph graph = NULL;
    regraph_capture_id capture;
    regraph_needs needs = {77, 0, 0, 0};
    regraph_statistics held;
    const regraph_pool own = it.pool;
    OK(regraph_abandon_capture(e, it.capture));
    OK(regraph_sim_end_capture(e, it.a, &graph));
    OK(regraph_sim_destroy_graph(e, graph));
    IS(REGRAPH_ERROR_NULL, regraph_estimate_begin(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_estimate_begin(NULL, &it.pool));
    OK(regraph_estimate_begin(e, &it.pool));
    for (int turn = 0; turn < 2; turn++) {
        OK(regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_RELAXED, &capture));
        three_blocks(it);
        OK(regraph_show_stream_capture(e, capture));
        IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_show_stream_capture(e, capture));
    }
    OK(regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_RELAXED, &capture));
    three_blocks(it);
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_repeat_stream_capture(e, &capture)); /* it would have memory */
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_finish_stream_capture(e, capture, NULL));
    SAYS("end it with regraph_show_stream_capture()");
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_estimate_end(e, it.pool, &needs));
    SAYS("regraph_estimate_end(): ");
    SAYS("end each with regraph_show_stream_capture()");
    OK(regraph_abandon_capture(e, capture));
    /* A capture of the caller's, by its begin and by what it allocates. */
    OK(regraph_sim_begin_capture(e, it.a));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_begin_capture(e, it.pool, it.a, &capture));
    OK(regraph_begin_capture(e, own, it.a, &capture));
    three_blocks(it);
    OK(regraph_sim_end_capture(e, it.a, &graph));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_end_capture(e, capture, graph, NULL));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_close_capture(e, capture, graph));
    OK(regraph_abandon_capture(e, capture));
    OK(regraph_sim_destroy_graph(e, graph));
    OK(regraph_begin_stream_capture(e, own, it.a, REGRAPH_CAPTURE_RELAXED, &capture));
    IS(REGRAPH_ERROR_UNKNOWN_CAPTURE, regraph_show_stream_capture(e, capture)); /* no estimate's */
    OK(regraph_abandon_capture(e, capture));
    OK(regraph_empty_cache(e, NULL)); /* of the caller's capture */
    OK(regraph_get_statistics(e, &held));
    CHECK(held.all.reserved_bytes.current == 0);
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_estimate_end(e, own, &needs));
    CHECK(needs.pool_bytes == 77);
    OK(regraph_estimate_end(e, it.pool, &needs));
    CHECK(needs.pool_bytes == 80 * MIB && needs.most_pool_bytes == 82 * MIB);
    CHECK(needs.executable_bytes == 0 && needs.most_executable_bytes == 0);
    IS(REGRAPH_ERROR_UNKNOWN_POOL, regraph_estimate_end(e, it.pool, NULL));
    IS(REGRAPH_ERROR_UNKNOWN_POOL,
       regraph_begin_stream_capture(e, it.pool, it.a, REGRAPH_CAPTURE_RELAXED, &capture));
    CHECK(held_by_a_capture(it) == needs.pool_bytes);
    OK(regraph_estimate_begin(e, &it.pool));
    OK(regraph_estimate_end(e, it.pool, NULL));
    OK(regraph_estimate_begin(e, &it.pool));
    OK(regraph_sim_fail_driver_call(e, 0));
    IS(REGRAPH_ERROR_DRIVER, regraph_estimate_end(e, it.pool, &needs));
    OK(regraph_estimate_begin(e, &it.pool)); /* goes with the engine */
    regraph_engine_destroy(e);
    it = begin("caching:False", false);
    OK(regraph_abandon_capture(it.engine, it.capture));
    OK(regraph_estimate_begin(it.engine, &it.pool));
    IS(REGRAPH_ERROR_CANNOT_PLAN,
       regraph_begin_stream_capture(it.engine, it.pool, it.b, REGRAPH_CAPTURE_RELAXED, &capture));
    regraph_engine_destroy(it.engine);
}

static void snapshots(void) {
    bench it = begin("stacks:True", false);
    regraph_engine *e = it.engine;
    regraph_block block;
    regraph_leak_list *leaks = NULL;
    char *text = NULL;
    OK(regraph_record_history(e, 100));
    OK(regraph_allocate(e, it.pool, 4 * MIB, it.a, &block));
    OK(regraph_get_leaks(e, &leaks));
    CHECK(strstr(regraph_leak_list_get(leaks, 0)->text, "\n") != NULL); /* with frames */
    regraph_leak_list_destroy(leaks);
    OK(regraph_snapshot_json(e, &text));
    CHECK(strstr(text, "\"segments\"") != NULL && strstr(text, "\"alloc\"") != NULL);
    regraph_string_destroy(text);
    OK(regraph_write_snapshot_json(e, "snapshot.json"));
    OK(regraph_write_snapshot_pickle(e, "snapshot.pickle"));
    IS(REGRAPH_ERROR_IO, regraph_write_snapshot_json(e, "no/such/folder/x"));
    IS(REGRAPH_ERROR_IO, regraph_write_snapshot_pickle(e, "no/such/folder/x"));
    IS(REGRAPH_ERROR_INVALID_TEXT, regraph_write_snapshot_json(e, "\xff"));
    OK(regraph_record_history(e, 0));
    OK(regraph_free(e, block.id));
    OK(regraph_abandon_capture(e, it.capture));
    regraph_engine_destroy(e);
}

static void failures_of_the_driver_and_panics(void) {
    bench it = begin("", false);
    regraph_engine *e = it.engine;
    regraph_block block;
    OK(regraph_sim_fail_driver_call(e, 0));
    IS(REGRAPH_ERROR_DRIVER, regraph_allocate(e, it.pool, 4 * MIB, it.a, &block));
    CHECK(regraph_last_driver_code() == 800);
    SAYS("not permitted");
    IS(REGRAPH_ERROR_PANIC, regraph_sim_panic(e));
    SAYS("regraph_sim_panic was called");
    CHECK(regraph_last_driver_code() == 0);
    OK(regraph_allocate(e, it.pool, 4 * MIB, it.a, &block)); /* unharmed */
    OK(regraph_free(e, block.id));
    OK(regraph_abandon_capture(e, it.capture));
    regraph_engine_destroy(e);
}

/* Messages go to the callback that was named last, and nowhere else. */
typedef struct {
    int calls;
    int32_t level;
    bool told;
} sink;

static void take(int32_t level, const char *message, void *user_data) {
    sink *to = user_data;
    to->calls++;
    to->level = level;
    to->told = to->told || strstr(message, "4 MiB at ") != NULL;
}

static void leave_a_block(void) {
    regraph_engine *e = NULL;
    regraph_pool pool;
    regraph_stream stream;
    regraph_block block;
    OK(regraph_engine_create_sim(64 * MIB, NULL, &e));
    OK(regraph_pool_create(e, REGRAPH_NO_LIMIT, &pool));
    OK(regraph_sim_create_stream(e, &stream));
    OK(regraph_allocate(e, pool, 4 * MIB, stream, &block));
    regraph_engine_destroy(e);
}

static void messages(void) {
    sink first = {0, 0, false}, second = {0, 0, false};
    OK(regraph_set_log_callback(take, &first));
    leave_a_block();
    CHECK(first.calls == 1 && first.level == REGRAPH_LOG_WARNING && first.told);
    OK(regraph_set_log_callback(take, &second));
    leave_a_block();
    CHECK(first.calls == 1 && second.calls == 1 && second.told);
    OK(regraph_set_log_callback(NULL, NULL));
    leave_a_block();
    CHECK(first.calls == 1 && second.calls == 1);
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_set_log_level(5));
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_set_log_level(-1));
    OK(regraph_set_log_level(REGRAPH_LOG_DEBUG));
    OK(regraph_set_log_callback(take, &first));
    {
        /* The engine, its pool, its growth, and the leak. */
        sink all = {0, 0, false};
        OK(regraph_set_log_callback(take, &all));
        leave_a_block();
        CHECK(all.calls >= 4 && all.told);
    }
    OK(regraph_set_log_level(0));
    OK(regraph_set_log_callback(take, &second));
    leave_a_block();
    CHECK(first.calls == 1 && second.calls == 1);
    OK(regraph_set_log_level(REGRAPH_LOG_WARNING));
    OK(regraph_set_log_callback(NULL, NULL));
}

static void metrics(void) {
    bench it = begin("", false);
    regraph_block block;
    char *text = NULL;
    OK(regraph_allocate(it.engine, it.pool, 4 * MIB, it.a, &block));
    IS(REGRAPH_ERROR_NULL, regraph_metrics(it.engine, NULL));
    OK(regraph_metrics(it.engine, &text));
    CHECK(strstr(text, "# TYPE regraph_reserved_bytes gauge\n") != NULL);
    CHECK(strstr(text, "regraph_pool_allocated_bytes{device=\"0\",pool=\"0\",name=\"\",region=\"\"} 4194304\n") != NULL);
    regraph_string_destroy(text);
    OK(regraph_free(it.engine, block.id));
    OK(regraph_abandon_capture(it.engine, it.capture));
    regraph_engine_destroy(it.engine);
}

/* A stale pointer is told from an engine, and a text that was shown outlives calls that fail. */
static void destroyed(void) {
    regraph_engine *e = NULL, *other = NULL;
    regraph_pool pool;
    regraph_statistics figures;
    const char *shown;
    OK(regraph_engine_create_sim(64 * MIB, NULL, &e));
    OK(regraph_engine_create_sim(64 * MIB, NULL, &other));
    regraph_engine_destroy(e);
    IS(REGRAPH_ERROR_DESTROYED, regraph_pool_create(e, REGRAPH_NO_LIMIT, &pool));
    SAYS("destroyed");
    IS(REGRAPH_ERROR_DESTROYED, regraph_get_statistics(e, &figures));
    regraph_engine_destroy(e);
    OK(regraph_get_statistics(other, &figures));
    regraph_engine_destroy(other);
    IS(REGRAPH_ERROR_DESTROYED, regraph_get_statistics(other, &figures));
    shown = regraph_last_error_message();
    IS(REGRAPH_ERROR_NULL, regraph_config_create(NULL));
    CHECK(strstr(shown, "destroyed") != NULL);
    CHECK(strstr(regraph_last_error_message(), "destroyed") == NULL);
}

static void devices(void) {
    regraph_device_list *devices = NULL;
    regraph_error found = regraph_get_devices(&devices);
    size_t row;
    if (found != REGRAPH_OK) {
        /* A machine without a driver, or with one that is too old. */
        IS(REGRAPH_ERROR_NO_DRIVER, found == REGRAPH_ERROR_DRIVER_TOO_OLD ? REGRAPH_ERROR_NO_DRIVER : found);
        CHECK(devices == NULL);
        return;
    }
    for (row = 0; row < regraph_device_list_count(devices); row++) {
        const regraph_device *device = regraph_device_list_get(devices, row);
        CHECK(device->ordinal == row && device->total_bytes > 0 && device->name[0] != 0);
    }
    CHECK(regraph_device_list_get(devices, row) == NULL);
    regraph_device_list_destroy(devices);
}

/* The pools of an engine, with their names. */
static void pools_by_name(void) {
    regraph_engine *e = NULL;
    regraph_pool plain, named, tagged;
    regraph_stream stream;
    regraph_block block;
    regraph_pool_list *pools = NULL;
    const regraph_pool_info *row;
    OK(regraph_engine_create_sim(256 * MIB, NULL, &e));
    OK(regraph_pool_create(e, REGRAPH_NO_LIMIT, &plain));
    OK(regraph_pool_create_named(e, "decoder", 8 * MIB, &named));
    OK(regraph_pool_create_in_region(e, "weights", NULL, REGRAPH_NO_LIMIT, &tagged));
    OK(regraph_sim_create_stream(e, &stream));
    OK(regraph_allocate(e, named, 4 * MIB, stream, &block));
    OK(regraph_get_pools(e, &pools));
    CHECK(regraph_pool_list_count(pools) == 3 && regraph_pool_list_get(pools, 3) == NULL);
    row = regraph_pool_list_get(pools, 0);
    CHECK(row->name == NULL && row->tag == NULL && row->blocks == 0);
    row = regraph_pool_list_get(pools, 1);
    CHECK(strcmp(row->name, "decoder") == 0 && row->blocks == 1);
    CHECK(row->allocated_bytes == 4 * MIB && row->reserved_bytes >= 4 * MIB);
    CHECK(memcmp(&row->pool, &named, sizeof named) == 0);
    row = regraph_pool_list_get(pools, 2);
    CHECK(row->name == NULL && strcmp(row->tag, "weights") == 0);
    /* The list is of its time. */
    OK(regraph_pool_set_name(e, named, "encoder"));
    OK(regraph_pool_set_name(e, tagged, "layers"));
    CHECK(strcmp(regraph_pool_list_get(pools, 1)->name, "decoder") == 0);
    regraph_pool_list_destroy(pools);
    IS(REGRAPH_ERROR_OUT_OF_MEMORY, regraph_allocate(e, named, 9 * MIB, stream, &block));
    SAYS("encoder");
    OK(regraph_pool_set_name(e, named, NULL));
    OK(regraph_get_pools(e, &pools));
    CHECK(regraph_pool_list_get(pools, 1)->name == NULL);
    CHECK(strcmp(regraph_pool_list_get(pools, 2)->name, "layers") == 0);
    regraph_pool_list_destroy(pools);
    OK(regraph_free(e, block.id));
    regraph_engine_destroy(e);
}

int main(void) {
    versions_and_names();
    configs();
    cuda();
    nulls();
    names_that_name_nothing();
    limits();
    observers();
    a_capture();
    a_refused_capture();
    a_capture_again();
    an_end_of_two_steps();
    a_ruined_capture();
    a_ruined_capture_in_a_pool_that_was_given_up();
    journals();
    plans();
    suspending();
    compacting();
    learning();
    estimating();
    snapshots();
    failures_of_the_driver_and_panics();
    messages();
    metrics();
    destroyed();
    devices();
    pools_by_name();
    printf("%d checks\n", checks);
    return 0;
}
