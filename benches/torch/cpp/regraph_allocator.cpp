// regraph, through its C library, which is loaded at run time.
#include <dlfcn.h>

#include "parts.hpp"
#include "regraph.h"

namespace {

// Every call that is used here, by its name.
#define FOR_EACH_CALL(CALL)                                                                    \
    CALL(regraph_version)                                                                      \
    CALL(regraph_last_error_message)                                                           \
    CALL(regraph_error_name)                                                                   \
    CALL(regraph_config_create)                                                                \
    CALL(regraph_config_set_settings_from_environment)                                         \
    CALL(regraph_config_destroy)                                                               \
    CALL(regraph_engine_create_cuda)                                                           \
    CALL(regraph_engine_create_sim)                                                            \
    CALL(regraph_pool_create)                                                                  \
    CALL(regraph_pool_destroy)                                                                 \
    CALL(regraph_begin_capture)                                                                \
    CALL(regraph_end_capture)                                                                  \
    CALL(regraph_allocate)                                                                     \
    CALL(regraph_record_stream)                                                                \
    CALL(regraph_free)                                                                         \
    CALL(regraph_release_graph)                                                                \
    CALL(regraph_get_statistics)                                                               \
    CALL(regraph_reset_peaks)                                                                  \
    CALL(regraph_sim_create_stream)                                                            \
    CALL(regraph_sim_begin_capture)                                                            \
    CALL(regraph_sim_launch)                                                                   \
    CALL(regraph_sim_wait)                                                                     \
    CALL(regraph_sim_capture_info)                                                             \
    CALL(regraph_sim_end_capture)                                                              \
    CALL(regraph_sim_destroy_graph)

struct Calls {
#define DECLARE(name) decltype(&::name) name;
    FOR_EACH_CALL(DECLARE)
#undef DECLARE

    explicit Calls(const std::string& library) {
        void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!handle) throw std::runtime_error(dlerror());
#define LOAD(name) load(handle, #name, name);
        FOR_EACH_CALL(LOAD)
#undef LOAD
        if (regraph_version() / 1000 != REGRAPH_VERSION / 1000)
            throw std::runtime_error("the library is not of the header's version");
    }

    void check(regraph_error error, const char* call) const {
        if (error != REGRAPH_OK)
            throw std::runtime_error(std::string(call) + ": " + regraph_error_name(error) + ": " +
                                     regraph_last_error_message());
    }

private:
    template <typename Call>
    static void load(void* handle, const char* name, Call& call) {
        call = reinterpret_cast<Call>(dlsym(handle, name));
        if (!call) throw std::runtime_error(std::string("the library has no ") + name);
    }
};

// The library and an engine on it. It lives as long as the process.
struct Engine {
    Calls calls;
    regraph_engine* engine = nullptr;

    Engine(const std::string& library, bool simulated) : calls(library) {
        regraph_config* config = nullptr;
        must(calls.regraph_config_create(&config), "regraph_config_create");
        must(calls.regraph_config_set_settings_from_environment(config), "settings");
        must(simulated ? calls.regraph_engine_create_sim(0, config, &engine)
                       : calls.regraph_engine_create_cuda(0, config, &engine),
             "regraph_engine_create");
        calls.regraph_config_destroy(config);
    }

    void must(regraph_error error, const char* call) const { calls.check(error, call); }
};

class RegraphAllocator final : public Allocator {
public:
    explicit RegraphAllocator(std::shared_ptr<Engine> shared)
        : shared(std::move(shared)), calls(this->shared->calls), engine(this->shared->engine) {}

    void prepare(std::uint32_t count, const std::vector<Stream>& program_streams) override {
        blocks.assign(count, regraph_block_id{});
        live.assign(count, false);
        streams = program_streams;
        calls.check(calls.regraph_pool_create(engine, REGRAPH_NO_LIMIT, &pool), "pool_create");
        calls.check(calls.regraph_reset_peaks(engine), "reset_peaks");
        before = statistics();
    }

    void after_begin() override {
        calls.check(calls.regraph_begin_capture(engine, pool, streams[0], &capture), "begin");
    }

    std::uint64_t allocate(std::uint32_t block, std::uint64_t bytes,
                           std::uint32_t stream) override {
        regraph_block found;
        calls.check(calls.regraph_allocate(engine, pool, bytes, streams[stream], &found),
                    "allocate");
        blocks[block] = found.id;
        live[block] = true;
        return found.address;
    }

    void record_stream(std::uint32_t block, std::uint32_t stream) override {
        calls.check(calls.regraph_record_stream(engine, blocks[block], streams[stream]), "record");
    }

    void release(std::uint32_t block) override {
        calls.check(calls.regraph_free(engine, blocks[block]), "free");
        live[block] = false;
    }

    void before_end(Graph graph) override {
        regraph_capture_report report;
        calls.check(calls.regraph_end_capture(engine, capture, graph, &report), "end_capture");
        claim = report.graph;
    }

    std::uint64_t reserved() override {
        return statistics().all.reserved_bytes.current - before.all.reserved_bytes.current;
    }

    std::uint64_t peak_allocated() override {
        return statistics().all.allocated_bytes.peak - before.all.allocated_bytes.current;
    }

    void finish() override {
        for (std::size_t block = 0; block < blocks.size(); block++)
            if (live[block]) release(static_cast<std::uint32_t>(block));
        calls.check(calls.regraph_release_graph(engine, claim), "release_graph");
        calls.check(calls.regraph_pool_destroy(engine, pool), "pool_destroy");
    }

private:
    regraph_statistics statistics() const {
        regraph_statistics found;
        calls.check(calls.regraph_get_statistics(engine, &found), "get_statistics");
        return found;
    }

    std::shared_ptr<Engine> shared;
    const Calls& calls;
    regraph_engine* engine;
    regraph_pool pool{};
    regraph_capture_id capture = 0;
    regraph_graph_id claim{};
    regraph_statistics before{};
    std::vector<Stream> streams;
    std::vector<regraph_block_id> blocks;
    std::vector<bool> live;
};

// regraph's simulated device, to try the program without a GPU.
class Simulated final : public Device {
public:
    explicit Simulated(std::shared_ptr<Engine> shared)
        : shared(std::move(shared)), calls(this->shared->calls), engine(this->shared->engine) {}

    Stream create_stream() override {
        Stream stream = nullptr;
        calls.check(calls.regraph_sim_create_stream(engine, &stream), "create_stream");
        return stream;
    }
    void begin_capture(Stream origin) override {
        calls.check(calls.regraph_sim_begin_capture(engine, origin), "begin_capture");
    }
    void launch(Stream stream, std::uint64_t) override {
        launched++;
        calls.check(calls.regraph_sim_launch(engine, stream, false), "launch");
    }
    void wait(Stream stream, Stream on) override {
        calls.check(calls.regraph_sim_wait(engine, stream, on), "wait");
    }
    Graph graph(Stream origin) override {
        Graph graph = nullptr;
        calls.check(calls.regraph_sim_capture_info(engine, origin, nullptr, &graph), "info");
        launched_in_graph = launched;
        launched = 0;
        return graph;
    }
    Graph end_capture(Stream origin) override {
        Graph graph = nullptr;
        calls.check(calls.regraph_sim_end_capture(engine, origin, &graph), "end_capture");
        return graph;
    }
    std::uint64_t nodes(Graph) override { return launched_in_graph; }
    void instantiate(Graph) override {}
    std::vector<std::uint64_t> launch_graph(Stream, int) override { return {}; }
    void destroy(Graph graph) override {
        calls.check(calls.regraph_sim_destroy_graph(engine, graph), "destroy_graph");
    }

private:
    std::shared_ptr<Engine> shared;
    const Calls& calls;
    regraph_engine* engine;
    std::uint64_t launched = 0, launched_in_graph = 0;
};

}  // namespace

Regraph regraph(const std::string& library, bool simulated) {
    auto engine = std::make_shared<Engine>(library, simulated);
    Regraph found;
    found.allocator = std::make_unique<RegraphAllocator>(engine);
    if (simulated) found.simulated = std::make_unique<Simulated>(engine);
    return found;
}
