// Figures, history, snapshots and observers.
#include "allocator.h"

namespace regraph {

c10::CachingDeviceAllocator::DeviceStats Allocator::getDeviceStats(DeviceIndex) { return {}; }

void Allocator::resetAccumulatedStats(DeviceIndex) {}

void Allocator::resetPeakStats(DeviceIndex) {}

native::SnapshotInfo Allocator::snapshot(MempoolId_t, bool) { return {}; }

void Allocator::recordHistory(bool, native::CreateContextFn, std::size_t, native::RecordContext, bool,
                              const std::vector<std::string>&) {}

void Allocator::attachOutOfMemoryObserver(native::OutOfMemoryObserver) {}

void Allocator::attachAllocatorTraceTracker(native::AllocatorTraceTracker) {}

std::vector<native::StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex) { return {}; }

}  // namespace regraph
