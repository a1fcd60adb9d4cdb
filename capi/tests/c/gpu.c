/* A capture on two streams of a GPU. The CUDA driver is opened by name: no toolkit is needed. */
#include <dlfcn.h>

#include "check.h"

#define WORDS ((size_t)MIB)
#define BYTES (4 * MIB)

typedef struct CUevent_st *event;
typedef unsigned long long device_address;

static int (*create_stream)(regraph_stream *, unsigned);
static int (*destroy_stream)(regraph_stream);
static int (*begin_capture)(regraph_stream, int);
static int (*end_capture)(regraph_stream, regraph_graph *);
static int (*create_event)(event *, unsigned);
static int (*record_event)(event, regraph_stream);
static int (*wait_event)(regraph_stream, event, unsigned);
static int (*destroy_event)(event);
static int (*fill)(device_address, unsigned, size_t, regraph_stream);
static int (*copy)(device_address, device_address, size_t, regraph_stream);
static int (*read_back)(void *, device_address, size_t);
static int (*instantiate)(regraph_executable *, regraph_graph, unsigned long long);
static int (*launch)(regraph_executable, regraph_stream);
static int (*destroy_executable)(regraph_executable);
static int (*destroy_graph)(regraph_graph);
static int (*synchronize)(regraph_stream);

static void *driver;

static void find(const char *name, void *function) {
    *(void **)function = dlsym(driver, name);
    if (*(void **)function == NULL) fail(__FILE__, __LINE__, name, "not in libcuda");
}

#define CUDA(call) CHECK((call) == 0)

/* `stream` waits for what `on` holds. */
static void wait_for(regraph_stream stream, regraph_stream on, event with) {
    CUDA(record_event(with, on));
    CUDA(wait_event(stream, with, 0));
}

static void holds(uint64_t address, uint32_t value) {
    static uint32_t words[1 << 20];
    size_t index;
    CUDA(read_back(words, address, BYTES));
    for (index = 0; index < WORDS; index++) {
        if (words[index] != value) fail(__FILE__, __LINE__, "memory", "holds something else");
    }
    checks++;
}

int main(void) {
    regraph_device_list *devices = NULL;
    regraph_engine *engine = NULL;
    regraph_pool pool;
    regraph_stream a, b;
    event fork, join;
    regraph_block first, seen, second, third, outside;
    regraph_capture_id capture;
    regraph_explanation *explanation = NULL;
    regraph_graph graph;
    regraph_executable executable;
    regraph_capture_report report;
    uint64_t bytes = 0;
    int round;

    driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver != NULL);
    find("cuStreamCreate", &create_stream);
    find("cuStreamDestroy_v2", &destroy_stream);
    find("cuStreamBeginCapture_v2", &begin_capture);
    find("cuStreamEndCapture", &end_capture);
    find("cuEventCreate", &create_event);
    find("cuEventRecord", &record_event);
    find("cuStreamWaitEvent", &wait_event);
    find("cuEventDestroy_v2", &destroy_event);
    find("cuMemsetD32Async", &fill);
    find("cuMemcpyDtoDAsync_v2", &copy);
    find("cuMemcpyDtoH_v2", &read_back);
    find("cuGraphInstantiateWithFlags", &instantiate);
    find("cuGraphLaunch", &launch);
    find("cuGraphExecDestroy", &destroy_executable);
    find("cuGraphDestroy", &destroy_graph);
    find("cuStreamSynchronize", &synchronize);

    OK(regraph_get_devices(&devices));
    CHECK(regraph_device_list_count(devices) > 0);
    CHECK(regraph_device_list_get(devices, 0)->ordinal == 0 && regraph_device_list_get(devices, 0)->name[0] != 0);
    CHECK(regraph_device_list_get(devices, 0)->total_bytes > 1024 * MIB);
    regraph_device_list_destroy(devices);
    /* The device's primary context is current from here on, for there was none. */
    OK(regraph_engine_create_cuda(0, NULL, &engine));
    IS(REGRAPH_ERROR_NOT_SIMULATED, regraph_sim_create_stream(engine, &a));
    OK(regraph_pool_create(engine, REGRAPH_NO_LIMIT, &pool));
    CUDA(create_stream(&a, 1));
    CUDA(create_stream(&b, 1));
    CUDA(create_event(&fork, 2));
    CUDA(create_event(&join, 2));

    CUDA(begin_capture(a, 1));
    OK(regraph_begin_capture(engine, pool, a, &capture));
    OK(regraph_allocate(engine, pool, BYTES, a, &first));
    CUDA(fill(first.address, 7, WORDS, a));
    wait_for(b, a, fork);
    OK(regraph_allocate(engine, pool, BYTES, b, &seen));
    CUDA(copy(seen.address, first.address, BYTES, b));
    OK(regraph_record_stream(engine, first.id, b));
    OK(regraph_free(engine, first.id));
    OK(regraph_explain(engine, pool, a, &explanation));
    CHECK(regraph_explanation_count(explanation) == 1);
    CHECK(regraph_explanation_get(explanation, 0)->refusal == REGRAPH_REFUSAL_MARKER);
    regraph_explanation_destroy(explanation);
    OK(regraph_allocate(engine, pool, BYTES, a, &second));
    CHECK(second.address != first.address);
    CUDA(fill(second.address, 9, WORDS, a));
    wait_for(a, b, join);
    OK(regraph_allocate(engine, pool, BYTES, a, &third));
    CHECK(third.address == first.address);
    CUDA(fill(third.address, 5, WORDS, a));
    OK(regraph_write_trace(engine, capture, a, "capture.jsonl"));
    CUDA(end_capture(a, &graph));
    OK(regraph_end_capture(engine, capture, graph, &report));
    CHECK(report.nodes == 4 && report.blocks == 4 && report.verified);

    CUDA(instantiate(&executable, graph, 0));
    for (round = 0; round < 10; round++) CUDA(launch(executable, a));
    CUDA(synchronize(a));
    holds(seen.address, 7);
    holds(second.address, 9);
    holds(third.address, 5);

    /* Suspended and resumed, the graph runs at the same addresses. */
    OK(regraph_pool_suspend(engine, pool, &bytes));
    CHECK(bytes >= 3 * BYTES);
    OK(regraph_pool_resume(engine, pool, NULL));
    CUDA(launch(executable, a));
    CUDA(synchronize(a));
    holds(seen.address, 7);

    OK(regraph_allocate(engine, pool, BYTES, b, &outside));
    CHECK(outside.address != third.address && outside.address != second.address);
    CUDA(fill(outside.address, 3, WORDS, b));
    CUDA(synchronize(b));
    holds(outside.address, 3);

    OK(regraph_free(engine, outside.id));
    OK(regraph_free(engine, seen.id));
    OK(regraph_free(engine, second.id));
    OK(regraph_free(engine, third.id));
    CUDA(destroy_executable(executable));
    CUDA(destroy_graph(graph));
    OK(regraph_release_graph(engine, report.graph));

    /* A graph of the library's own, captured twice and launched on two streams in turn. */
    OK(regraph_begin_stream_capture(engine, pool, a, REGRAPH_CAPTURE_THREAD_LOCAL, &capture));
    for (round = 0; round < 2; round++) {
        if (round == 1) OK(regraph_repeat_stream_capture(engine, &capture));
        OK(regraph_allocate(engine, pool, BYTES, a, &first));
        CUDA(fill(first.address, 11, WORDS, a));
        OK(regraph_allocate(engine, pool, BYTES, a, &second));
        CUDA(copy(second.address, first.address, BYTES, a));
        OK(regraph_free(engine, first.id));
        OK(regraph_allocate(engine, pool, BYTES, a, &third));
        CUDA(fill(third.address, 13, WORDS, a));
        OK(regraph_free(engine, third.id));
        if (round == 0) OK(regraph_free(engine, second.id));
    }
    OK(regraph_capture_minimum_bytes(engine, capture, &bytes));
    CHECK(bytes == 2 * BYTES);
    OK(regraph_finish_stream_capture(engine, capture, &report));
    CHECK(report.verified && report.layout_blocks == 3 && report.layout_followed == 3);
    CHECK(third.address == first.address);
    OK(regraph_graph_get_handles(engine, report.graph, &graph, &executable));
    CHECK(graph != NULL && executable != NULL);
    for (round = 0; round < 10; round++) {
        OK(regraph_launch_graph(engine, report.graph, round % 2 == 0 ? a : b));
    }
    OK(regraph_pool_follow(engine, pool, a));
    CUDA(fill(second.address, 17, WORDS, a)); /* after the last launch */
    CUDA(synchronize(a));
    holds(second.address, 17);
    OK(regraph_launch_graph(engine, report.graph, b));
    OK(regraph_pool_synchronize(engine, pool));
    holds(second.address, 11);
    holds(third.address, 13);
    OK(regraph_free(engine, second.id));
    OK(regraph_launch_graph(engine, report.graph, b));
    OK(regraph_release_graph(engine, report.graph)); /* while it runs */
    OK(regraph_pool_synchronize(engine, pool));

    /* An executable of the caller's, in the same order. */
    CUDA(begin_capture(a, 1));
    OK(regraph_begin_capture(engine, pool, a, &capture));
    OK(regraph_allocate(engine, pool, BYTES, a, &first));
    CUDA(fill(first.address, 19, WORDS, a));
    CUDA(end_capture(a, &graph));
    OK(regraph_end_capture(engine, capture, graph, &report));
    CUDA(instantiate(&executable, graph, 0));
    OK(regraph_launch_executable(engine, report.graph, executable, a));
    OK(regraph_launch_executable(engine, report.graph, executable, b));
    OK(regraph_pool_synchronize(engine, pool));
    holds(first.address, 19);
    OK(regraph_free(engine, first.id));
    OK(regraph_release_graph(engine, report.graph));
    CUDA(destroy_executable(executable));
    CUDA(destroy_graph(graph));

    OK(regraph_retire_stream(engine, a));
    OK(regraph_retire_stream(engine, b));
    CUDA(destroy_event(fork));
    CUDA(destroy_event(join));
    CUDA(destroy_stream(a));
    CUDA(destroy_stream(b));
    OK(regraph_pool_destroy(engine, pool));
    regraph_engine_destroy(engine);
    printf("%d checks\n", checks);
    return 0;
}
