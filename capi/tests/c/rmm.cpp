// RMM's memory resource on a pool, against a mirror of what RMM documents.
#ifndef RMM_MIRROR_STREAM
#define RMM_MIRROR_STREAM cuda::stream_ref
#endif
#include <optional>

#include <regraph_rmm.hpp>

#include "check.h"

using namespace regraph;

static regraph_stream stream_of(const engine &of) {
    regraph_stream stream = nullptr;
    OK(regraph_sim_create_stream(of.raw(), &stream));
    return stream;
}

static void kernel(const engine &on, regraph_stream stream) { OK(regraph_sim_launch(on.raw(), stream, false)); }

static std::uint64_t live_bytes(const engine &of) { return of.statistics().all.allocated_bytes.current; }

static void memory_follows_the_streams() {
    auto e = engine::sim(64 * MIB);
    auto resource = rmm_resource(pool(e));
    const auto a = stream_of(e), b = stream_of(e);
    CHECK(resource.allocate(a, 0) == nullptr);
    resource.deallocate(a, nullptr, 0);
    void *const first = resource.allocate(a, 4 * MIB);
    kernel(e, a);
    resource.deallocate(a, first, 4 * MIB);
    // Its own stream has it at once.
    void *const again = resource.allocate(a, 4 * MIB);
    CHECK(again == first);
    kernel(e, b);
    // The other stream's work is waited for.
    resource.deallocate(b, again, 4 * MIB);
    CHECK(resource.allocate(a, 4 * MIB) != first);
    CHECK(live_bytes(e) == 4 * MIB);
}

static void copies_share_the_pool() {
    auto e = engine::sim(64 * MIB);
    const auto a = stream_of(e);
    auto resource = std::make_optional(rmm_resource(pool(e)));
    auto copy = *resource;
    void *const address = resource->allocate(a, MIB);
    resource.reset();
    copy.deallocate(a, address, MIB);
    CHECK(live_bytes(e) == 0);
    CHECK(copy.allocate(a, MIB) == address);
    CHECK(live_bytes(e) == MIB);
}

static void what_is_not_given_back_goes_with_the_resource() {
    auto e = engine::sim(64 * MIB);
    const auto a = stream_of(e);
    {
        auto resource = rmm_resource(pool(e));
        CHECK(resource.allocate(a, MIB) != nullptr);
        CHECK(live_bytes(e) == MIB);
    }
    CHECK(live_bytes(e) == 0);
}

static void failures_are_rmms_exceptions() {
    auto e = engine::sim(64 * MIB);
    auto resource = rmm_resource(pool(e));
    const auto a = stream_of(e);
    int caught = 0;
    try {
        resource.allocate(a, 100 * MIB);
    } catch (const rmm::out_of_memory &) {
        caught++;
    }
    try {
        // The per-thread default stream.
        resource.allocate(reinterpret_cast<regraph_stream>(2), MIB);
    } catch (const rmm::out_of_memory &) {
        fail(__FILE__, __LINE__, "rmm::bad_alloc", "memory is not short");
    } catch (const rmm::bad_alloc &) {
        caught++;
    }
    CHECK(caught == 2);
    // Told on standard error; what cannot be ordered is not handed out again.
    void *const kept = resource.allocate(a, MIB);
    resource.deallocate(reinterpret_cast<regraph_stream>(2), kept, MIB);
    CHECK(live_bytes(e) == MIB && resource.allocate(a, MIB) != kept);
    resource.deallocate(a, reinterpret_cast<void *>(static_cast<std::uintptr_t>(512)), MIB);
}

int main() {
    memory_follows_the_streams();
    copies_share_the_pool();
    what_is_not_given_back_goes_with_the_resource();
    failures_are_rmms_exceptions();
    std::printf("%d checks\n", checks);
    return 0;
}
