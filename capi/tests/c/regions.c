/* Regions: memory by tag that sleeps and wakes. */
#include "check.h"

typedef struct {
    regraph_engine *engine;
    regraph_pool weights, cache;
    regraph_stream stream;
    regraph_block layer, keys;
} model;

static model begin(void) {
    model it;
    memset(&it, 0, sizeof it);
    OK(regraph_engine_create_sim(1024 * MIB, NULL, &it.engine));
    OK(regraph_pool_create_in_region(it.engine, "weights", "layers", REGRAPH_NO_LIMIT, &it.weights));
    OK(regraph_pool_create_in_region(it.engine, "cache", NULL, REGRAPH_NO_LIMIT, &it.cache));
    OK(regraph_sim_create_stream(it.engine, &it.stream));
    OK(regraph_allocate(it.engine, it.weights, 64 * MIB, it.stream, &it.layer));
    OK(regraph_allocate(it.engine, it.cache, 256 * MIB, it.stream, &it.keys));
    return it;
}

static uint64_t used(model it) {
    uint64_t bytes = 0;
    OK(regraph_sim_used_bytes(it.engine, &bytes));
    return bytes;
}

static bool asleep(model it, const char *tag) {
    bool known = false;
    OK(regraph_regions_is_asleep(it.engine, tag, &known));
    return known;
}

static regraph_region region(model it, size_t row, const char *tag) {
    regraph_region_list *list = NULL;
    regraph_region found;
    OK(regraph_regions_report(it.engine, &list));
    CHECK(regraph_region_list_count(list) == 2);
    CHECK(regraph_region_list_get(list, 2) == NULL);
    found = *regraph_region_list_get(list, row);
    CHECK(strcmp(found.tag, tag) == 0 && found.pools == 1);
    regraph_region_list_destroy(list);
    return found;
}

static void regions_sleep_and_wake(void) {
    static const char *const weights[] = {"weights"};
    static const char *const both[] = {"cache", "weights"};
    model it = begin();
    regraph_engine *e = it.engine;
    regraph_block block;
    uint64_t bytes = 0;
    OK(regraph_regions_set_backup(e, "cache", REGRAPH_BACKUP_NONE));
    CHECK(region(it, 1, "weights").awake_bytes == 64 * MIB);
    CHECK(region(it, 1, "weights").backup == REGRAPH_BACKUP_HOST);
    CHECK(region(it, 0, "cache").backup == REGRAPH_BACKUP_NONE);

    OK(regraph_regions_sleep(e, NULL, 0, &bytes));
    CHECK(bytes == 320 * MIB && used(it) == 0 && asleep(it, "weights") && asleep(it, "cache"));
    CHECK(region(it, 1, "weights").asleep_bytes == 64 * MIB);
    CHECK(region(it, 1, "weights").host_bytes == 64 * MIB && region(it, 0, "cache").host_bytes == 0);
    CHECK(region(it, 1, "weights").slept.bytes == 64 * MIB && region(it, 1, "weights").woke.bytes == 0);
    OK(regraph_regions_get_host_bytes(e, &bytes));
    CHECK(bytes == 64 * MIB);

    /* What sleeps is refused, and its region is named. */
    IS(REGRAPH_ERROR_POOL_SUSPENDED, regraph_allocate(e, it.weights, MIB, it.stream, &block));
    SAYS("pool \"layers\" of region \"weights\"");
    NAMED(REGRAPH_ERROR_POOL_ASLEEP, regraph_pool_resume(e, it.weights, NULL));
    SAYS("region \"weights\"");

    OK(regraph_regions_wake(e, weights, 1, &bytes));
    CHECK(bytes == 64 * MIB && !asleep(it, "weights") && asleep(it, "cache"));
    CHECK(region(it, 1, "weights").woke.copied_bytes == 64 * MIB);
    OK(regraph_regions_wake(e, both, 2, NULL));
    CHECK(used(it) == 320 * MIB && !asleep(it, "cache"));
    OK(regraph_regions_free_host(e, &bytes));
    CHECK(bytes == 64 * MIB);
    OK(regraph_regions_free_host(e, NULL));
    OK(regraph_regions_reserve_host(e, 64 * MIB, &bytes));
    CHECK(bytes == 64 * MIB);
    OK(regraph_regions_reserve_host(e, 64 * MIB, NULL));
    NAMED(REGRAPH_ERROR_HOST_OUT_OF_MEMORY, regraph_regions_reserve_host(e, UINT64_MAX, &bytes));
    SAYS("18446744073709551615 bytes");
    SAYS("the host has 1099511627776");
    OK(regraph_regions_get_host_bytes(e, &bytes));
    CHECK(bytes == 64 * MIB);

    /* One that stays. */
    OK(regraph_regions_set_backup(e, "cache", REGRAPH_BACKUP_DEVICE));
    OK(regraph_regions_try_sleep(e, both, 2, &bytes));
    CHECK(bytes == 64 * MIB && !asleep(it, "cache"));
    OK(regraph_free(e, it.layer.id));
    OK(regraph_free(e, it.keys.id));
    regraph_engine_destroy(e);
}

static void contents_are_kept_in_files(void) {
    static const char *const tags[] = {"weights"};
    model it = begin();
    regraph_engine *e = it.engine;
    regraph_region_list *list = NULL;
    const regraph_region *row;
    uint64_t bytes = 0;
    OK(regraph_regions_set_file_backup(e, "weights", "no such folder"));
    IS(REGRAPH_ERROR_IO, regraph_regions_sleep(e, tags, 1, NULL));
    SAYS("no such folder");
    CHECK(!asleep(it, "weights"));

    OK(regraph_regions_set_file_backup(e, "weights", "."));
    OK(regraph_regions_sleep(e, tags, 1, &bytes));
    CHECK(bytes == 64 * MIB && asleep(it, "weights"));
    OK(regraph_regions_report(e, &list));
    row = regraph_region_list_get(list, 1);
    CHECK(row->backup == REGRAPH_BACKUP_FILE && strcmp(row->folder, ".") == 0);
    CHECK(row->file_bytes == 64 * MIB && row->host_bytes == 0 && row->slept.copied_bytes == 64 * MIB);
    CHECK(regraph_region_list_get(list, 0)->folder == NULL);
    regraph_region_list_destroy(list);
    OK(regraph_regions_get_host_bytes(e, &bytes));
    CHECK(bytes > 0 && bytes <= 64 * MIB);
    OK(regraph_regions_wake(e, tags, 1, &bytes));
    CHECK(bytes == 64 * MIB && region(it, 1, "weights").file_bytes == 0);

    OK(regraph_regions_set_shared_backup(e, "weights", "weights.shared"));
    for (int turn = 0; turn < 2; turn++) { /* written, then found */
        OK(regraph_regions_sleep(e, tags, 1, &bytes));
        OK(regraph_regions_report(e, &list));
        row = regraph_region_list_get(list, 1);
        CHECK(row->backup == REGRAPH_BACKUP_SHARED && strcmp(row->folder, "weights.shared") == 0);
        CHECK(row->file_bytes == 64 * MIB && row->slept.copied_bytes == 64 * MIB);
        regraph_region_list_destroy(list);
        OK(regraph_regions_wake(e, tags, 1, &bytes));
        CHECK(bytes == 64 * MIB);
    }
    CHECK(remove("weights.shared") == 0);
    OK(regraph_free(e, it.layer.id));
    OK(regraph_free(e, it.keys.id));
    regraph_engine_destroy(e);
}

static void graphs_are_waited_for_or_refused(void) {
    static const char *const tags[] = {"graphs"};
    model it = begin();
    regraph_engine *e = it.engine;
    regraph_pool pool;
    regraph_capture_id capture;
    regraph_capture_report report;
    regraph_block block;
    OK(regraph_pool_create_in_region(e, "graphs", NULL, REGRAPH_NO_LIMIT, &pool));
    OK(regraph_begin_stream_capture(e, pool, it.stream, REGRAPH_CAPTURE_THREAD_LOCAL, &capture));
    OK(regraph_allocate(e, pool, 4 * MIB, it.stream, &block));
    OK(regraph_sim_launch(e, it.stream, false));
    OK(regraph_free(e, block.id));
    IS(REGRAPH_ERROR_DEVICE_CAPTURES, regraph_regions_sleep(e, NULL, 0, NULL));
    OK(regraph_finish_stream_capture(e, capture, &report));
    OK(regraph_launch_graph(e, report.graph, it.stream));
    IS(REGRAPH_ERROR_POOL_RUNS, regraph_regions_try_sleep(e, tags, 1, NULL));
    SAYS("region \"graphs\"");
    OK(regraph_regions_sleep(e, tags, 1, NULL));
    IS(REGRAPH_ERROR_POOL_SUSPENDED, regraph_launch_graph(e, report.graph, it.stream));
    SAYS("region \"graphs\"");
    OK(regraph_regions_wake(e, tags, 1, NULL));
    OK(regraph_launch_graph(e, report.graph, it.stream));
    OK(regraph_release_graph(e, report.graph));
    OK(regraph_free(e, it.layer.id));
    OK(regraph_free(e, it.keys.id));
    regraph_engine_destroy(e);
}

static void arguments_that_are_wrong(void) {
    static const char *const unknown[] = {"weights", "weight"};
    static const char *const null_tag[] = {NULL};
    static const char *const no_text[] = {"\xff"};
    model it = begin();
    regraph_engine *e = it.engine;
    regraph_pool pool;
    regraph_region_list *list = NULL;
    uint64_t bytes = 7;
    bool known = false;
    NAMED(REGRAPH_ERROR_UNKNOWN_REGION, regraph_regions_sleep(e, unknown, 2, &bytes));
    SAYS("\"weight\"");
    CHECK(bytes == 7 && !asleep(it, "weights"));
    NAMED(REGRAPH_ERROR_UNKNOWN_REGION, regraph_regions_try_sleep(e, unknown, 2, NULL));
    NAMED(REGRAPH_ERROR_UNKNOWN_REGION, regraph_regions_wake(e, unknown, 2, NULL));
    NAMED(REGRAPH_ERROR_UNKNOWN_REGION, regraph_regions_is_asleep(e, "weight", &known));
    IS(REGRAPH_ERROR_NULL, regraph_regions_sleep(e, null_tag, 1, NULL));
    SAYS("`tags[0]` is null");
    IS(REGRAPH_ERROR_NULL, regraph_regions_sleep(e, NULL, 1, NULL));
    IS(REGRAPH_ERROR_INVALID_TEXT, regraph_regions_sleep(e, no_text, 1, NULL));
    OK(regraph_regions_sleep(e, unknown, 0, &bytes)); /* none */
    CHECK(bytes == 0);
    IS(REGRAPH_ERROR_INVALID_ARGUMENT, regraph_regions_set_backup(e, "weights", REGRAPH_BACKUP_FILE));
    SAYS("regraph_regions_set_file_backup");
    IS(REGRAPH_ERROR_NULL, regraph_regions_set_file_backup(e, "weights", NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_set_file_backup(e, NULL, "."));
    IS(REGRAPH_ERROR_INVALID_TEXT, regraph_regions_set_file_backup(e, "weights", "\xff"));
    IS(REGRAPH_ERROR_NULL, regraph_regions_set_shared_backup(e, "weights", NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_set_shared_backup(e, NULL, "weights"));
    IS(REGRAPH_ERROR_INVALID_TEXT, regraph_regions_set_shared_backup(e, "weights", "\xff"));
    IS(REGRAPH_ERROR_NULL, regraph_regions_set_backup(e, NULL, REGRAPH_BACKUP_NONE));
    OK(regraph_regions_set_backup(e, "later", REGRAPH_BACKUP_NONE));
    OK(regraph_regions_is_asleep(e, "later", &known));
    OK(regraph_regions_forget(e, "later"));
    OK(regraph_regions_forget(e, "later"));
    NAMED(REGRAPH_ERROR_UNKNOWN_REGION, regraph_regions_is_asleep(e, "later", &known));
    IS(REGRAPH_ERROR_NULL, regraph_regions_forget(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_forget(NULL, "x"));
    IS(REGRAPH_ERROR_INVALID_TEXT, regraph_pool_create_in_region(e, "\xff", NULL, MIB, &pool));
    IS(REGRAPH_ERROR_NULL, regraph_pool_create_in_region(e, "x", NULL, MIB, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_pool_create_in_region(NULL, "x", NULL, MIB, &pool));
    IS(REGRAPH_ERROR_NULL, regraph_regions_set_backup(NULL, "x", REGRAPH_BACKUP_NONE));
    IS(REGRAPH_ERROR_NULL, regraph_regions_sleep(NULL, NULL, 0, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_try_sleep(NULL, NULL, 0, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_wake(NULL, NULL, 0, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_is_asleep(e, NULL, &known));
    IS(REGRAPH_ERROR_NULL, regraph_regions_is_asleep(e, "weights", NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_get_host_bytes(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_free_host(NULL, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_reserve_host(NULL, 0, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_report(e, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_regions_report(NULL, &list));
    CHECK(regraph_region_list_count(NULL) == 0 && regraph_region_list_get(NULL, 0) == NULL);
    regraph_region_list_destroy(NULL);
    OK(regraph_free(e, it.layer.id));
    OK(regraph_free(e, it.keys.id));
    regraph_engine_destroy(e);
}

int main(void) {
    regions_sleep_and_wake();
    contents_are_kept_in_files();
    graphs_are_waited_for_or_refused();
    arguments_that_are_wrong();
    printf("%d checks\n", checks);
    return 0;
}
