// A program that is built for per-thread default streams: 0 is the calling thread's own stream there.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include <cstdint>

#include <regraph.hpp>

#include "check.h"

using namespace regraph;

int main() {
    const engine simulated = engine::sim(0);
    pool blocks(simulated);
    const auto refused = [&](regraph_stream stream) {
        regraph_error code = REGRAPH_OK;
        return !blocks.try_allocate(512, stream, code) && code == REGRAPH_ERROR_PER_THREAD_STREAM;
    };
    CHECK(refused(nullptr));
    CHECK(refused(reinterpret_cast<regraph_stream>(std::uintptr_t{2})));
    // The legacy stream has a handle of its own.
    const auto legacy = reinterpret_cast<regraph_stream>(std::uintptr_t{1});
    block first = blocks.allocate(512, legacy);
    checks++;
    try {
        first.record_stream(nullptr);
        fail(__FILE__, __LINE__, "record_stream", "nothing was thrown");
    } catch (const error &thrown) {
        CHECK(thrown.code() == REGRAPH_ERROR_PER_THREAD_STREAM);
    }
    std::printf("%d checks\n", checks);
}
