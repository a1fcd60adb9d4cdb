/*
 * regraph for C++17: engines, pools, blocks, captures and graphs that clean up after themselves.
 *
 * A layer of inline code over regraph.h: link with what that needs (-lregraph_c, or the CMake
 * target regraph::regraph). capi/examples/two_streams.cpp is a program that uses it.
 *
 * Ownership. Every class but `engine` can be moved and not copied. A pool lives as
 * long as its blocks, captures and graphs, and an engine as long as its pools, in any order
 * they are destroyed. A moved-from object may be destroyed or assigned to, and nothing else.
 *
 * Errors. A call that fails throws regraph::error, with the code of regraph.h and the message, or
 * regraph::out_of_memory, which is one. pool::try_allocate() returns the code instead. Destructors
 * do not throw. Without exceptions (-fno-exceptions) a failure writes its message to standard error
 * and aborts.
 *
 * Units. Sizes are bytes. Streams are CUstream, the same type as cudaStream_t. In a program that is built for per-thread
 * default streams 0 is the calling thread's own, on which calls fail with REGRAPH_ERROR_PER_THREAD_STREAM.
 *
 * Threads. As in regraph.h: all calls on engines, pools and blocks may come from any thread, those
 * on a capture from the thread that captures.
 */

#ifndef REGRAPH_HPP
#define REGRAPH_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <regraph.h>

namespace regraph {

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
#define REGRAPH_PER_THREAD
/* Parts of a program that mean other streams by 0 have other types. */
inline namespace per_thread {
#endif

/// A call that failed.
class error : public std::runtime_error {
public:
    /// With the message of the calling thread's latest failure.
    explicit error(regraph_error code)
        : std::runtime_error(std::string(regraph_error_name(code)) + ": " + regraph_last_error_message()),
          code_(code),
          driver_code_(regraph_last_driver_code()) {}

    /// The code, one of regraph.h's.
    regraph_error code() const noexcept { return code_; }
    /// The driver's code (CUresult); 0 if the call did not fail in the driver.
    std::uint32_t driver_code() const noexcept { return driver_code_; }

private:
    regraph_error code_;
    std::uint32_t driver_code_;
};

/// No memory is proven free for a request and the device, or a limit, allows no more
/// (REGRAPH_ERROR_OUT_OF_MEMORY). A capture under way can go on.
class out_of_memory : public error {
public:
    using error::error;
};

namespace detail {

/// What a handle means to the C library: 0 is the legacy default stream there, and the calling thread's own (2), which the
/// library refuses, in a program that is built for these (`--default-stream per-thread`).
inline regraph_stream named(regraph_stream stream) noexcept {
#if defined(REGRAPH_PER_THREAD)
    return stream != nullptr ? stream : reinterpret_cast<regraph_stream>(std::uintptr_t{2});
#else
    return stream;
#endif
}

/// Throws where a call failed.
inline void check(regraph_error code) {
    if (code == REGRAPH_OK) return;
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
    if (code == REGRAPH_ERROR_OUT_OF_MEMORY) throw out_of_memory(code);
    throw error(code);
#else
    std::fprintf(stderr, "%s: %s\n", regraph_error_name(code), regraph_last_error_message());
    std::abort();
#endif
}

using out_of_memory_observer = std::function<void(const regraph_out_of_memory &)>;

/// An engine with its observers, which it calls until it is destroyed.
struct engine_state {
    std::list<out_of_memory_observer> observers;
    regraph_engine *raw = nullptr;

    engine_state() = default;
    engine_state(const engine_state &) = delete;
    engine_state &operator=(const engine_state &) = delete;
    ~engine_state() { regraph_engine_destroy(raw); }
};

/// A pool, shared by its blocks, captures and graphs.
struct pool_state {
    std::shared_ptr<engine_state> engine;
    regraph_pool raw;
    bool estimates = false;  // It is that of an estimate.
    bool over = false;       // The estimate has ended.

    pool_state(std::shared_ptr<engine_state> of, std::uint64_t max_bytes, const char *name, const char *region)
        : engine(std::move(of)), raw() {
        check(regraph_pool_create_in_region(engine->raw, region, name, max_bytes, &raw));
    }
    explicit pool_state(std::shared_ptr<engine_state> of) : engine(std::move(of)), raw(), estimates(true) {
        check(regraph_estimate_begin(engine->raw, &raw));
    }
    pool_state(const pool_state &) = delete;
    pool_state &operator=(const pool_state &) = delete;
    ~pool_state() {
        if (estimates) {
            if (!over) regraph_estimate_end(engine->raw, raw, nullptr);
        } else {
            regraph_pool_release(engine->raw, raw);
        }
    }
};

extern "C" inline void regraph_hpp_out_of_memory(const regraph_out_of_memory *report, void *observer) noexcept {
    (*static_cast<out_of_memory_observer *>(observer))(*report);
}

using log_observer = std::function<void(std::int32_t, const char *)>;

extern "C" inline void regraph_hpp_log(std::int32_t level, const char *message, void *observer) noexcept {
    (*static_cast<log_observer *>(observer))(level, message);
}

}  // namespace detail

/// The configuration of an engine. See the calls regraph_config_set_... of regraph.h.
class config {
public:
    /// Every option at its default.
    config() {
        regraph_config *made = nullptr;
        detail::check(regraph_config_create(&made));
        raw_.reset(made);
    }

    /// Replaces all settings by those of a text such as "memory_limit_mb:4096".
    config &settings(const std::string &text) { return done(regraph_config_set_settings(raw(), text.c_str())); }
    /// Replaces all settings by those of REGRAPH_ALLOC_CONF and REGRAPH_NO_MEMORY_CACHING.
    config &settings_from_environment() { return done(regraph_config_set_settings_from_environment(raw())); }
    /// Whether captures keep a journal even without the checker. Default: no.
    config &journal(bool keep) { return done(regraph_config_set_journal(raw(), keep)); }
    /// Whether the end of a capture searches for uses of blocks later than was recorded.
    config &find_late_uses(bool find) { return done(regraph_config_set_find_late_uses(raw(), find)); }
    /// Whether a capture with such a use is refused. Default: no.
    config &refuse_late_uses(bool refuse) { return done(regraph_config_set_refuse_late_uses(raw(), refuse)); }
    /// Whether blocks that were never freed are reported when the engine is destroyed. Default:
    /// yes.
    config &report_leaks(bool report) { return done(regraph_config_set_report_leaks(raw(), report)); }

    /// For the calls of regraph.h. Lives as long as this object.
    regraph_config *raw() const noexcept { return raw_.get(); }

private:
    struct destroy {
        void operator()(regraph_config *config) const noexcept { regraph_config_destroy(config); }
    };

    config &done(regraph_error code) {
        detail::check(code);
        return *this;
    }

    std::unique_ptr<regraph_config, destroy> raw_;
};

/// Calls `each(const regraph_device &)` for every CUDA device that the process can use, in the order of their
/// ordinals. Throws REGRAPH_ERROR_NO_DRIVER, REGRAPH_ERROR_DRIVER_TOO_OLD, REGRAPH_ERROR_DRIVER,
/// REGRAPH_ERROR_NOT_SUPPORTED.
template <class Each> void devices(Each &&each) {
    regraph_device_list *found = nullptr;
    detail::check(regraph_get_devices(&found));
    const std::unique_ptr<regraph_device_list, void (*)(regraph_device_list *)> owned(
        found, regraph_device_list_destroy);
    for (std::size_t row = 0; row < regraph_device_list_count(found); ++row) {
        each(*regraph_device_list_get(found, row));
    }
}

/// Sends all messages of the library to `observer(level, message)`, and to standard error again without one:
/// see regraph_set_log_callback(). The observer must not throw and must not call the library. Call this on one
/// thread at a time.
inline void observe_log(detail::log_observer observer) {
    // Never destroyed: an engine may outlive main().
    static detail::log_observer &kept = *new detail::log_observer;
    detail::check(regraph_set_log_callback(nullptr, nullptr));  // The one that is there runs no more.
    kept = std::move(observer);
    if (kept) {
        detail::check(regraph_set_log_callback(detail::regraph_hpp_log, &kept));
    }
}

/// Sets up to which level messages are told: see regraph_set_log_level().
inline void set_log_level(std::int32_t level) { detail::check(regraph_set_log_level(level)); }

/// An allocator on one device. Copies name the same engine. It is destroyed with the last copy, or
/// after that with its last pool.
class engine {
public:
    /// On a CUDA device. Throws REGRAPH_ERROR_NO_DRIVER, REGRAPH_ERROR_DRIVER_TOO_OLD,
    /// REGRAPH_ERROR_DRIVER, REGRAPH_ERROR_NOT_SUPPORTED.
    static engine cuda(std::uint32_t ordinal = 0, const config &choices = config()) {
        engine made;
        detail::check(regraph_engine_create_cuda(ordinal, choices.raw(), &made.state_->raw));
        return made;
    }

    /// On a simulated device with `total_bytes` of memory, 0 for 141 GiB. Needs no GPU; the calls
    /// whose names begin with regraph_sim stand for the CUDA driver's.
    static engine sim(std::uint64_t total_bytes = 0, const config &choices = config()) {
        engine made;
        detail::check(regraph_engine_create_sim(total_bytes, choices.raw(), &made.state_->raw));
        return made;
    }

    /// The statistics of all pools.
    regraph_statistics statistics() const {
        regraph_statistics found{};
        detail::check(regraph_get_statistics(raw(), &found));
        return found;
    }

    /// Calls `each(const regraph_pool_info &)` for every pool, in the order in which they were created.
    template <class Each> void pools(Each &&each) const {
        regraph_pool_list *found = nullptr;
        detail::check(regraph_get_pools(raw(), &found));
        const std::unique_ptr<regraph_pool_list, void (*)(regraph_pool_list *)> owned(
            found, regraph_pool_list_destroy);
        for (std::size_t row = 0; row < regraph_pool_list_count(found); ++row) {
            each(*regraph_pool_list_get(found, row));
        }
    }

    /// Gives unused memory back to the driver until no more than `keep` bytes are held.
    regraph_emptied trim(std::uint64_t keep = 0) const {
        regraph_emptied emptied{};
        detail::check(regraph_trim(raw(), keep, &emptied));
        return emptied;
    }

    /// Runs work outside captures, once, and learns how the memory of its capture is best laid out: see
    /// regraph_learned(). Returns how many blocks the work asked for. What was noted until an exception of
    /// `work` is kept.
    template <class Work> std::uint64_t learn(Work &&work) const {
        std::uint64_t blocks = 0;
        detail::check(regraph_learn(raw()));
        const auto end = [](regraph_engine *of) { regraph_learned(of, nullptr); };
        std::unique_ptr<regraph_engine, void (*)(regraph_engine *)> begun(raw(), end);
        std::forward<Work>(work)();
        detail::check(regraph_learned(begun.release(), &blocks));
        return blocks;
    }

    /// The most memory that all pools together may hold, in bytes, or REGRAPH_NO_LIMIT.
    std::uint64_t memory_limit() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_get_memory_limit(raw(), &bytes));
        return bytes;
    }

    /// Sets the most memory that all pools together may hold, in bytes; REGRAPH_NO_LIMIT removes
    /// the limit.
    void set_memory_limit(std::uint64_t bytes) const { detail::check(regraph_set_memory_limit(raw(), bytes)); }

    /// A snapshot as JSON: all memory of the engine, block by block.
    std::string snapshot_json() const {
        char *text = nullptr;
        detail::check(regraph_snapshot_json(raw(), &text));
        const std::unique_ptr<char, void (*)(char *)> owned(text, regraph_string_destroy);
        return owned.get();
    }

    /// The figures as Prometheus reads them: see regraph_metrics().
    std::string metrics() const {
        char *text = nullptr;
        detail::check(regraph_metrics(raw(), &text));
        const std::unique_ptr<char, void (*)(char *)> owned(text, regraph_string_destroy);
        return owned.get();
    }

    /// Says what becomes of what a region's live blocks hold while it sleeps (REGRAPH_BACKUP_HOST and so on).
    void set_backup(const char *tag, std::int32_t backup) const {
        detail::check(regraph_regions_set_backup(raw(), tag, backup));
    }

    /// Has a file in a folder keep what a region's live blocks hold while it sleeps: see
    /// regraph_regions_set_file_backup().
    void set_file_backup(const char *tag, const char *folder) const {
        detail::check(regraph_regions_set_file_backup(raw(), tag, folder));
    }

    /// Has a file that processes share keep what a region's live blocks hold while it sleeps: see
    /// regraph_regions_set_shared_backup().
    void set_shared_backup(const char *tag, const char *file) const {
        detail::check(regraph_regions_set_shared_backup(raw(), tag, file));
    }

    /// Forgets what was said of a region: see regraph_regions_forget().
    void forget(const char *tag) const { detail::check(regraph_regions_forget(raw(), tag)); }

    /// Gives the memory of regions back and keeps their addresses: see regraph_regions_sleep(). Returns the
    /// bytes that were given back. `sleep()` means all regions.
    std::uint64_t sleep() const { return moved(regraph_regions_sleep, nullptr, 0); }
    std::uint64_t sleep(const std::vector<const char *> &tags) const { return moved(regraph_regions_sleep, tags); }

    /// The same without a wait for submitted work: see regraph_regions_try_sleep(). Throws REGRAPH_ERROR_POOL_RUNS.
    std::uint64_t try_sleep() const { return moved(regraph_regions_try_sleep, nullptr, 0); }
    std::uint64_t try_sleep(const std::vector<const char *> &tags) const {
        return moved(regraph_regions_try_sleep, tags);
    }

    /// Brings the memory of sleeping regions back with what it held: see regraph_regions_wake(). Returns the
    /// bytes that came. Throws REGRAPH_ERROR_RESUME_OUT_OF_MEMORY.
    std::uint64_t wake() const { return moved(regraph_regions_wake, nullptr, 0); }
    std::uint64_t wake(const std::vector<const char *> &tags) const { return moved(regraph_regions_wake, tags); }

    /// Whether a region sleeps, or a part of it.
    bool is_asleep(const char *tag) const {
        bool asleep = false;
        detail::check(regraph_regions_is_asleep(raw(), tag, &asleep));
        return asleep;
    }

    /// Calls `each(const regraph_region &)` for every region, in the order of their tags.
    template <class Each>
    void regions(Each &&each) const {
        regraph_region_list *found = nullptr;
        detail::check(regraph_regions_report(raw(), &found));
        const std::unique_ptr<regraph_region_list, void (*)(regraph_region_list *)> owned(
            found, regraph_region_list_destroy);
        for (std::size_t row = 0; row < regraph_region_list_count(found); ++row) {
            each(*regraph_region_list_get(found, row));
        }
    }

    /// Page-locked memory of the host that regions hold, in bytes.
    std::uint64_t host_bytes() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_regions_get_host_bytes(raw(), &bytes));
        return bytes;
    }

    /// Locks pages of the host ahead of a sleep, until `bytes` bytes keep nothing. Returns the bytes that were
    /// locked. Throws REGRAPH_ERROR_HOST_OUT_OF_MEMORY.
    std::uint64_t reserve_host(std::uint64_t bytes) const {
        std::uint64_t locked = 0;
        detail::check(regraph_regions_reserve_host(raw(), bytes, &locked));
        return locked;
    }

    /// Gives page-locked memory that keeps nothing back to the host. Returns the bytes that were given back.
    std::uint64_t free_host() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_regions_free_host(raw(), &bytes));
        return bytes;
    }

    /// Tells the engine that a stream is about to be destroyed. Throws REGRAPH_ERROR_STREAM_IN_USE:
    /// the stream must live on.
    void retire_stream(regraph_stream stream) const { detail::check(regraph_retire_stream(raw(), detail::named(stream))); }

    /// Calls `observer` for every request that fails for lack of memory, on the thread of the
    /// request. Several threads may call it at once. The engine keeps the observer, which must not
    /// throw and must not own the engine or a pool of it. Register observers on one thread at a
    /// time.
    void observe_out_of_memory(detail::out_of_memory_observer observer) const {
        auto &kept = state_->observers.emplace_back(std::move(observer));
        detail::check(regraph_observe_out_of_memory(raw(), detail::regraph_hpp_out_of_memory, &kept));
    }

    /// For the calls of regraph.h. Lives as long as this object.
    regraph_engine *raw() const noexcept { return state_->raw; }

private:
    friend class pool;
    friend class estimate;
    friend class taken_loan;

    engine() : state_(std::make_shared<detail::engine_state>()) {}

    template <class Call>
    std::uint64_t moved(Call call, const char *const *tags, std::size_t count) const {
        std::uint64_t bytes = 0;
        detail::check(call(raw(), tags, count, &bytes));
        return bytes;
    }

    /// No tags are no regions, and not all of them.
    template <class Call>
    std::uint64_t moved(Call call, const std::vector<const char *> &tags) const {
        return tags.empty() ? 0 : moved(call, tags.data(), tags.size());
    }

    explicit engine(std::shared_ptr<detail::engine_state> state) : state_(std::move(state)) {}

    std::shared_ptr<detail::engine_state> state_;
};

/// A block of device memory. The destructor frees it, inside a capture too. By then every stream
/// that used the block must be known: its own, and those of record_stream().
class block {
public:
    block(block &&other) noexcept : pool_(std::move(other.pool_)), raw_(other.raw_) {}
    block &operator=(block &&other) noexcept {
        if (this != &other) {
            free();
            pool_ = std::move(other.pool_);
            raw_ = other.raw_;
        }
        return *this;
    }
    ~block() { free(); }

    /// The device address, a multiple of 512.
    std::uint64_t address() const noexcept { return raw_.address; }
    /// The size that was requested, in bytes.
    std::uint64_t bytes() const noexcept { return raw_.bytes; }
    /// The address as a pointer for kernels.
    template <class T = void>
    T *data() const noexcept {
        return reinterpret_cast<T *>(static_cast<std::uintptr_t>(raw_.address));
    }

    /// Records that a stream other than the block's own uses the block before it is freed.
    void record_stream(regraph_stream stream) const {
        detail::check(regraph_record_stream(pool_->engine->raw, raw_.id, detail::named(stream)));
    }

    /// Marks the stream's current position as its last use of the block.
    void record_use(regraph_stream stream) const {
        detail::check(regraph_record_use(pool_->engine->raw, raw_.id, detail::named(stream)));
    }

    /// Frees the block after what `stream` holds, which need not be its own stream. Leaves the
    /// object as if moved from.
    void free_from(regraph_stream stream) {
        detail::check(regraph_free_from(pool_->engine->raw, raw_.id, detail::named(stream)));
        pool_.reset();
    }

    /// Gives the block up without freeing it: the caller does that with regraph_free(). Leaves the
    /// object as if moved from.
    regraph_block release() noexcept {
        pool_.reset();
        return raw_;
    }

private:
    friend class pool;
    friend class capture;

    block(std::shared_ptr<detail::pool_state> pool, const regraph_block &raw) : pool_(std::move(pool)), raw_(raw) {}

    void free() noexcept {
        if (pool_) regraph_free(pool_->engine->raw, raw_.id);
        pool_.reset();
    }

    std::shared_ptr<detail::pool_state> pool_;
    regraph_block raw_;
};

/// An executable graph that owns its memory. If the object is destroyed while the graph runs, the
/// graph is destroyed after it has finished.
class graph {
public:
    graph(graph &&other) noexcept : pool_(std::move(other.pool_)), report_(other.report_) {}
    graph &operator=(graph &&other) noexcept {
        if (this != &other) {
            release();
            pool_ = std::move(other.pool_);
            report_ = other.report_;
        }
        return *this;
    }
    ~graph() { release(); }

    /// Launches the graph on a stream that does not capture, after every earlier launch of a graph
    /// of the same pools. Throws REGRAPH_ERROR_CAPTURING, REGRAPH_ERROR_POOL_SUSPENDED,
    /// REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_NO_EXECUTABLE, REGRAPH_ERROR_DRIVER.
    void launch(regraph_stream stream) const {
        detail::check(regraph_launch_graph(pool_->engine->raw, report_.graph, detail::named(stream)));
    }

    /// Does what the next launch would have to do first: makes the graph's executable, or updates the one that it
    /// shares. Throws as launch().
    void prepare(regraph_stream stream) const {
        detail::check(regraph_graph_prepare(pool_->engine->raw, report_.graph, detail::named(stream)));
    }

    /// Says whether the graph's executable stays where the pool's budget for executables is short.
    void pin(bool pinned) const { detail::check(regraph_graph_pin(pool_->engine->raw, report_.graph, pinned)); }

    /// What the driver is foreseen to take for an executable of the graph, in bytes.
    std::uint64_t foreseen_bytes() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_graph_foreseen_bytes(pool_->engine->raw, report_.graph, &bytes));
        return bytes;
    }

    /// The results of the graph's capture.
    const regraph_capture_report &report() const noexcept { return report_; }

    /// The least memory that the graph's blocks need, in bytes. Throws REGRAPH_ERROR_NO_JOURNAL.
    std::uint64_t minimum_bytes() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_graph_minimum_bytes(pool_->engine->raw, report_.graph, &bytes));
        return bytes;
    }

    /// Frees the capture's journal, which minimum_bytes() needs.
    void forget_journal() const { detail::check(regraph_graph_forget_journal(pool_->engine->raw, report_.graph)); }

    /// CUDA's executable graph, for updates of parameters between launches. The graph owns it. Null where the pool
    /// keeps executables (pool::keep_executables()).
    regraph_executable executable() const {
        regraph_executable found = nullptr;
        detail::check(regraph_graph_get_handles(pool_->engine->raw, report_.graph, nullptr, &found));
        return found;
    }

private:
    friend class capture;

    graph(std::shared_ptr<detail::pool_state> pool, const regraph_capture_report &report)
        : pool_(std::move(pool)), report_(report) {}

    void release() noexcept {
        if (pool_) regraph_release_graph(pool_->engine->raw, report_.graph);
        pool_.reset();
    }

    std::shared_ptr<detail::pool_state> pool_;
    regraph_capture_report report_;
};

/// A capture under way. If the object is destroyed before finish(), by an exception for instance,
/// the stream's capture ends without a graph.
class capture {
public:
    capture(capture &&other) noexcept : pool_(std::move(other.pool_)), id_(other.id_) {}
    capture &operator=(capture &&other) noexcept {
        if (this != &other) {
            abandon();
            pool_ = std::move(other.pool_);
            id_ = other.id_;
        }
        return *this;
    }
    ~capture() { abandon(); }

    /// A block of the capture's pool for `stream`, which must be in the capture. Throws
    /// REGRAPH_ERROR_NOT_CAPTURING for another stream, and the errors of pool::allocate().
    block allocate(std::uint64_t bytes, regraph_stream stream) const {
        regraph_block made{};
        detail::check(regraph_capture_allocate(pool_->engine->raw, id_, bytes, detail::named(stream), &made));
        return {pool_, made};
    }

    /// A block whose memory is mapped at once, and not shared or moved while the graph lives.
    block allocate_fixed(std::uint64_t bytes, regraph_stream stream) const {
        regraph_block made{};
        detail::check(regraph_capture_allocate_fixed(pool_->engine->raw, id_, bytes, detail::named(stream), &made));
        return {pool_, made};
    }

    /// Has the capture's memory mapped at its end, as little as the graph can run on: see
    /// regraph_plan_capture(). Call it before the capture's first allocation. Throws
    /// REGRAPH_ERROR_CANNOT_PLAN.
    void plan(const regraph_plan_options &options = {}) const {
        detail::check(regraph_plan_capture(pool_->engine->raw, id_, &options));
    }

    /// Sets which attempt at its work the capture is: see regraph_set_attempt().
    void set_attempt(std::int32_t attempt) const {
        detail::check(regraph_set_attempt(pool_->engine->raw, id_, attempt));
    }

    /// The least memory that the capture's blocks need so far, in bytes. Throws
    /// REGRAPH_ERROR_NO_JOURNAL.
    std::uint64_t minimum_bytes() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_capture_minimum_bytes(pool_->engine->raw, id_, &bytes));
        return bytes;
    }

    /// Abandons the capture and begins a second one for the same work, whose blocks lie closer
    /// together: see regraph_repeat_stream_capture(). All blocks of the capture must be freed.
    void repeat() {
        const regraph_error code = regraph_repeat_stream_capture(pool_->engine->raw, &id_);
        detail::check(code);
    }

    /// Ends the capture and instantiates its graph. Throws REGRAPH_ERROR_REFUSED and the other
    /// errors of regraph_finish_stream_capture(); the capture has ended then, without a graph.
    graph finish() {
        regraph_capture_report report{};
        const auto pool = std::move(pool_);
        detail::check(regraph_finish_stream_capture(pool->engine->raw, id_, &report));
        return {pool, report};
    }

    /// The driver's id of the capture.
    regraph_capture_id id() const noexcept { return id_; }

private:
    friend class pool;
    friend class estimate;

    capture(std::shared_ptr<detail::pool_state> pool, regraph_stream stream, std::int32_t mode)
        : pool_(std::move(pool)), id_(0) {
        detail::check(regraph_begin_stream_capture(pool_->engine->raw, pool_->raw, detail::named(stream), mode, &id_));
    }

    void show() {
        const auto pool = std::move(pool_);
        detail::check(regraph_show_stream_capture(pool->engine->raw, id_));
    }

    void abandon() noexcept {
        if (pool_) regraph_abandon_capture(pool_->engine->raw, id_);
        pool_.reset();
    }

    std::shared_ptr<detail::pool_state> pool_;
    regraph_capture_id id_;
};

/// A loan to another process of what a pool's graphs do not keep between launches. The destructor asks the other process
/// for it and does not wait: launches are refused until it is back, which the next one finds out.
class loan {
public:
    loan(loan &&other) noexcept : pool_(std::move(other.pool_)), raw_(other.raw_) {}
    loan &operator=(loan &&other) noexcept {
        if (this != &other) {
            end();
            pool_ = std::move(other.pool_);
            raw_ = other.raw_;
        }
        return *this;
    }
    ~loan() { end(); }

    /// The handle that another process takes it by: bytes that live as long as this object, to be sent there by any means.
    const std::uint8_t *handle() const noexcept { return raw_.handle; }
    /// How many bytes the handle has.
    std::size_t handle_bytes() const noexcept { return raw_.handle_bytes; }
    /// The size that was requested, in bytes.
    std::uint64_t bytes() const noexcept { return raw_.bytes; }

    /// Asks for it, and waits at most so many milliseconds until it is back. Returns whether it is.
    bool recall(std::uint64_t milliseconds) const {
        bool is_back = false;
        detail::check(regraph_loan_recall(pool_->engine->raw, raw_.id, milliseconds, &is_back));
        return is_back;
    }

    /// Where it is: one of the REGRAPH_LOAN constants.
    std::int32_t state() const {
        std::int32_t state = 0;
        detail::check(regraph_loan_get_state(pool_->engine->raw, raw_.id, &state));
        return state;
    }

    /// For the calls of regraph.h.
    regraph_loan_id id() const noexcept { return raw_.id; }

private:
    friend class pool;

    loan(std::shared_ptr<detail::pool_state> pool, const regraph_loan &raw) noexcept
        : pool_(std::move(pool)), raw_(raw) {}

    void end() noexcept {
        bool is_back = false;
        if (!pool_) return;
        regraph_loan_recall(pool_->engine->raw, raw_.id, 0, &is_back);
        regraph_loan_handle_destroy(raw_.handle, raw_.handle_bytes);
        pool_.reset();
    }

    std::shared_ptr<detail::pool_state> pool_;
    regraph_loan raw_;
};

/// A loan of another process that this one has taken. The destructor gives it back, after a wait for the device; while
/// something captures there, it does not, and the process has the loan until its end.
class taken_loan {
public:
    /// Takes the loan that a handle names, for the engine's device: see regraph_loan_take(). Throws
    /// REGRAPH_ERROR_NOT_TAKEN, REGRAPH_ERROR_DRIVER.
    taken_loan(const engine &of, const std::uint8_t *handle, std::size_t handle_bytes) : engine_(of.state_), raw_() {
        detail::check(regraph_loan_take(engine_->raw, handle, handle_bytes, &raw_));
    }
    taken_loan(taken_loan &&other) noexcept : engine_(std::move(other.engine_)), raw_(other.raw_) {}
    taken_loan &operator=(taken_loan &&other) noexcept {
        if (this != &other) {
            end();
            engine_ = std::move(other.engine_);
            raw_ = other.raw_;
        }
        return *this;
    }
    ~taken_loan() { end(); }

    /// The device address.
    std::uint64_t address() const noexcept { return raw_.address; }
    /// The size, in bytes.
    std::uint64_t bytes() const noexcept { return raw_.bytes; }
    /// The address as a pointer for kernels.
    template <class T = void>
    T *data() const noexcept {
        return reinterpret_cast<T *>(static_cast<std::uintptr_t>(raw_.address));
    }

    /// Whether the lender wants it back, or has ended, after a wait of at most so many milliseconds.
    bool wait_for_recall(std::uint64_t milliseconds) const {
        bool is_recalled = false;
        detail::check(regraph_loan_wait_for_recall(engine_->raw, raw_.id, milliseconds, &is_recalled));
        return is_recalled;
    }

    /// Gives it back, after a wait for the device. Leaves the object as if moved from; after
    /// REGRAPH_ERROR_DEVICE_CAPTURES, and where the device cannot be waited for, it is as before.
    void give_back() {
        detail::check(regraph_loan_give_back(engine_->raw, raw_.id));
        engine_.reset();
    }

private:
    void end() noexcept {
        if (engine_) regraph_loan_give_back(engine_->raw, raw_.id);
        engine_.reset();
    }

    std::shared_ptr<detail::engine_state> engine_;
    regraph_taken_loan raw_;
};

/// Memory that graphs share. Graphs of one pool never run at the same time: each launch waits for
/// the one before, on any stream. Graphs that are to run at the same time need pools of their own.
class pool {
public:
    /// An empty pool that may hold `max_bytes` bytes. `name` stands in messages; without one the
    /// pool's number does. `region` is the tag of the region that the pool belongs to, if any.
    explicit pool(const engine &of, std::uint64_t max_bytes = REGRAPH_NO_LIMIT, const char *name = nullptr,
                  const char *region = nullptr)
        : state_(std::make_shared<detail::pool_state>(of.state_, max_bytes, name, region)) {}

    pool(pool &&) = default;
    pool &operator=(pool &&) = default;

    /// A block of at least `bytes` for `stream`, inside a capture or outside. Throws
    /// regraph::out_of_memory, REGRAPH_ERROR_ZERO_BYTES, REGRAPH_ERROR_CAPTURE_INVALIDATED,
    /// REGRAPH_ERROR_CAPTURE_ENDED, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_PER_THREAD_STREAM,
    /// REGRAPH_ERROR_DRIVER.
    block allocate(std::uint64_t bytes, regraph_stream stream) const {
        regraph_block made{};
        detail::check(regraph_allocate(state_->engine->raw, state_->raw, bytes, detail::named(stream), &made));
        return {state_, made};
    }

    /// The same without exceptions: `code` gets the result, and the optional is empty on failure.
    std::optional<block> try_allocate(std::uint64_t bytes, regraph_stream stream, regraph_error &code) const noexcept {
        regraph_block made{};
        code = regraph_allocate(state_->engine->raw, state_->raw, bytes, detail::named(stream), &made);
        if (code != REGRAPH_OK) return std::nullopt;
        return block(state_, made);
    }

    /// Begins a capture on `stream`. `mode` is one of CUDA's (REGRAPH_CAPTURE_GLOBAL and so on).
    capture begin_capture(regraph_stream stream, std::int32_t mode = REGRAPH_CAPTURE_THREAD_LOCAL) const {
        return {state_, stream, mode};
    }

    /// Captures the work that `body(capture &)` submits to `stream`, and to streams that join its
    /// capture. Returns the graph, or a pair of the graph and the result of `body` if that has one.
    /// After REGRAPH_ERROR_CAPTURE_AGAIN it captures again, at most twice: `body` must submit the same
    /// work each time. Its earlier results are destroyed first.
    template <class Body>
    auto record(regraph_stream stream, Body &&body, std::int32_t mode = REGRAPH_CAPTURE_THREAD_LOCAL) const {
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
        for (std::int32_t attempt = REGRAPH_ATTEMPT_FIRST;; ++attempt) {
            try {
                capture begun = begin_capture(stream, mode);
                begun.set_attempt(attempt);
                return finish(begun, body);
            } catch (const error &refused) {
                if (refused.code() != REGRAPH_ERROR_CAPTURE_AGAIN || attempt == REGRAPH_ATTEMPT_LAST) throw;
            }
        }
#else
        capture begun = begin_capture(stream, mode);
        return finish(begun, body);
#endif
    }

    /// The same, captured twice, so that the blocks lie close to the least memory: see
    /// regraph_repeat_stream_capture(). `body` must submit the same work both times. Its first
    /// result is destroyed before the second call.
    template <class Body>
    auto record_twice(regraph_stream stream, Body &&body, std::int32_t mode = REGRAPH_CAPTURE_THREAD_LOCAL) const {
        capture begun = begin_capture(stream, mode);
        static_cast<void>(body(begun));
        begun.repeat();
        return finish(begun, body);
    }

    /// Makes later work on `stream` wait for every launch so far of the pool's graphs.
    void follow(regraph_stream stream) const {
        detail::check(regraph_pool_follow(state_->engine->raw, state_->raw, detail::named(stream)));
    }

    /// Waits until no graph of the pool runs.
    void synchronize() const { detail::check(regraph_pool_synchronize(state_->engine->raw, state_->raw)); }

    /// Gives the pool's memory back and keeps its addresses: see regraph_pool_suspend(). Returns
    /// the bytes that were given back.
    std::uint64_t suspend() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_pool_suspend(state_->engine->raw, state_->raw, &bytes));
        return bytes;
    }

    /// The same, and accepts live blocks that belong to no graph; their contents are lost too.
    std::uint64_t suspend_discarding() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_pool_suspend_discarding(state_->engine->raw, state_->raw, &bytes));
        return bytes;
    }

    /// Maps memory again at a suspended pool's addresses. Returns the bytes that were mapped.
    /// Throws REGRAPH_ERROR_RESUME_OUT_OF_MEMORY.
    std::uint64_t resume() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_pool_resume(state_->engine->raw, state_->raw, &bytes));
        return bytes;
    }

    /// Allocates a block in memory that the graphs do not keep between launches, if there is a place: see
    /// regraph_pool_borrow(). While it lives, launches throw REGRAPH_ERROR_BLOCKS_LENT.
    block borrow(std::uint64_t bytes, regraph_stream stream) const {
        regraph_block made{};
        detail::check(regraph_pool_borrow(state_->engine->raw, state_->raw, bytes, detail::named(stream), &made));
        return {state_, made};
    }

    /// Lends memory that the graphs do not keep between launches to another process: see regraph_pool_lend(). Until the loan
    /// is back, launches throw REGRAPH_ERROR_BLOCKS_LENT.
    loan lend(std::uint64_t bytes, regraph_stream stream) const {
        regraph_loan made{};
        detail::check(regraph_pool_lend(state_->engine->raw, state_->raw, bytes, detail::named(stream), &made));
        return {state_, made};
    }

    /// The bytes of live blocks in memory that the graphs have lent.
    std::uint64_t lent_bytes() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_pool_get_lent_bytes(state_->engine->raw, state_->raw, &bytes));
        return bytes;
    }

    /// Keeps the executables of the pool's graphs within a budget, and has graphs share them, as one of the
    /// REGRAPH_SHARE constants says: see regraph_pool_keep_executables().
    void keep_executables(std::uint64_t budget, std::int32_t sharing) const {
        detail::check(regraph_pool_keep_executables(state_->engine->raw, state_->raw, budget, sharing));
    }

    /// Destroys the executables that are not pinned: see regraph_pool_release_executables(). Returns the bytes that
    /// were foreseen for them.
    std::uint64_t release_executables() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_pool_release_executables(state_->engine->raw, state_->raw, &bytes));
        return bytes;
    }

    /// What the executables of the pool's graphs come to.
    regraph_executable_figures executables() const {
        regraph_executable_figures figures{};
        detail::check(regraph_pool_get_executables(state_->engine->raw, state_->raw, &figures));
        return figures;
    }

    /// Has the graphs share the memory that they can by now: see regraph_pool_compact(). Returns the bytes
    /// that were given back.
    std::uint64_t compact() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_pool_compact(state_->engine->raw, state_->raw, &bytes));
        return bytes;
    }

    /// How many bytes compact() would give back.
    std::uint64_t excess_bytes() const {
        std::uint64_t bytes = 0;
        detail::check(regraph_pool_get_excess_bytes(state_->engine->raw, state_->raw, &bytes));
        return bytes;
    }

    /// Gives the pool a name in place of the one that it has; nullptr takes it away.
    void set_name(const char *name) const {
        detail::check(regraph_pool_set_name(state_->engine->raw, state_->raw, name));
    }

    /// The pool's statistics.
    regraph_statistics statistics() const {
        regraph_statistics found{};
        detail::check(regraph_pool_get_statistics(state_->engine->raw, state_->raw, &found));
        return found;
    }

    /// The pool's engine.
    regraph::engine engine() const { return regraph::engine(state_->engine); }

    /// For the calls of regraph.h.
    regraph_pool raw() const noexcept { return state_->raw; }

private:
    template <class Body>
    static auto finish(capture &begun, Body &body) {
        if constexpr (std::is_void_v<decltype(body(begun))>) {
            body(begun);
            return begun.finish();
        } else {
            auto result = body(begun);
            return std::make_pair(begun.finish(), std::move(result));
        }
    }

    std::shared_ptr<detail::pool_state> state_;
};

/// What graphs that share one pool will need, from captures that come to nothing: see regraph_estimate_begin().
class estimate {
public:
    /// Of graphs that will be captured on the engine's device, with its settings.
    explicit estimate(const engine &of) : state_(std::make_shared<detail::pool_state>(of.state_)) {}

    estimate(estimate &&) = default;
    estimate &operator=(estimate &&) = default;

    /// Captures the work that `body(capture &)` submits to `stream`, and to streams that join its capture, and shows it.
    /// What `body` returns is destroyed then, and counts as kept as long as the graph lives.
    template <class Body>
    void record(regraph_stream stream, Body &&body, std::int32_t mode = REGRAPH_CAPTURE_THREAD_LOCAL) const {
        capture begun(state_, stream, mode);
        if constexpr (std::is_void_v<decltype(body(begun))>) {
            body(begun);
            begun.show();
        } else {
            [[maybe_unused]] const auto kept = body(begun);
            begun.show();
        }
    }

    /// What the graphs will need, captured in the same order. The estimate is over then: another call, and
    /// another capture, throw REGRAPH_ERROR_UNKNOWN_POOL.
    regraph_needs end() {
        regraph_needs needs{};
        const regraph_error code = regraph_estimate_end(state_->engine->raw, state_->raw, &needs);
        // With a capture under way it goes on.
        state_->over |= code != REGRAPH_ERROR_INVALID_ARGUMENT;
        detail::check(code);
        return needs;
    }

private:
    std::shared_ptr<detail::pool_state> state_;
};

#if defined(REGRAPH_PER_THREAD)
}  // namespace per_thread
#endif

}  // namespace regraph

#endif  // REGRAPH_HPP
