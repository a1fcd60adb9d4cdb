// What regraph_rmm.hpp needs of RMM's header of this name, as RMM documents it. RMM_MIRROR_STREAM is the class
// of streams that its callbacks get, which differs between versions.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

struct CUstream_st;

namespace cuda {
class stream_ref {
public:
    stream_ref(CUstream_st *stream) : stream_(stream) {}
    CUstream_st *get() const noexcept { return stream_; }

private:
    CUstream_st *stream_;
};
}  // namespace cuda

namespace rmm {

class cuda_stream_view {
public:
    cuda_stream_view(CUstream_st *stream) : stream_(stream) {}
    CUstream_st *value() const noexcept { return stream_; }

private:
    CUstream_st *stream_;
};

namespace mr {

using allocate_callback_t = std::function<void *(std::size_t, RMM_MIRROR_STREAM, void *)>;
using deallocate_callback_t = std::function<void(void *, std::size_t, RMM_MIRROR_STREAM, void *)>;

class callback_memory_resource {
public:
    callback_memory_resource(allocate_callback_t allocate, deallocate_callback_t deallocate,
                             void *allocate_argument = nullptr, void *deallocate_argument = nullptr)
        : calls_(std::make_shared<std::pair<allocate_callback_t, deallocate_callback_t>>(
              std::move(allocate), std::move(deallocate))),
          allocate_argument_(allocate_argument),
          deallocate_argument_(deallocate_argument) {}

    void *allocate(RMM_MIRROR_STREAM stream, std::size_t bytes) {
        return calls_->first(bytes, stream, allocate_argument_);
    }

    void deallocate(RMM_MIRROR_STREAM stream, void *address, std::size_t bytes) noexcept {
        calls_->second(address, bytes, stream, deallocate_argument_);
    }

private:
    std::shared_ptr<std::pair<allocate_callback_t, deallocate_callback_t>> calls_;
    void *allocate_argument_;
    void *deallocate_argument_;
};

}  // namespace mr
}  // namespace rmm
