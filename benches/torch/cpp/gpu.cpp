// The GPU, through the CUDA runtime. No compiler for device code is needed: the kernel is PTX.
#include <cuda_runtime_api.h>

#include "parts.hpp"

namespace {

const char kernel_text[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry touch(.param .u64 address)
{
    .reg .u64 %a;
    .reg .u32 %t;
    .reg .pred %p;
    ld.param.u64 %a, [address];
    mov.u32 %t, %tid.x;
    setp.ne.u32 %p, %t, 0;
    @%p ret;
    cvta.to.global.u64 %a, %a;
    st.global.u32 [%a], %t;
    ret;
}
)";

void check(cudaError_t error, const char* call) {
    if (error != cudaSuccess)
        throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}
#define CHECK(call) check(call, #call)

class Gpu final : public Device {
public:
    Gpu() {
        CHECK(cudaSetDevice(0));
        CHECK(cudaFree(nullptr));
        CHECK(cudaMalloc(&scratch, 512));
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK(cudaEventCreate(&begin));
        CHECK(cudaEventCreate(&end));
        cudaLibrary_t library = nullptr;
        CHECK(cudaLibraryLoadData(&library, kernel_text, nullptr, nullptr, 0, nullptr, nullptr, 0));
        CHECK(cudaLibraryGetKernel(&kernel, library, "touch"));
    }

    Stream create_stream() override {
        cudaStream_t stream = nullptr;
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        launch(stream, 0);
        CHECK(cudaStreamSynchronize(stream));
        return stream;
    }

    void begin_capture(Stream origin) override {
        // PyTorch's allocator asks the driver for memory meanwhile, and allows itself to do so only if
        // PyTorch's own current stream captures.
        CHECK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed));
    }

    void launch(Stream stream, std::uint64_t address) override {
        if (address == 0) address = reinterpret_cast<std::uint64_t>(scratch);
        void* arguments[] = {&address};
        CHECK(cudaLaunchKernel(kernel, dim3(1), dim3(32), arguments, 0, stream));
    }

    void wait(Stream stream, Stream on) override {
        CHECK(cudaEventRecord(event, on));
        CHECK(cudaStreamWaitEvent(stream, event, 0));
    }

    Graph graph(Stream origin) override {
        cudaStreamCaptureStatus status;
        cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
        CHECK(cudaStreamGetCaptureInfo(origin, &status, nullptr, &graph, nullptr, nullptr,
                                       nullptr));
#else
        CHECK(cudaStreamGetCaptureInfo_v2(origin, &status, nullptr, &graph, nullptr, nullptr));
#endif
        return graph;
    }

    Graph end_capture(Stream origin) override {
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamEndCapture(origin, &graph));
        return graph;
    }

    std::uint64_t nodes(Graph graph) override {
        std::size_t count = 0;
        CHECK(cudaGraphGetNodes(graph, nullptr, &count));
        return count;
    }

    void instantiate(Graph graph) override {
        // As PyTorch does.
        CHECK(cudaGraphInstantiateWithFlags(&executable, graph,
                                            cudaGraphInstantiateFlagAutoFreeOnLaunch));
    }

    std::vector<std::uint64_t> launch_graph(Stream stream, int times) override {
        std::vector<std::uint64_t> found;
        for (int time = 0; time < times; time++) {
            float milliseconds = 0;
            CHECK(cudaEventRecord(begin, stream));
            CHECK(cudaGraphLaunch(executable, stream));
            CHECK(cudaEventRecord(end, stream));
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
            found.push_back(static_cast<std::uint64_t>(static_cast<double>(milliseconds) * 1e6));
        }
        return found;
    }

    void destroy(Graph graph) override {
        CHECK(cudaGraphExecDestroy(executable));
        CHECK(cudaGraphDestroy(graph));
        executable = nullptr;
    }

private:
    void* scratch = nullptr;
    cudaEvent_t event = nullptr, begin = nullptr, end = nullptr;
    cudaKernel_t kernel = nullptr;
    cudaGraphExec_t executable = nullptr;
};

}  // namespace

std::unique_ptr<Device> gpu() { return std::make_unique<Gpu>(); }
