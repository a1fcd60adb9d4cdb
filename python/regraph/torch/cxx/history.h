// What calls of the allocator tell PyTorch besides: where they come from, and what they changed.
#pragma once

#include <atomic>
#include <cstddef>

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

// Has requests told that fail for want of memory, to PyTorch's profiler and observers.
void watch_out_of_memory();

// Observers run in the middle of regraph's calls, which no exception may pass: what one has thrown in
// this thread is kept, until it is thrown here or dropped.
bool observer_failed();
void throw_of_observer();
void drop_of_observer();

}  // namespace regraph
