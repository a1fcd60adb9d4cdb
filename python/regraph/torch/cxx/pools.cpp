// Pools of memory: of graphs, and of torch.cuda.MemPool.
#include "allocator.h"
#include "graphs.h"
#include "history.h"

#include <algorithm>

#include <c10/cuda/CUDAGraphsC10Utils.h>

namespace regraph {

namespace {

// An allocator that a pool has its memory from. Before PyTorch 2.11 the program keeps it.
using Source = std::shared_ptr<native::CUDAAllocator>;

void* source_allocate(void* context, std::size_t bytes, void* stream) {
  try {
    // What it calls may be forbidden in captures.
    c10::cuda::CUDAStreamCaptureModeGuard relaxed{cudaStreamCaptureModeRelaxed};
    Source& source = *static_cast<Source*>(context);
    return source->raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
  } catch (...) {
    return nullptr;
  }
}

void source_free(void* context, void* address) {
  try {
    c10::cuda::CUDAStreamCaptureModeGuard relaxed{cudaStreamCaptureModeRelaxed};
    (*static_cast<Source*>(context))->raw_delete(address);
  } catch (...) {
    // The memory is lost, and no caller is left that could be told.
  }
}

void source_drop(void* context) { delete static_cast<Source*>(context); }

PoolSource table_of(Source source) {
  return PoolSource{new Source(std::move(source)), &source_allocate, &source_free, &source_drop};
}

void create(DeviceIndex device, MempoolId_t pool, Source source) {
  // regraph's own memory is what the pool has anyway.
  if (source == nullptr || source.get() == native::get()) {
    hooks.pool_create(device, pool.first, pool.second, nullptr);
    return;
  }
  const PoolSource table = table_of(std::move(source));
  hooks.pool_create(device, pool.first, pool.second, &table);
}

#if REGRAPH_TORCH < 211
// A pointer that keeps nothing.
Source borrowed(native::CUDAAllocator* source) { return Source(Source(), source); }
#endif

}  // namespace

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                                    std::function<bool(cudaStream_t)> filter) {
#if REGRAPH_TORCH < 208
  // Only now does PyTorch say where the pool's memory comes from.
  c10::cuda::MemPool* active = c10::cuda::MemPoolContext::getActiveMemPool();
  if (active != nullptr && active->id() == pool && active->allocator() != nullptr &&
      hooks.pool_users(device, pool.first, pool.second) == 1) {
    const PoolSource table = table_of(borrowed(active->allocator()));
    hooks.pool_source(device, pool.first, pool.second, &table);
  }
#endif
  const void* owner = graph_object(filter);
  using Filter = std::function<bool(void*)>;
  auto takes = [filter = std::move(filter)](void* stream) {
    return filter(static_cast<cudaStream_t>(stream));
  };
  hooks.route_begin(device, pool.first, pool.second, new Filter(std::move(takes)), owner,
                    &graph_of);
}

void Allocator::endAllocateToPool(DeviceIndex device, MempoolId_t pool) {
  hooks.end_pool(device, pool.first, pool.second);
}

void Allocator::releasePool(DeviceIndex device, MempoolId_t pool) {
  hooks.release_pool(device, pool.first, pool.second);
}

int Allocator::getPoolUseCount(DeviceIndex device, MempoolId_t pool) {
  return static_cast<int>(hooks.pool_users(device, pool.first, pool.second));
}

#if REGRAPH_TORCH >= 211
void Allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                                   std::shared_ptr<native::CUDAAllocator> source) {
  create(device, pool, std::move(source));
}

void Allocator::setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool on) {
  hooks.pool_use_on_oom(device, pool.first, pool.second, on);
}
#elif REGRAPH_TORCH >= 208
void Allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                                   native::CUDAAllocator* source) {
  create(device, pool, borrowed(source));
}

void Allocator::setUseOnOOM(DeviceIndex device, MempoolId_t pool) {
  hooks.pool_use_on_oom(device, pool.first, pool.second, true);
}
#else
void Allocator::ensureExistsAndIncrefPool(DeviceIndex device, MempoolId_t pool) {
  create(device, pool, nullptr);
}
#endif

#if REGRAPH_TORCH >= 210
void Allocator::setNoSplit(DeviceIndex device, MempoolId_t pool) {
  hooks.pool_no_split(device, pool.first, pool.second);
}
#endif

#if REGRAPH_TORCH >= 208
void Allocator::emptyCache(MempoolId_t pool) {
  if (pool.first != 0 || pool.second != 0) {
    // Called in a destructor, which must not throw.
    const Origin origin(Origin::Of::Free);
    hooks.pool_empty(pool.first, pool.second);
    drop_of_observer();
    return;
  }
#else
void Allocator::emptyCache() {
#endif
  const Origin origin(Origin::Of::Free);
  try {
    hooks.reset();
  } catch (...) {
    throw_of_observer();
    throw;
  }
  throw_of_observer();
}

void Allocator::enable(bool value) { hooks.set_caching(value); }

bool Allocator::isEnabled() const { return hooks.is_caching(); }

void Allocator::cacheInfo(DeviceIndex device, std::size_t* largest) {
  *largest = std::max(*largest, hooks.largest_block(device));
}

void* Allocator::getBaseAllocation(void* address, std::size_t* bytes) {
  std::size_t all = 0;
  void* base = hooks.surroundings(address, &all);
  if (bytes != nullptr) *bytes = all;
  return base;
}

}  // namespace regraph
