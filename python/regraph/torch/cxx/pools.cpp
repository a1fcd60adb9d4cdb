// Pools of memory: of graphs, and of torch.cuda.MemPool.
#include "allocator.h"
#include "history.h"

namespace regraph {

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                                    std::function<bool(cudaStream_t)> filter) {
  using Filter = std::function<bool(void*)>;
  auto takes = [filter = std::move(filter)](void* stream) {
    return filter(static_cast<cudaStream_t>(stream));
  };
  hooks.route_begin(device, pool.first, pool.second, new Filter(std::move(takes)));
}

void Allocator::endAllocateToPool(DeviceIndex device, MempoolId_t pool) {
  hooks.end_pool(device, pool.first, pool.second);
}

void Allocator::releasePool(DeviceIndex device, MempoolId_t pool) {
  hooks.release_pool(device, pool.first, pool.second);
}

#if REGRAPH_TORCH >= 208
void Allocator::emptyCache(MempoolId_t) {
  const Origin origin(Origin::Of::Free);
  hooks.reset();
  throw_of_observer();
}
#else
void Allocator::emptyCache() {
  const Origin origin(Origin::Of::Free);
  hooks.reset();
  throw_of_observer();
}
#endif

void Allocator::enable(bool value) {
  if (!value) not_served("torch.cuda.caching_allocator_enable(False)");
}

bool Allocator::isEnabled() const { return true; }

void Allocator::cacheInfo(DeviceIndex, std::size_t*) { not_served("cacheInfo"); }

void* Allocator::getBaseAllocation(void* address, std::size_t*) { return address; }

}  // namespace regraph
