// What calls of the allocator tell PyTorch besides: where they come from, and what they changed.
#pragma once

#include <atomic>
#include <cstddef>

#include <c10/macros/Macros.h>

namespace regraph {

// Whether a history is kept.
extern std::atomic<bool> recording;

// Where the calling thread's requests come from, for as long as this lives.
class Origin {
 public:
  enum class Of { Allocation, Free };

  explicit Origin(Of of) {
    if (recording.load(std::memory_order_relaxed)) enter(of);
  }
  ~Origin() {
    if (entered_) leave();
  }
  Origin(const Origin&) = delete;
  Origin& operator=(const Origin&) = delete;

 private:
  void enter(Of of);
  void leave();

  bool entered_ = false;
};

// A block that is freed, as a profiler that watches memory is told of it.
class Freed {
 public:
  explicit Freed(void* address);
  // After the free.
  void tell() const;

 private:
  void* address_;
  int device_ = 0;
  std::size_t bytes_ = 0;
  bool profiled_ = false;
};

// Tells a profiler of a new block.
void tell_allocation(void* address);

// Has requests told that fail for want of memory, to PyTorch's profiler and observers, and libraries asked before for
// what they keep until memory is short.
void watch_out_of_memory();

// Observers run in the middle of regraph's calls, which no exception may pass: what one has thrown in
// this thread is kept until it is thrown, by the request that it was told of, or dropped with a warning.
// Nothing looks for it before one has thrown in any thread.
extern std::atomic<bool> observers_throw;
bool is_kept();
void throw_kept();
void drop_kept();

inline bool observer_failed() {
  return C10_UNLIKELY(observers_throw.load(std::memory_order_relaxed)) && is_kept();
}

inline void throw_of_observer() {
  if (observer_failed()) throw_kept();
}

inline void drop_of_observer() {
  if (observer_failed()) drop_kept();
}

}  // namespace regraph
