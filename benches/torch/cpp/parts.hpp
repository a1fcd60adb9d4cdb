// What is compared, and what it is compared on.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct CUstream_st;
struct CUgraph_st;
using Stream = CUstream_st*;
using Graph = CUgraph_st*;

// An allocator in a capture. Calls come in the order in which they stand here.
class Allocator {
public:
    virtual ~Allocator() = default;

    // Room for so many blocks. The streams are those of the program; the first begins the capture.
    virtual void prepare(std::uint32_t blocks, const std::vector<Stream>& streams) = 0;
    // Before and after the capture begins on its stream.
    virtual void before_begin() {}
    virtual void after_begin() {}
    // Answers with the block's address.
    virtual std::uint64_t allocate(std::uint32_t block, std::uint64_t bytes,
                                   std::uint32_t stream) = 0;
    virtual void record_stream(std::uint32_t block, std::uint32_t stream) = 0;
    virtual void release(std::uint32_t block) = 0;
    // Before and after the capture ends on its stream.
    virtual void before_end(Graph) {}
    virtual void after_end() {}
    // Figures since `prepare`, in bytes.
    virtual std::uint64_t reserved() = 0;
    virtual std::uint64_t peak_allocated() = 0;
    // The graph is destroyed: all memory goes back.
    virtual void finish() = 0;
};

// The device that the program runs on.
class Device {
public:
    virtual ~Device() = default;

    virtual Stream create_stream() = 0;
    virtual void begin_capture(Stream origin) = 0;
    // One small kernel, which writes to the address unless that is 0.
    virtual void launch(Stream stream, std::uint64_t address) = 0;
    virtual void wait(Stream stream, Stream on) = 0;
    virtual Graph graph(Stream origin) = 0;
    virtual Graph end_capture(Stream origin) = 0;
    virtual std::uint64_t nodes(Graph graph) = 0;
    virtual void instantiate(Graph graph) = 0;
    // Nanoseconds of some launches of the graph, each by itself.
    virtual std::vector<std::uint64_t> launch_graph(Stream stream, int times) = 0;
    virtual void destroy(Graph graph) = 0;
};

std::unique_ptr<Device> gpu();
std::unique_ptr<Allocator> torch_allocator();

// regraph, from its C library: on the GPU, or on its own simulated device.
struct Regraph {
    std::unique_ptr<Allocator> allocator;
    std::unique_ptr<Device> simulated;
};
Regraph regraph(const std::string& library, bool simulated);
