// The graph objects of PyTorch that begin and end captures.
//
// PyTorch does not tell its allocator which graph comes of a capture. But it ends the pool right after
// the capture, when its graph object has the graph and has not instantiated it, and the filter by which
// that object began the pool refers to it.
#pragma once

#include <cstdint>
#include <functional>

#include <c10/cuda/CUDAStream.h>

namespace regraph {

// What an at::cuda::CUDAGraph begins with, in PyTorch 2.7 to 2.15; `test_native.py` compares it with the
// headers. The class itself needs headers of PyTorch's operators, thousands of files.
struct GraphObject {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  bool states[8];
  std::uint64_t capture;
};

// The graph object that a filter is of: null where the filter is not one of PyTorch's own graph class.
const void* graph_object(const std::function<bool(cudaStream_t)>& filter);

// The graph that a capture of a graph object has come to; null unless the object says that it was this
// capture, and has not instantiated it.
void* graph_of(const void* object, std::uint64_t capture);

}  // namespace regraph
