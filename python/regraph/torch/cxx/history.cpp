// Figures, history, snapshots and observers.
#include "allocator.h"

namespace regraph {

c10::CachingDeviceAllocator::DeviceStats Allocator::getDeviceStats(DeviceIndex) { return {}; }

void Allocator::resetAccumulatedStats(DeviceIndex) {}

void Allocator::resetPeakStats(DeviceIndex) {}

#if REGRAPH_TORCH >= 211
native::SnapshotInfo Allocator::snapshot(MempoolId_t pool, bool traces) {
  return snapshot_of(pool, traces);
}

void Allocator::recordHistory(bool enabled, native::CreateContextFn context, std::size_t entries,
                              native::RecordContext when, bool clear,
                              const std::vector<std::string>& skipped) {
  record_history(enabled, context, entries, when, clear, skipped);
}
#elif REGRAPH_TORCH >= 208
native::SnapshotInfo Allocator::snapshot(MempoolId_t pool) { return snapshot_of(pool, true); }

void Allocator::recordHistory(bool enabled, native::CreateContextFn context, std::size_t entries,
                              native::RecordContext when, bool clear) {
  record_history(enabled, context, entries, when, clear, {});
}
#else
native::SnapshotInfo Allocator::snapshot() { return snapshot_of({0, 0}, true); }

void Allocator::recordHistory(bool enabled, native::CreateContextFn context, std::size_t entries,
                              native::RecordContext when) {
  record_history(enabled, context, entries, when, false, {});
}
#endif

native::SnapshotInfo Allocator::snapshot_of(MempoolId_t, bool) { return {}; }

void Allocator::record_history(bool, native::CreateContextFn, std::size_t, native::RecordContext, bool,
                               const std::vector<std::string>&) {}

void Allocator::attachOutOfMemoryObserver(native::OutOfMemoryObserver) {}

void Allocator::attachAllocatorTraceTracker(native::AllocatorTraceTracker) {}

#if REGRAPH_TORCH >= 212
void Allocator::attachOomRejectionObserver(native::OomRejectionObserver) {}
#endif

#if REGRAPH_TORCH >= 210
std::vector<native::StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex) { return {}; }
#endif

}  // namespace regraph
