// Several threads on one engine, from C++: each has blocks, errors and messages of its own.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <regraph.h>

static std::atomic<int> told{0};

extern "C" void observer(const regraph_out_of_memory *, void *) { told++; }

static void must(bool holds, const char *what) {
    if (!holds) {
        std::fprintf(stderr, "%s: %s\n", what, regraph_last_error_message());
        std::exit(EXIT_FAILURE);
    }
}

static void work(const regraph_engine *engine, regraph_pool pool, regraph_pool small, int number) {
    regraph_stream stream = nullptr;
    must(regraph_sim_create_stream(engine, &stream) == REGRAPH_OK, "stream");
    for (int round = 0; round < 500; round++) {
        regraph_block block{};
        const std::uint64_t bytes = static_cast<std::uint64_t>(1 + round % 7) << 12;
        must(regraph_allocate(engine, pool, bytes, stream, &block) == REGRAPH_OK, "allocate");
        must(regraph_sim_launch(engine, stream, false) == REGRAPH_OK, "launch");
        must(regraph_free(engine, block.id) == REGRAPH_OK, "free");
        must(regraph_free(engine, block.id) == REGRAPH_ERROR_UNKNOWN_BLOCK, "free twice");
        if (round % 100 == 0) {
            const auto error = regraph_allocate(engine, small, 9 << 20, stream, &block);
            must(error == REGRAPH_ERROR_OUT_OF_MEMORY, "out of memory");
            const std::string message = regraph_last_error_message();
            must(message.find("out of memory") != std::string::npos, "the thread's own message");
        }
    }
    must(number >= 0 && regraph_retire_stream(engine, stream) == REGRAPH_OK, "retire");
}

int main() {
    regraph_engine *engine = nullptr;
    regraph_pool pool{}, small{};
    must(regraph_engine_create_sim(0, nullptr, &engine) == REGRAPH_OK, "engine");
    must(regraph_pool_create(engine, REGRAPH_NO_LIMIT, &pool) == REGRAPH_OK, "pool");
    must(regraph_pool_create(engine, 8 << 20, &small) == REGRAPH_OK, "small pool");
    must(regraph_observe_out_of_memory(engine, observer, nullptr) == REGRAPH_OK, "observer");
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; number++) threads.emplace_back(work, engine, pool, small, number);
    for (auto &thread : threads) thread.join();
    must(told == 20, "every failure was told once");
    regraph_statistics figures;
    must(regraph_get_statistics(engine, &figures) == REGRAPH_OK, "statistics");
    must(figures.all.allocation.allocated == 2000 && figures.all.allocation.current == 0, "figures");
    regraph_engine_destroy(engine);
    std::puts("four threads");
    return EXIT_SUCCESS;
}
