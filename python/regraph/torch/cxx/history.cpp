// Figures, history, snapshots and observers.
#include "history.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <exception>
#include <iterator>
#include <mutex>
#include <stack>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include "allocator.h"

namespace regraph {

std::atomic<bool> recording{false};
std::atomic<bool> observers_throw{false};

namespace {

#if REGRAPH_TORCH >= 211
using c10::CachingDeviceAllocator::AnnotationEntry;
#else
using native::AnnotationEntry;
#endif

// What the native half keeps with calls and gives back in snapshots.
struct Context {
  std::shared_ptr<c10::GatheredContext> gathered;
  std::string compiled;
  std::string metadata;
};

void drop_context(void* context) { delete static_cast<Context*>(context); }

// Set with the history; requests read them without a lock.
std::atomic<native::CreateContextFn> recorder{nullptr};
std::atomic<native::RecordContext> detail{native::RecordContext::NEVER};

thread_local std::stack<std::string> compile_contexts;
thread_local std::string user_metadata;

// What programs have annotated, and how much of it is kept.
std::mutex annotations_guard;
std::deque<AnnotationEntry> annotations;
std::size_t most_annotations = 0;

#if REGRAPH_TORCH >= 214
// What was said of live blocks, with what else happened on a device; as many as of annotations.
std::deque<native::TraceEntry> remarks;
bool keeps_remarks = true;
#endif

#if REGRAPH_TORCH >= 212
// Requests that a limit refused where PyTorch is set to tell of them, by device.
std::array<std::atomic<std::int64_t>, C10_COMPILE_TIME_MAX_GPUS> rejections{};
#endif

DeviceIndex current() {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

c10::time_t microseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// What an observer has thrown in this thread.
thread_local std::exception_ptr failure;

template <typename Tell>
void shielded(Tell tell) noexcept {
  try {
    tell();
  } catch (...) {
    if (failure == nullptr) failure = std::current_exception();
    observers_throw.store(true, std::memory_order_relaxed);
  }
}

}  // namespace

namespace {

// A block must be freed whether or not its stack can be had.
std::shared_ptr<c10::GatheredContext> gathered_by(native::CreateContextFn gather, Origin::Of of) {
  if (of == Origin::Of::Allocation) return gather();
  try {
    return gather();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

// Within a request libraries may free what they keep: the request's own origin is told of it, too.
thread_local bool inside = false;

void Origin::enter(Of of) {
  if (inside) return;
  auto context = std::make_unique<Context>();
  const auto least =
      of == Of::Allocation ? native::RecordContext::STATE : native::RecordContext::ALL;
  const native::CreateContextFn gather = recorder.load();
  if (detail.load() >= least && gather != nullptr) context->gathered = gathered_by(gather, of);
  // A free that brings nothing of its own is told with what its block's allocation brought.
  if (of == Of::Free && context->gathered == nullptr) return;
  if (!compile_contexts.empty()) context->compiled = compile_contexts.top();
  context->metadata = user_metadata;
  if (context->gathered == nullptr && context->compiled.empty() && context->metadata.empty()) return;
  hooks.context_set(context.release(), &drop_context);
  entered_ = inside = true;
}

void Origin::leave() {
  inside = false;
  hooks.context_set(nullptr, nullptr);
}

bool is_kept() { return failure != nullptr; }

void drop_kept() {
  failure = nullptr;
  TORCH_WARN("An observer of PyTorch's memory has failed in a free, or outside requests for memory");
}

void throw_kept() { std::rethrow_exception(std::exchange(failure, nullptr)); }

// Figures.

namespace {

using Numbers = std::array<std::int64_t, kFigures>;

Numbers numbers(int device) {
  Numbers numbers{};
  hooks.stats(device, numbers.data());
  return numbers;
}

// Where figures begin: four numbers each for all blocks, small ones and large ones.
constexpr std::size_t kAllocatedBytes = 4 * 12;
constexpr std::size_t kReservedBytes = 5 * 12;

void tell_profiler(void* address, std::int64_t bytes, int device) {
  const Numbers now = numbers(device);
  c10::reportMemoryUsageToProfiler(address, bytes, now[kAllocatedBytes], now[kReservedBytes],
                                   c10::Device(c10::kCUDA, static_cast<DeviceIndex>(device)));
}

}  // namespace

void tell_allocation(void* address) {
  if (C10_LIKELY(!c10::memoryProfilingEnabled())) return;
  LiveRow block{};
  if (!hooks.block_row(address, &block)) return;
  tell_profiler(address, static_cast<std::int64_t>(block.bytes), block.device);
}

Freed::Freed(void* address) : address_(address) {
  if (C10_LIKELY(!c10::memoryProfilingEnabled())) return;
  LiveRow block{};
  profiled_ = hooks.block_row(address, &block);
  device_ = block.device;
  bytes_ = block.bytes;
}

void Freed::tell() const {
  if (!profiled_) return;
  try {
    tell_profiler(address_, -static_cast<std::int64_t>(bytes_), device_);
  } catch (...) {
    // Figures of an allocator that has failed; a tensor's destructor may not throw.
  }
}

#if REGRAPH_TORCH >= 213
namespace {

void see_pool(void* data, std::uint64_t first, std::uint64_t second,
              const std::int64_t* next) noexcept {
  auto& stats = *static_cast<c10::CachingDeviceAllocator::DeviceStats*>(data);
  for (auto& kind : stats.reserved_bytes_by_private_pools[{first, second}]) {
    kind.current = *next++;
    kind.peak = *next++;
    kind.allocated = *next++;
    kind.freed = *next++;
  }
}

}  // namespace
#endif

c10::CachingDeviceAllocator::DeviceStats Allocator::getDeviceStats(DeviceIndex device) {
  require(device);
  const Numbers now = numbers(device);
  auto next = now.begin();
  c10::CachingDeviceAllocator::DeviceStats stats;
  for (auto* figure : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
                       &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                       &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (auto& kind : *figure) {
      kind.current = *next++;
      kind.peak = *next++;
      kind.allocated = *next++;
      kind.freed = *next++;
    }
  }
  for (auto* figure : {&stats.oversize_allocations, &stats.oversize_segments}) {
    figure->current = *next++;
    figure->peak = *next++;
    figure->allocated = *next++;
    figure->freed = *next++;
  }
  stats.num_alloc_retries = *next++;
  stats.num_ooms = *next++;
  stats.num_sync_all_streams = *next++;
  stats.num_device_alloc = *next++;
  stats.num_device_free = *next++;
  stats.max_split_size = *next++;
#if REGRAPH_TORCH >= 212
  stats.num_oom_rejections = rejections.at(device);
#endif
#if REGRAPH_TORCH >= 213
  hooks.stats_of_pools(device, &stats, &see_pool);
#endif
  return stats;
}

void Allocator::resetAccumulatedStats(DeviceIndex device) {
  require(device);
  hooks.stats_reset_accumulated(device);
#if REGRAPH_TORCH >= 212
  rejections.at(device) = 0;
#endif
}

void Allocator::resetPeakStats(DeviceIndex device) {
  require(device);
  hooks.stats_reset_peak(device);
}

// Snapshots.

namespace {

native::TraceEntry entry_of(const EntryRow& row) {
  const auto* context = static_cast<const Context*>(row.context);
  const auto gathered = context != nullptr ? context->gathered : nullptr;
  native::TraceEntry entry(
      static_cast<native::TraceEntry::Action>(row.action), static_cast<DeviceIndex>(row.device),
      row.address, row.size, static_cast<cudaStream_t>(row.stream),
#if REGRAPH_TORCH >= 208
      MempoolId_t{row.pool[0], row.pool[1]},
#endif
      0, gathered);
  entry.time_.t_ = row.time_us;
#if REGRAPH_TORCH >= 208
  const bool compiled = context != nullptr && !context->compiled.empty();
  entry.compile_context_ = compiled ? context->compiled : "N/A";
#endif
#if REGRAPH_TORCH >= 210
  if (context != nullptr) entry.user_metadata_ = context->metadata;
#endif
  return entry;
}

native::SnapshotInfo& info_of(void* data) { return *static_cast<native::SnapshotInfo*>(data); }

std::shared_ptr<c10::GatheredContext> gathered_of(const void* context) {
  return context != nullptr ? static_cast<const Context*>(context)->gathered : nullptr;
}

void see_segment(void* data, const SegmentRow* row) {
  native::SegmentInfo segment;
  segment.device = static_cast<DeviceIndex>(row->device);
  segment.address = row->address;
  segment.total_size = row->total;
  segment.requested_size = row->requested;
  segment.allocated_size = row->allocated;
  segment.active_size = row->active;
  segment.stream = static_cast<cudaStream_t>(row->stream);
  segment.is_large = row->large;
  segment.is_expandable = row->expandable;
  segment.owner_private_pool_id = {row->pool[0], row->pool[1]};
  segment.context_when_allocated = gathered_of(row->context);
#if REGRAPH_TORCH >= 211
  segment.registration_counter = static_cast<std::int32_t>(row->arrival);
#endif
  info_of(data).segments.push_back(std::move(segment));
}

void see_block(void* data, const BlockRow* row) {
  native::BlockInfo block;
  block.size = row->size;
  block.requested_size = row->requested;
  block.allocated = row->allocated;
  block.active = row->active;
  block.context_when_allocated = gathered_of(row->context);
  info_of(data).segments.back().blocks.push_back(std::move(block));
}

void see_entry(void* data, const EntryRow* row) {
  auto& traces = info_of(data).device_traces;
  const auto device = static_cast<std::size_t>(row->device);
  if (traces.size() <= device) traces.resize(device + 1);
  traces[device].push_back(entry_of(*row));
}

void see_annotation(void* data, const AnnotationRow* row) {
  AnnotationEntry annotation(static_cast<DeviceIndex>(row->device), 0);
  annotation.time_.t_ = row->time_us;
  annotation.recordUserMetadata("name", std::string(row->name.start, row->name.length));
  annotation.recordUserMetadata("stage", row->begins ? "START" : "END");
  info_of(data).external_annotations.push_back(std::move(annotation));
}

void see_settings(void* data, const SettingsRow* row) {
  auto& settings = info_of(data).config_metadata;
  settings.garbage_collection_threshold = row->garbage_collection_threshold;
  settings.max_split_size = static_cast<std::size_t>(row->max_split_size);
  settings.expandable_segments = row->expandable;
  settings.last_allocator_settings = std::string(row->text.start, row->text.length);
  settings.roundup_power2_divisions.assign(std::begin(row->divisions), std::end(row->divisions));
  // PyTorch's own allocator of pinned memory goes on.
  settings.pinned_num_register_threads =
      native::CUDAAllocatorConfig::pinned_num_register_threads();
  settings.pinned_use_host_register = native::CUDAAllocatorConfig::pinned_use_cuda_host_register();
#if REGRAPH_TORCH >= 209
  settings.graph_capture_record_stream_reuse = true;
#endif
}

constexpr Visitor kVisitor{&see_segment, &see_block, &see_entry, &see_annotation, &see_settings};

}  // namespace

native::SnapshotInfo Allocator::snapshot_of(MempoolId_t pool, bool traces) {
  native::SnapshotInfo info{};
  info.device_traces.resize(devices_);
  hooks.snapshot_visit(pool.first, pool.second, traces, &info, &kVisitor);
  std::lock_guard<std::mutex> lock(annotations_guard);
#if REGRAPH_TORCH >= 214
  for (const auto& remark : remarks) {
    if (!traces) break;
    auto& trace = info.device_traces.at(remark.device_);
    const auto later = [](c10::time_t time, const native::TraceEntry& entry) {
      return time < entry.time_.t_;
    };
    trace.insert(std::upper_bound(trace.begin(), trace.end(), remark.time_.t_, later), remark);
  }
#endif
  info.external_annotations.insert(info.external_annotations.end(), annotations.begin(),
                                   annotations.end());
  return info;
}

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

#if REGRAPH_TORCH >= 210
std::vector<native::StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex device) {
  std::vector<native::StreamSegmentSize> sizes;
  for (const auto& segment : snapshot_of({0, 0}, false).segments) {
    if (segment.device != device || !segment.is_expandable) continue;
    sizes.emplace_back(static_cast<cudaStream_t>(segment.stream), !segment.is_large,
                       segment.total_size);
  }
  return sizes;
}
#endif

// History.

void Allocator::record_history(bool enabled, native::CreateContextFn context, std::size_t entries,
                               native::RecordContext when, bool clear,
                               const std::vector<std::string>& skipped) {
  TORCH_CHECK(when == native::RecordContext::NEVER || context != nullptr,
              "a history with contexts needs a function that gathers them");
  std::uint32_t bits = 0;
#if REGRAPH_TORCH >= 211
  for (const std::string& action : skipped) {
    bits |= 1U << c10::CachingDeviceAllocator::parseTraceEntryAction(action);
  }
#endif
  // Contexts first: a request that sees the history on finds how to gather them.
  recorder = enabled ? context : nullptr;
  detail = enabled ? when : native::RecordContext::NEVER;
  hooks.history_record(enabled ? entries : 0, clear, when >= native::RecordContext::ALLOC, bits);
  recording = enabled;
  std::lock_guard<std::mutex> lock(annotations_guard);
  most_annotations = enabled ? entries : 0;
  if (clear || !enabled) annotations.clear();
#if REGRAPH_TORCH >= 214
  keeps_remarks = (bits & (1U << native::TraceEntry::ANNOTATE)) == 0;
  if (clear || !enabled) remarks.clear();
  while (remarks.size() > most_annotations) remarks.pop_front();
#endif
  while (annotations.size() > most_annotations) annotations.pop_front();
}

bool Allocator::isHistoryEnabled() { return recording; }

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>>& pairs) {
  if (!recording) return;
  AnnotationEntry annotation(current(), 0);
  annotation.time_.t_ = microseconds();
  for (const auto& [name, value] : pairs) annotation.recordUserMetadata(name, value);
  std::lock_guard<std::mutex> lock(annotations_guard);
  if (most_annotations == 0) return;
  if (annotations.size() == most_annotations) annotations.pop_front();
  annotations.push_back(std::move(annotation));
}

#if REGRAPH_TORCH >= 208
void Allocator::pushCompileContext(std::string& context) {
  if (recording) compile_contexts.push(context);
}

void Allocator::popCompileContext() {
  // The history may have begun or ended since the push.
  if (!compile_contexts.empty()) compile_contexts.pop();
}
#endif

#if REGRAPH_TORCH >= 210
void Allocator::setUserMetadata(const std::string& metadata) {
  user_metadata = metadata;
}

std::string Allocator::getUserMetadata() { return user_metadata; }
#endif

#if REGRAPH_TORCH >= 212
std::shared_ptr<c10::GatheredContext> Allocator::getContextForPointer(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (!recording) return nullptr;
  for (const auto& segment : snapshot_of({0, 0}, false).segments) {
    auto start = static_cast<std::uintptr_t>(segment.address);
    for (const auto& block : segment.blocks) {
      if (block.allocated && start <= at && at < start + block.size) {
        return block.context_when_allocated;
      }
      start += block.size;
    }
  }
  return nullptr;
}
#endif

#if REGRAPH_TORCH >= 214
void Allocator::annotateMemory(const void* address, const std::string& metadata) {
  LiveRow block{};
  if (!recording || !hooks.block_row(const_cast<void*>(address), &block)) return;
  native::TraceEntry remark(
      native::TraceEntry::ANNOTATE, static_cast<DeviceIndex>(block.device),
      reinterpret_cast<std::size_t>(address), block.requested, block.stream,
      MempoolId_t{block.pool[0], block.pool[1]}, 0, nullptr, "N/A", metadata);
  remark.time_.t_ = microseconds();
  std::lock_guard<std::mutex> lock(annotations_guard);
  if (!keeps_remarks || most_annotations == 0) return;
  if (remarks.size() == most_annotations) remarks.pop_front();
  remarks.push_back(std::move(remark));
}
#endif

// Observers.

namespace {

std::mutex observers_guard;
#if REGRAPH_TORCH >= 212
std::vector<native::OomRejectionObserver> rejection_observers;
#endif
std::vector<native::OutOfMemoryObserver> oom_observers;
std::vector<native::AllocatorTraceTracker> trackers;

template <typename Observer>
std::vector<Observer> all_of(const std::vector<Observer>& observers) {
  // Not told under the lock: an observer may add another one.
  std::lock_guard<std::mutex> lock(observers_guard);
  return observers;
}

void see_out_of_memory(const OomRow* row) {
  if (c10::memoryProfilingEnabled()) {
    shielded([&] {
      const Numbers now = numbers(row->device);
      c10::reportOutOfMemoryToProfiler(
          static_cast<std::int64_t>(row->requested), now[kAllocatedBytes], now[kReservedBytes],
          c10::Device(c10::kCUDA, static_cast<DeviceIndex>(row->device)));
    });
  }
  shielded([&] {
    for (const auto& observer : all_of(oom_observers)) {
      observer(row->device, row->requested, row->allowed, row->device_free);
    }
  });
#if REGRAPH_TORCH >= 212
  // regraph refuses what is beyond a limit in any case, before it asks the driver.
  if (!row->beyond || !native::CUDAAllocatorConfig::throw_on_cudamalloc_oom()) return;
  ++rejections.at(row->device);
  shielded([&] {
    for (const auto& observer : all_of(rejection_observers)) {
      observer(row->device, row->requested, row->reserved, row->device_total);
    }
  });
#endif
}

// Has libraries give up what they keep until memory is short, as PyTorch's own allocator has: tensors that were sent to
// processes which have dropped them since, for one. False where that freed nothing.
bool collect_from_libraries() {
  bool freed = false;
  shielded([&] {
    auto* callbacks = c10::FreeCudaMemoryCallbacksRegistry();
    for (const auto& name : callbacks->Keys()) freed |= callbacks->Create(name)->Execute();
  });
  return freed;
}

void see_memory(const EntryRow* row) {
  shielded([&] {
    native::TraceEntry entry = entry_of(*row);
    entry.time_.approx_t_ = c10::getApproximateTime();
    for (const auto& tracker : all_of(trackers)) tracker(entry);
  });
}

}  // namespace

void watch_out_of_memory() { hooks.oom_observe(&see_out_of_memory, &collect_from_libraries); }

void Allocator::attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) {
  std::lock_guard<std::mutex> lock(observers_guard);
  oom_observers.push_back(std::move(observer));
}

#if REGRAPH_TORCH >= 212
void Allocator::attachOomRejectionObserver(native::OomRejectionObserver observer) {
  std::lock_guard<std::mutex> lock(observers_guard);
  rejection_observers.push_back(std::move(observer));
}
#endif

void Allocator::attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) {
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(observers_guard);
    first = trackers.empty();
    trackers.push_back(std::move(tracker));
  }
  if (first) hooks.watch(&see_memory);
}

}  // namespace regraph
