/*
 * regraph as a memory resource of RMM, for C++ programs that use RAPIDS.
 *
 *     regraph::pool pool(regraph::engine::cuda());
 *     auto resource = regraph::rmm_resource(std::move(pool));
 *     rmm::mr::set_current_device_resource(resource);
 *
 * Inline code over regraph.hpp and RMM's own headers, which must be found (the package librmm, with
 * rmm::mr::callback_memory_resource). The class of streams that RMM's callbacks get may be
 * rmm::cuda_stream_view or cuda::stream_ref.
 *
 * Order. Memory is ready for what its stream is given from then on. It goes back in the order of the
 * stream of its free, which need not be the same: the next owner waits for what both hold.
 *
 * Errors. A request throws rmm::out_of_memory where memory is short, and else rmm::bad_alloc with the
 * message of regraph::error, for the per-thread default stream for instance. A free that fails writes
 * to standard error, and the memory stays allocated.
 *
 * Streams. One that memory was asked for or freed on lives until pool::engine().retire_stream() has
 * succeeded for it, or until the engine is gone.
 *
 * Threads. As RMM's resources: all calls may come from any thread.
 */

#ifndef REGRAPH_RMM_HPP
#define REGRAPH_RMM_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <rmm/error.hpp>
#include <rmm/mr/callback_memory_resource.hpp>

#include <regraph.hpp>

namespace regraph {

#if defined(REGRAPH_PER_THREAD)
inline namespace per_thread {
#endif

namespace detail {

/// The handle of a cuda::stream_ref.
template <class Stream>
auto stream_handle(const Stream &stream, int) -> decltype(stream.get()) {
    return stream.get();
}

/// The handle of an rmm::cuda_stream_view.
template <class Stream>
auto stream_handle(const Stream &stream, long) -> decltype(stream.value()) {
    return stream.value();
}

/// A pool with its live blocks by address, which is all that RMM keeps of them.
class rmm_blocks {
public:
    explicit rmm_blocks(pool from) : pool_(std::move(from)) {}

    void *allocate(std::size_t bytes, regraph_stream stream) {
        if (bytes == 0) return nullptr;
        try {
            block made = pool_.allocate(bytes, stream);
            void *const address = made.data();
            part &of = part_of(address);
            const std::lock_guard<std::mutex> lock(of.guard);
            of.blocks.emplace(address, std::move(made));
            return address;
        } catch (const out_of_memory &failed) {
            throw rmm::out_of_memory(failed.what());
        } catch (const error &failed) {
            throw rmm::bad_alloc(failed.what());
        }
    }

    void free(void *address, regraph_stream stream) noexcept {
        if (address == nullptr) return;
        part &of = part_of(address);
        std::unique_lock<std::mutex> lock(of.guard);
        auto found = of.blocks.extract(address);
        // The address may be another block's once it is free.
        lock.unlock();
        if (found.empty()) {
            std::fprintf(stderr, "regraph: no live block begins at %p\n", address);
            return;
        }
        try {
            found.mapped().free_from(stream);
        } catch (const std::exception &failed) {
            std::fprintf(stderr, "regraph: %s; the memory is kept\n", failed.what());
            // Its destructor would free it without the stream.
            static_cast<void>(found.mapped().release());
        }
    }

private:
    /// One of several tables, so that threads seldom meet.
    struct part {
        std::mutex guard;
        std::unordered_map<void *, block> blocks;
    };

    part &part_of(void *address) noexcept {
        // Addresses are multiples of 512.
        return parts_[reinterpret_cast<std::uintptr_t>(address) / 512 % parts_.size()];
    }

    pool pool_;
    std::array<part, 16> parts_;
};

}  // namespace detail

/// A memory resource whose memory is a pool's. Copies of it share the pool, which lives until the last of
/// them is gone. Memory that was not given back by then is freed with it.
inline rmm::mr::callback_memory_resource rmm_resource(pool from) {
    const auto blocks = std::make_shared<detail::rmm_blocks>(std::move(from));
    // RMM's own argument for callbacks is not needed: they own what they use.
    return rmm::mr::callback_memory_resource(
        [blocks](std::size_t bytes, auto stream, void *) {
            return blocks->allocate(bytes, detail::stream_handle(stream, 0));
        },
        [blocks](void *address, std::size_t, auto stream, void *) {
            blocks->free(address, detail::stream_handle(stream, 0));
        });
}

#if defined(REGRAPH_PER_THREAD)
}  // namespace per_thread
#endif

}  // namespace regraph

#endif  // REGRAPH_RMM_HPP
