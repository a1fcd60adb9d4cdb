/*
 * A graph on two streams that owns its memory, in C++. Runs without a GPU. From the repository's root:
 *
 *     cargo xtask install --prefix /tmp/regraph
 *     export PKG_CONFIG_PATH=/tmp/regraph/lib/pkgconfig LD_LIBRARY_PATH=/tmp/regraph/lib
 *     c++ -std=c++17 capi/examples/two_streams.cpp $(pkg-config --cflags --libs regraph) -o two_streams
 *     ./two_streams
 *
 * On a GPU the engine comes from regraph::engine::cuda(), and kernels and waits are CUDA's own.
 */
#include <cstdio>

#include <regraph.hpp>

constexpr std::uint64_t MIB = 1 << 20;

/* Streams, kernels and waits of the simulated device. */
struct device {
    regraph_engine *engine;

    regraph_stream stream() const {
        regraph_stream made = nullptr;
        regraph::detail::check(regraph_sim_create_stream(engine, &made));
        return made;
    }
    void kernel(regraph_stream on) const { regraph::detail::check(regraph_sim_launch(engine, on, false)); }
    void wait(regraph_stream stream, regraph_stream on) const {
        regraph::detail::check(regraph_sim_wait(engine, stream, on));
    }
};

int main() try {
    auto engine = regraph::engine::sim(256 * MIB);
    regraph::pool pool(engine);
    const device gpu{engine.raw()};
    const auto a = gpu.stream(), b = gpu.stream();

    auto [graph, output] = pool.record(a, [&](regraph::capture &capture) {
        auto input = capture.allocate(4 * MIB, a);
        gpu.kernel(a); /* writes it */
        gpu.wait(b, a);
        gpu.kernel(b); /* reads it */
        input.record_stream(b);
        gpu.wait(a, b);
        { auto gone = std::move(input); } /* freed: both streams are known to have used it */
        auto result = capture.allocate(4 * MIB, a);
        gpu.kernel(a); /* writes it, in the input's place */
        return result;
    });
    graph.launch(a);
    graph.launch(b); /* after the first launch */
    pool.synchronize();

    std::printf("output: %llu MiB at %#llx\n", static_cast<unsigned long long>(output.bytes() / MIB),
                static_cast<unsigned long long>(output.address()));
    std::printf("graph: %llu MiB reserved, %llu MiB needed at least\n",
                static_cast<unsigned long long>(pool.statistics().all.reserved_bytes.current / MIB),
                static_cast<unsigned long long>(graph.minimum_bytes() / MIB));
    try {
        pool.allocate(1024 * MIB, a);
    } catch (const regraph::out_of_memory &error) {
        std::printf("%.60s...\n", error.what());
    }
    return 0;
} catch (const regraph::error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
