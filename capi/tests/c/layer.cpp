// The C++ layer: what is destroyed frees what it had, and failures are exceptions.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <regraph.hpp>

#include "check.h"

using namespace regraph;

template <class T>
constexpr bool moves_only = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
                            std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>;
static_assert(moves_only<loan> && moves_only<taken_loan> && moves_only<pool> && moves_only<block> && moves_only<capture> && moves_only<graph>);

// The call throws an error with this code.
template <class Call>
static void throws(regraph_error code, Call &&call, const char *part = "") {
    checks++;
    try {
        call();
    } catch (const error &thrown) {
        CHECK(thrown.code() == code && std::strstr(thrown.what(), regraph_error_name(code)) != nullptr);
        CHECK(std::strstr(thrown.what(), part) != nullptr);
        return;
    }
    fail(__FILE__, __LINE__, regraph_error_name(code), "nothing was thrown");
}

static regraph_stream stream_of(const engine &of) {
    regraph_stream stream = nullptr;
    OK(regraph_sim_create_stream(of.raw(), &stream));
    return stream;
}

static void kernel(const engine &on, regraph_stream stream) { OK(regraph_sim_launch(on.raw(), stream, false)); }

static std::uint64_t live_bytes(const pool &of) { return of.statistics().all.allocated_bytes.current; }

static void blocks_free_themselves() {
    auto e = engine::sim(64 * MIB);
    pool p(e);
    const auto a = stream_of(e), b = stream_of(e);
    {
        auto first = p.allocate(4 * MIB, a);
        CHECK(first.bytes() == 4 * MIB && first.address() % 512 == 0);
        CHECK(reinterpret_cast<std::uintptr_t>(first.data<float>()) == first.address());
        first.record_stream(b);
        first.record_use(b);
        block second = std::move(first);
        CHECK(live_bytes(p) == 4 * MIB);
        second = p.allocate(8 * MIB, a);  // the first one is freed
        CHECK(live_bytes(p) == 8 * MIB);
        second = std::move(second);
        std::vector<block> more;
        for (int i = 0; i < 4; i++) more.push_back(p.allocate(MIB, b));
        CHECK(live_bytes(p) == 12 * MIB);
        more.erase(more.begin());
        CHECK(live_bytes(p) == 11 * MIB);
        more.back().free_from(a);
        CHECK(live_bytes(p) == 10 * MIB);
    }
    CHECK(live_bytes(p) == 0);
    const auto given_up = p.allocate(MIB, a).release();
    CHECK(live_bytes(p) == MIB);
    OK(regraph_free(e.raw(), given_up.id));
}

static void failures_are_exceptions() {
    auto e = engine::sim(64 * MIB);
    pool p(e, 8 * MIB, "activations");
    const auto a = stream_of(e);
    int told = 0;
    e.observe_out_of_memory([&told](const regraph_out_of_memory &report) {
        told += report.requested == 9 * MIB;
    });
    throws(REGRAPH_ERROR_ZERO_BYTES, [&] { p.allocate(0, a); });
    throws(REGRAPH_ERROR_OUT_OF_MEMORY, [&] { p.allocate(9 * MIB, a); }, "activations");
    try {
        p.allocate(9 * MIB, a);
        fail(__FILE__, __LINE__, "allocate", "nothing was thrown");
    } catch (const out_of_memory &thrown) {
        CHECK(thrown.driver_code() == 0);
    }
    regraph_error code = REGRAPH_OK;
    CHECK(!p.try_allocate(9 * MIB, a, code) && code == REGRAPH_ERROR_OUT_OF_MEMORY);
    CHECK(p.try_allocate(MIB, a, code).has_value() && code == REGRAPH_OK);
    CHECK(told == 3 && live_bytes(p) == 0);
    throws(REGRAPH_ERROR_SETTINGS, [] { config().settings("no_such_key:1"); }, "no_such_key");
    OK(regraph_sim_fail_driver_call(e.raw(), 0));
    try {
        p.allocate(4 * MIB, a);
        fail(__FILE__, __LINE__, "allocate", "nothing was thrown");
    } catch (const error &thrown) {
        CHECK(thrown.code() == REGRAPH_ERROR_DRIVER && thrown.driver_code() == 800);
    }
    try {
        engine::cuda(4000000000u);
        fail(__FILE__, __LINE__, "cuda", "there is no such device");
    } catch (const error &thrown) {
        CHECK(thrown.code() != REGRAPH_ERROR_PANIC);
    }
    CHECK(e.memory_limit() == REGRAPH_NO_LIMIT);
    e.set_memory_limit(MIB);
    CHECK(e.memory_limit() == MIB);
    CHECK(e.snapshot_json().find("segments") != std::string::npos);
    CHECK(e.metrics().find("regraph_reserved_bytes{device=\"0\"} ") != std::string::npos);
    regraph::set_log_level(REGRAPH_LOG_WARNING);
    e.retire_stream(a);
}

static void captures_and_graphs() {
    auto e = engine::sim(256 * MIB);
    pool p(e);
    const auto a = stream_of(e), b = stream_of(e);
    auto work = [&](capture &c) {
        for (int i = 0; i < 3; i++) {
            auto temporary = c.allocate(4 * MIB, a);
            kernel(e, a);
        }
        auto output = c.allocate(4 * MIB, a);
        kernel(e, a);
        CHECK(c.minimum_bytes() == 4 * MIB);
        return output;
    };
    {
        auto [first, output] = p.record(a, work);
        CHECK(first.report().blocks == 4 && first.report().verified);
        first.launch(a);
        first.launch(b);
        CHECK(first.executable() != nullptr);
        graph moved = std::move(first);
        moved.launch(a);
        auto again = p.record_twice(a, work);
        CHECK(again.first.report().layout_blocks == 4 && again.first.report().layout_followed == 4);
        CHECK(again.first.report().capture != moved.report().capture);
        moved = std::move(again.first);  // the first graph is released
        CHECK(moved.minimum_bytes() == 4 * MIB);
        moved.forget_journal();
        throws(REGRAPH_ERROR_NO_JOURNAL, [&] { moved.minimum_bytes(); });
        CHECK(live_bytes(p) == 8 * MIB);
        p.follow(b);
        p.synchronize();
    }
    CHECK(live_bytes(p) == 0);
    p.synchronize();
    e.trim();
    CHECK(p.statistics().all.reserved_bytes.current == 0);

    // The work outside captures first.
    CHECK(e.learn([&] { auto block = p.allocate(4 * MIB, a); }) == 1);
    CHECK(e.learn([] {}) == 0);

    // A stream that is not in the capture.
    throws(REGRAPH_ERROR_NOT_CAPTURING, [&] {
        p.record(a, [&](capture &c) { c.allocate(4 * MIB, b); });
    });

    // A body without a result, with memory that comes at the end.
    graph planned = p.record(a, [&](capture &c) {
        c.plan();
        auto only = c.allocate(4 * MIB, a), fixed = c.allocate_fixed(2 * MIB, a);
        kernel(e, a);
    });
    CHECK(planned.report().planned_bytes == 4 * MIB);
    {
        auto live = p.allocate(4 * MIB, a);
        throws(REGRAPH_ERROR_POOL_HAS_BLOCKS, [&] { p.suspend(); });
        CHECK(p.suspend_discarding() > 0 && p.resume() > 0);
        auto borrowed = p.borrow(MIB, a);
        CHECK(borrowed.bytes() == MIB && p.lent_bytes() == 0);  // what came at the end is not lent
        planned.launch(a);
    }
    p.synchronize();
    OK(regraph_sim_synchronize(e.raw()));
    CHECK(p.suspend() > 0);
    throws(REGRAPH_ERROR_POOL_SUSPENDED, [&] { planned.launch(a); });
    CHECK(p.resume() > 0);
    planned.launch(a);
    p.synchronize();

    // The one that the memory was made for goes, and the smaller one needs a part of it.
    graph small = p.record(a, [&](capture &c) {
        c.plan();
        auto only = c.allocate(2 * MIB, a);
        kernel(e, a);
    });
    graph large = p.record(a, [&](capture &c) {
        c.plan();
        auto one = c.allocate(24 * MIB, a);
        kernel(e, a);
    });
    { graph gone = std::move(planned); }
    const auto excess = p.excess_bytes();
    large.launch(a);
    p.synchronize();
    CHECK(p.compact() == excess && p.excess_bytes() == 0);
    small.launch(a);
    large.launch(a);

    // One executable for both, which are of one shape.
    p.keep_executables(REGRAPH_NO_LIMIT, REGRAPH_SHARE_SAME_FUNCTIONS);
    small.pin(true);
    CHECK(small.executable() == nullptr && small.foreseen_bytes() == 0);
    CHECK(p.release_executables() == 0 && p.executables().executables == 1);
    large.prepare(a);
    small.launch(a);
    CHECK(p.executables().executables == 1 && p.executables().updates == 2);
    p.synchronize();
}

// What an exception leaves behind is nothing.
static void an_exception_in_a_capture() {
    auto e = engine::sim(256 * MIB);
    pool p(e);
    const auto a = stream_of(e);
    bool caught = false;
    try {
        p.record(a, [&](capture &c) {
            auto held = c.allocate(4 * MIB, a);
            kernel(e, a);
            throw 7;
        });
    } catch (int thrown) {
        caught = thrown == 7;
    }
    CHECK(caught && live_bytes(p) == 0);
    regraph_capture_id id = 1;
    OK(regraph_sim_capture_info(e.raw(), a, &id, nullptr));
    CHECK(id == 0);  // the stream does not capture

    // One that is refused: a stream of it is not joined again.
    const auto b = stream_of(e);
    throws(REGRAPH_ERROR_DRIVER, [&] {
        p.record(a, [&](capture &) {
            kernel(e, a);
            OK(regraph_sim_wait(e.raw(), b, a));
            kernel(e, b);
        });
    });
    graph sound = p.record(a, [&](capture &) { kernel(e, a); });
    sound.launch(a);

    // One that is captured again for a launch that starts early.
    int calls = 0;
    p.record(a, [&](capture &c) {
        ++calls;
        { auto first = c.allocate(4 * MIB, a); kernel(e, a); }
        auto second = c.allocate(4 * MIB, a);
        OK(regraph_sim_launch(e.raw(), a, true));
    });
    CHECK(calls == 2);

    // Moved and ended by hand; and abandoned by assignment.
    capture open = p.begin_capture(a, REGRAPH_CAPTURE_RELAXED);
    capture moved = std::move(open);
    CHECK(moved.id() != 0);
    sound = moved.finish();
    sound.launch(a);
    capture other = p.begin_capture(a);
    other = p.begin_capture(stream_of(e));
    p.begin_capture(a).finish();
    throws(REGRAPH_ERROR_INVALID_ARGUMENT, [&] { p.begin_capture(b, 17); }, "mode");
    p.synchronize();
}

// The last one to go takes the rest with it, whichever that is.
static void lifetimes() {
    std::optional<block> block_of_a_gone_pool;
    std::optional<graph> graph_of_a_gone_engine;
    regraph_stream a = nullptr;
    {
        auto e = engine::sim(64 * MIB, config().journal(true).find_late_uses(false));
        a = stream_of(e);
        {
            pool p(e);
            block_of_a_gone_pool = p.allocate(4 * MIB, a);
            pool q(p.engine());
            graph_of_a_gone_engine = q.record(a, [&](capture &c) {
                auto temporary = c.allocate(4 * MIB, a);
                kernel(e, a);
            });
        }
        CHECK(e.statistics().all.allocated_bytes.current == 4 * MIB);
    }
    graph_of_a_gone_engine->launch(a);
    block_of_a_gone_pool->record_stream(a);
    block_of_a_gone_pool.reset();
    graph_of_a_gone_engine.reset();  // and the engine
}

static void regions_sleep_and_wake() {
    auto e = engine::sim(64 * MIB);
    const regraph_stream a = stream_of(e);
    pool weights(e, REGRAPH_NO_LIMIT, "layers", "weights");
    pool cache(e, REGRAPH_NO_LIMIT, nullptr, "cache");
    const block layer = weights.allocate(16 * MIB, a), keys = cache.allocate(32 * MIB, a);
    e.set_backup("cache", REGRAPH_BACKUP_NONE);
    CHECK(e.sleep({}) == 0 && e.sleep({"weights"}) == 16 * MIB && e.is_asleep("weights") && !e.is_asleep("cache"));
    throws(REGRAPH_ERROR_POOL_SUSPENDED, [&] { weights.allocate(MIB, a); }, "region \"weights\"");
    throws(REGRAPH_ERROR_UNKNOWN_REGION, [&] { e.wake({"weight"}); }, "weight");
    CHECK(e.try_sleep() == 32 * MIB && e.host_bytes() == 16 * MIB);
    std::string seen;
    e.regions([&](const regraph_region &region) { seen += region.tag + std::to_string(region.asleep_bytes / MIB); });
    CHECK(seen == "cache32weights16");
    CHECK(e.wake({"cache", "weights"}) == 48 * MIB && e.wake() == 0 && e.free_host() == 16 * MIB);
    e.set_file_backup("cache", "no such folder");
    throws(REGRAPH_ERROR_IO, [&] { e.sleep({"cache"}); }, "no such folder");
    e.set_shared_backup("cache", "no such folder/cache");
    throws(REGRAPH_ERROR_IO, [&] { e.sleep({"cache"}); }, "no such folder/cache");
}

static void what_there_is() {
    std::string told;
    regraph::observe_log([&told](std::int32_t level, const char *message) {
        told += level == REGRAPH_LOG_WARNING ? message : "";
    });
    {
        auto e = engine::sim(64 * MIB);
        pool p(e, 8 * MIB, "activations");
        std::vector<std::string> names;
        const auto note = [&names](const regraph_pool_info &row) { names.emplace_back(row.name ? row.name : ""); };
        e.pools(note);
        p.set_name("decoder");
        e.pools(note);
        p.set_name(nullptr);
        e.pools(note);
        CHECK((names == std::vector<std::string>{"activations", "decoder", ""}));
        regraph_block block{};
        detail::check(regraph_allocate(e.raw(), p.raw(), MIB, stream_of(e), &block));
    }
    regraph::observe_log(nullptr);
    CHECK(told.find("1 MiB at ") != std::string::npos);
    try {
        std::size_t count = 0;
        regraph::devices([&count](const regraph_device &device) { CHECK(device.ordinal == count++); });
    } catch (const error &thrown) {
        CHECK(thrown.code() == REGRAPH_ERROR_NO_DRIVER || thrown.code() == REGRAPH_ERROR_DRIVER_TOO_OLD);
    }
}

static void estimates() {
    auto e = engine::sim();
    const auto a = stream_of(e);
    const auto work = [&](capture &c) {
        auto input = c.allocate(4 * MIB, a);
        kernel(e, a);
        auto output = c.allocate(6 * MIB, a);
        kernel(e, a);
        return output;
    };
    estimate needed(e);
    for (int turn = 0; turn < 2; turn++) needed.record(a, work);
    needed.record(a, [&](capture &c) { c.allocate(MIB, a); });
    CHECK(e.statistics().all.reserved_bytes.current == 0);
    const auto needs = needed.end();
    throws(REGRAPH_ERROR_UNKNOWN_POOL, [&] { needed.end(); });
    throws(REGRAPH_ERROR_UNKNOWN_POOL, [&] { needed.record(a, work); });
    pool p(e);
    const auto first = p.record(a, work), second = p.record(a, work);
    CHECK(needs.pool_bytes == p.statistics().all.reserved_bytes.current);
    CHECK(needs.most_pool_bytes == needs.pool_bytes + 2 * MIB && needs.executable_bytes == 0);
    estimate unused(e);
    throws(REGRAPH_ERROR_NOT_CAPTURING, [&] {
        unused.record(a, [&](capture &c) { c.allocate(MIB, stream_of(e)); });
    });
    unused.record(a, [&](capture &) { throws(REGRAPH_ERROR_INVALID_ARGUMENT, [&] { unused.end(); }); });
    unused.end();
    CHECK(live_bytes(p) == 12 * MIB);
}

#ifdef __linux__
static void loans() {
    config choices;
    choices.settings("exportable:True");
    const auto ours = engine::sim(64 * MIB, choices), theirs = engine::sim(64 * MIB, choices);
    const auto a = stream_of(ours);
    pool p(ours);
    graph g = p.record(a, [&](capture &c) {
        auto temporary = c.allocate(4 * MIB, a);
        kernel(ours, a);
    });
    {
        auto lent = p.lend(2 * MIB, a);
        CHECK(lent.bytes() == 2 * MIB && lent.state() == REGRAPH_LOAN_OFFERED && p.lent_bytes() == 2 * MIB);
        throws(REGRAPH_ERROR_NOTHING_LENT, [&] { p.lend(4 * MIB, a); });
        throws(REGRAPH_ERROR_BLOCKS_LENT, [&] { g.launch(a); });
        taken_loan taken(theirs, lent.handle(), lent.handle_bytes());
        throws(REGRAPH_ERROR_NOT_TAKEN, [&] { taken_loan(theirs, lent.handle(), lent.handle_bytes()); });
        CHECK(taken.bytes() == 2 * MIB && taken.address() % 512 == 0 && taken.data() != nullptr);
        CHECK(!taken.wait_for_recall(0) && !lent.recall(0) && taken.wait_for_recall(60000));
        taken_loan moved = std::move(taken);
        moved.give_back();
        CHECK(lent.recall(60000) && lent.state() == REGRAPH_LOAN_BACK);
        // What is destroyed is given back, and asked for where it is the lender's.
        loan second = p.lend(4 * MIB, a);
        lent = std::move(second);
        taken_loan(theirs, lent.handle(), lent.handle_bytes());
        CHECK(lent.recall(60000));
        lent = p.lend(4 * MIB, a);
        CHECK(p.lent_bytes() == 4 * MIB);
    }
    CHECK(p.lent_bytes() == 0);
    g.launch(a);
    p.synchronize();
}
#endif

// Destroyed after what main() has begun, with a block that was never freed, which is told then.
static std::optional<engine> outlives_main;

static void an_engine_that_outlives_main() {
    regraph_block block{};
    outlives_main = engine::sim(64 * MIB);
    pool p(*outlives_main);
    OK(regraph_allocate(outlives_main->raw(), p.raw(), MIB, stream_of(*outlives_main), &block));
    regraph::observe_log([told = std::make_shared<int>(0)](std::int32_t, const char *) { ++*told; });
}

int main() {
    what_there_is();
    regions_sleep_and_wake();
    blocks_free_themselves();
    failures_are_exceptions();
    captures_and_graphs();
    an_exception_in_a_capture();
    lifetimes();
    estimates();
#ifdef __linux__
    loans();
#endif
    an_engine_that_outlives_main();
    std::printf("%d checks\n", checks);
    return 0;
}
