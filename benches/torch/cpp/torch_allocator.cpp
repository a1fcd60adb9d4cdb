// PyTorch's allocator, driven as its CUDAGraph and its tensors drive it.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "parts.hpp"

// In c10_cuda, and declared by no header of PyTorch's: its other libraries declare it as here.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has)(c10::DeviceIndex));
}

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

cudaStreamCaptureStatus capture_of(cudaStream_t stream, unsigned long long& id) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
#if CUDART_VERSION >= 13000
    C10_CUDA_CHECK(
        cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr));
#else
    C10_CUDA_CHECK(cudaStreamGetCaptureInfo_v2(stream, &status, &id, nullptr, nullptr, nullptr));
#endif
    return status;
}

class TorchAllocator final : public Allocator {
public:
    TorchAllocator() {
        // PyTorch asks this before it makes a device current again, as behind each event; the library
        // that would answer is not loaded here. `Gpu` has made the first device's context.
        c10::cuda::_internal::setHasPrimaryContext(
            [](c10::DeviceIndex device) { return device == 0; });
        int devices = 0;
        C10_CUDA_CHECK(cudaGetDeviceCount(&devices));
        caching::init(devices);
        deleter = caching::get()->raw_deleter();
    }

    void prepare(std::uint32_t blocks, const std::vector<Stream>& program_streams) override {
        pool.second++;
        pointers.clear();
        pointers.resize(blocks);
        raw = program_streams;
        streams.clear();
        for (Stream stream : raw) streams.push_back(c10::cuda::getStreamFromExternal(stream, 0));
        caching::emptyCache();
        caching::resetPeakStats(0);
        reserved_before = stats().reserved_bytes[all].current;
        allocated_before = stats().allocated_bytes[all].current;
    }

    void before_begin() override {
        capture = 0;
        caching::beginAllocateToPool(0, pool, [this](cudaStream_t stream) {
            unsigned long long id = 0;
            auto status = capture_of(stream, id);
            return status == cudaStreamCaptureStatusActive && id == capture;
        });
    }

    void after_begin() override { capture_of(raw[0], capture); }

    std::uint64_t allocate(std::uint32_t block, std::uint64_t bytes,
                           std::uint32_t stream) override {
        void* pointer = caching::get()->raw_alloc_with_stream(bytes, raw[stream]);
        pointers[block] = c10::DataPtr(pointer, pointer, deleter, device);
        return reinterpret_cast<std::uint64_t>(pointer);
    }

    void record_stream(std::uint32_t block, std::uint32_t stream) override {
        caching::recordStream(pointers[block], streams[stream]);
    }

    void release(std::uint32_t block) override { pointers[block].clear(); }

    void after_end() override { caching::endAllocateToPool(0, pool); }

    std::uint64_t reserved() override {
        return static_cast<std::uint64_t>(stats().reserved_bytes[all].current - reserved_before);
    }

    std::uint64_t peak_allocated() override {
        return static_cast<std::uint64_t>(stats().allocated_bytes[all].peak - allocated_before);
    }

    void finish() override {
        pointers.clear();
        caching::releasePool(0, pool);
        C10_CUDA_CHECK(cudaDeviceSynchronize());
        caching::emptyCache();
    }

private:
    static constexpr auto all =
        static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

    static c10::CachingDeviceAllocator::DeviceStats stats() { return caching::getDeviceStats(0); }

    const c10::Device device{c10::DeviceType::CUDA, 0};
    c10::DeleterFnPtr deleter = nullptr;
    c10::MempoolId_t pool{0, 1000};
    unsigned long long capture = 0;
    std::vector<Stream> raw;
    std::vector<c10::cuda::CUDAStream> streams;
    std::vector<c10::DataPtr> pointers;
    std::int64_t reserved_before = 0, allocated_before = 0;
};

}  // namespace

std::unique_ptr<Allocator> torch_allocator() { return std::make_unique<TorchAllocator>(); }
