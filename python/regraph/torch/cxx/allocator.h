// PyTorch's allocator of GPU memory, on regraph: one object for all devices.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/api/include/torch/version.h>

#include "hooks.h"

// The version of PyTorch as one number: 2.11 is 211.
#define REGRAPH_TORCH (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)

namespace regraph {

namespace native = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::cuda::MempoolId_t;

// Visible, so that the loader knows the length of its table of virtual functions.
class __attribute__((visibility("default"))) Allocator final : public native::CUDAAllocator {
 public:
  // `name`: what torch.cuda.memory.get_allocator_backend() says.
  explicit Allocator(std::string name) : name_(std::move(name)) {}

  // Blocks.
  c10::DataPtr allocate(std::size_t bytes) override;
#if REGRAPH_TORCH >= 213
  c10::DataPtr allocateWithAddress(std::size_t bytes, void* address) override;
#endif
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(std::size_t bytes) override;
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* address) override;
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  // Memory as a whole.
  void init(int devices) override;
  bool initialized() override;
#if REGRAPH_TORCH >= 208
  void emptyCache(MempoolId_t pool = {0, 0}) override;
#else
  void emptyCache() override;
#endif
  double getMemoryFraction(DeviceIndex device) override;
  void setMemoryFraction(double share, DeviceIndex device) override;
  void enable(bool value) override;
  bool isEnabled() const override;
  void cacheInfo(DeviceIndex device, std::size_t* largest) override;
  void* getBaseAllocation(void* address, std::size_t* bytes) override;
  std::string name() override;

  // Pools.
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override;
  void releasePool(DeviceIndex device, MempoolId_t pool) override;
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override;
#if REGRAPH_TORCH >= 211
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<native::CUDAAllocator> source) override;
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool on) override;
#elif REGRAPH_TORCH >= 208
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          native::CUDAAllocator* source) override;
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool) override;
#else
  void ensureExistsAndIncrefPool(DeviceIndex device, MempoolId_t pool) override;
#endif
#if REGRAPH_TORCH >= 210
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override;
#endif

  // Graph trees.
  std::shared_ptr<native::AllocatorState> getCheckpointState(DeviceIndex device,
                                                             MempoolId_t pool) override;
  native::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device, std::shared_ptr<native::AllocatorState> state) override;
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override;

  // Figures and history.
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
#if REGRAPH_TORCH >= 211
  native::SnapshotInfo snapshot(MempoolId_t pool, bool traces) override;
  void recordHistory(bool enabled, native::CreateContextFn context, std::size_t entries,
                     native::RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override;
#elif REGRAPH_TORCH >= 208
  native::SnapshotInfo snapshot(MempoolId_t pool) override;
  void recordHistory(bool enabled, native::CreateContextFn context, std::size_t entries,
                     native::RecordContext when, bool clear) override;
#else
  native::SnapshotInfo snapshot() override;
  void recordHistory(bool enabled, native::CreateContextFn context, std::size_t entries,
                     native::RecordContext when) override;
#endif
  bool isHistoryEnabled() override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& pairs) override;
#if REGRAPH_TORCH >= 208
  void pushCompileContext(std::string& context) override;
  void popCompileContext() override;
#endif
#if REGRAPH_TORCH >= 210
  void setUserMetadata(const std::string& metadata) override;
  std::string getUserMetadata() override;
#endif
#if REGRAPH_TORCH >= 212
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* address) override;
#endif
#if REGRAPH_TORCH >= 214
  bool supportsUserMetadata() override { return true; }
  void annotateMemory(const void* address, const std::string& metadata) override;
#endif
  void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) override;
#if REGRAPH_TORCH >= 212
  void attachOomRejectionObserver(native::OomRejectionObserver observer) override;
#endif
  void attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) override;
#if REGRAPH_TORCH >= 210
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;
#endif

  // Other devices and processes.
  native::ShareableHandle shareIpcHandle(void* address) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override;
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t bytes, cudaStream_t stream, bool peers) override;

 private:
  native::SnapshotInfo snapshot_of(MempoolId_t pool, bool traces);
  void record_history(bool enabled, native::CreateContextFn context, std::size_t entries,
                      native::RecordContext when, bool clear,
                      const std::vector<std::string>& skipped);

  // An error for a number that no device has, as PyTorch's own.
  void require(DeviceIndex device) const;

  std::string name_;
  int devices_ = 0;
};

// Takes back a block of the allocator's: the deleter of every tensor's memory.
void free_block(void* address);

// An error that says what this build cannot do.
[[noreturn]] void not_served(const char* what);

}  // namespace regraph
