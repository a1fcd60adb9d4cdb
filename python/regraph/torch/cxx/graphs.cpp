#include "graphs.h"

#include <cstring>
#include <typeinfo>

#include "allocator.h"

namespace regraph {

namespace {

// The functions of at::cuda::CUDAGraph that make filters which keep `this` and nothing else: up to
// PyTorch 2.11, and later.
constexpr const char* kMakers[] = {"ZN2at4cuda9CUDAGraph13capture_begin",
                                   "ZNK2at4cuda9CUDAGraph22create_allocate_filter"};

bool begins_with(const char* text, const char* start) {
  return std::strncmp(text, start, std::strlen(start)) == 0;
}

}  // namespace

const void* graph_object(const std::function<bool(cudaStream_t)>& filter) {
#if REGRAPH_TORCH <= 215 && defined(__GLIBCXX__)
  const char* name = filter.target_type().name();
  if (!begins_with(name, kMakers[0]) && !begins_with(name, kMakers[1])) return nullptr;
  // libstdc++ keeps a function of one pointer in place, at the beginning.
  const GraphObject* object = nullptr;
  std::memcpy(&object, &filter, sizeof object);
  // It has no graph before its capture.
  return object->graph == nullptr && object->executable == nullptr ? object : nullptr;
#else
  return nullptr;
#endif
}

void* graph_of(const void* object, std::uint64_t capture) {
  const auto* graph = static_cast<const GraphObject*>(object);
  return graph->capture == capture && graph->executable == nullptr ? graph->graph : nullptr;
}

}  // namespace regraph
