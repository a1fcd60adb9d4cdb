// The functions of regraph's native half that the allocator calls, by name.
//
// They come as addresses when the allocator is installed: this library is built for one minor version
// of PyTorch, the native half once for all. Functions that fail throw PyTorch's own exceptions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regraph {

// A live block.
struct LiveRow {
  void* stream;
  std::uint64_t pool[2];
  std::uint64_t requested;
  std::uint64_t bytes;
  int device;
};

// A text that lives as long as the call that it is given to.
struct Text {
  const char* start;
  std::size_t length;
};

struct SegmentRow {
  std::uint64_t address;
  std::uint64_t total;
  std::uint64_t allocated;
  std::uint64_t active;
  std::uint64_t requested;
  void* stream;
  std::uint64_t pool[2];
  const void* context;
  // How many pieces of memory came on its device before it, or -1.
  std::int64_t arrival;
  int device;
  bool large;
  bool expandable;
};

struct BlockRow {
  std::uint64_t size;
  std::uint64_t requested;
  const void* context;
  bool allocated;
  bool active;
};

// Something that happened; `action` is PyTorch's number of it.
struct EntryRow {
  std::uint64_t address;
  std::uint64_t size;
  void* stream;
  std::uint64_t pool[2];
  const void* context;
  std::int64_t time_us;
  int action;
  int device;
};

struct AnnotationRow {
  Text name;
  std::int64_t time_us;
  int device;
  bool begins;
};

// A request that failed. All in bytes.
struct OomRow {
  std::uint64_t requested;
  // What the device has, and what of it is free.
  std::uint64_t device_total;
  std::uint64_t device_free;
  // What may be held; all that the device has where there is no limit.
  std::uint64_t allowed;
  std::uint64_t reserved;
  int device;
  // Whether the request would have gone beyond a limit.
  bool beyond;
};

struct SettingsRow {
  Text text;
  double garbage_collection_threshold;
  // -1 for none.
  std::int64_t max_split_size;
  // By the power of two that an interval of sizes begins at, from 1 MB on.
  std::uint64_t divisions[16];
  bool expandable;
};

// Is shown a snapshot: each segment with its blocks behind it, then what happened on each device, in
// order. May throw.
struct Visitor {
  void (*segment)(void* data, const SegmentRow*);
  void (*block)(void* data, const BlockRow*);
  void (*entry)(void* data, const EntryRow*);
  void (*annotation)(void* data, const AnnotationRow*);
  void (*settings)(void* data, const SettingsRow*);
};

// How many numbers `stats` fills.
constexpr std::size_t kFigures = 4 * 3 * 9 + 4 * 2 + 6;

// Where a pool's memory comes from instead of regraph. The functions throw nothing.
struct PoolSource {
  void* context;
  void* (*allocate)(void* context, std::size_t bytes, void* stream);  // Null: there is none.
  void (*free)(void* context, void* address);
  void (*drop)(void* context);
};

// HOOK(result, name, parameters)
#define REGRAPH_HOOKS(HOOK)                                                                   \
  /* Memory of a device for what a stream submits next; throws. `bytes` is not 0. */          \
  HOOK(void*, allocate, (std::size_t bytes, int device, void* stream))                        \
  /* The same at an address; false where it is not free there. `bytes` is not 0; throws. */     \
  HOOK(bool, allocate_at, (std::size_t bytes, int device, void* stream, void* address))       \
  /* Takes back what `allocate` gave, of any device; false where no live block begins there. */ \
  HOOK(bool, free, (void* address))                                                           \
  /* A stream uses the block at an address; nothing where no block is there. */               \
  HOOK(void, record_stream, (void* address, void* stream))                                    \
  /* Gives free memory of all devices back; throws. */                                        \
  HOOK(void, reset, ())                                                                       \
  /* Sets and tells the share of a device's memory that may be held. */                       \
  HOOK(void, memory_fraction, (double share, int device))                                     \
  HOOK(double, memory_fraction_now, (int device))                                             \
  /* `filter`: a std::function<bool(void*)>, made by new, which the native half deletes.      \
     `owner`: the graph object that begins to capture, null where that is not known;          \
     `graph_of` is asked when the pool ends what graph a capture of it has come to. */        \
  HOOK(void, route_begin,                                                                     \
       (int device, std::uint64_t first, std::uint64_t second, void* filter,                  \
        const void* owner, void* (*graph_of)(const void* owner, std::uint64_t capture)))      \
  /* Throws where the graph must not run. */                                                  \
  HOOK(void, end_pool, (int device, std::uint64_t first, std::uint64_t second))               \
  HOOK(void, release_pool, (int device, std::uint64_t first, std::uint64_t second))           \
  /* Counts a user of a pool, and makes it with the first; `source` is null where its memory  \
     is regraph's. What a source is about is dropped by the native half; throws. */           \
  HOOK(void, pool_create,                                                                     \
       (int device, std::uint64_t first, std::uint64_t second, const PoolSource* source))     \
  /* Gives a pool that has no memory yet a source, unless it has one; throws. */              \
  HOOK(void, pool_source,                                                                     \
       (int device, std::uint64_t first, std::uint64_t second, const PoolSource* source))     \
  HOOK(std::size_t, pool_users, (int device, std::uint64_t first, std::uint64_t second))      \
  /* Whether others get what is free in a pool where memory is short; throws. */              \
  HOOK(void, pool_use_on_oom,                                                                 \
       (int device, std::uint64_t first, std::uint64_t second, bool on))                      \
  /* Makes a pool without blocks hand out whole segments; throws. */                          \
  HOOK(void, pool_no_split, (int device, std::uint64_t first, std::uint64_t second))          \
  /* Gives what is free in a pool back, on all devices. */                                    \
  HOOK(void, pool_empty, (std::uint64_t first, std::uint64_t second))                         \
  /* The largest block that could be had; throws. */                                          \
  HOOK(std::size_t, largest_block, (int device))                                              \
  /* Where the memory begins that a block lies in, and how large it is; throws. */            \
  HOOK(void*, surroundings, (void* address, std::size_t* bytes))                              \
  /* Whether blocks of eager work are cached. */                                              \
  HOOK(void, set_caching, (bool caches))                                                      \
  HOOK(bool, is_caching, ())                                                                  \
  /* The live blocks of a pool, to be given back to `checkpoint_drop`; throws. */             \
  HOOK(void*, checkpoint_take, (int device, std::uint64_t first, std::uint64_t second))       \
  HOOK(void, checkpoint_drop, (void* checkpoint))                                             \
  /* Makes the blocks of a checkpoint the live ones. `freed` is told where blocks were live   \
     before, then `live` where they are now; throws before that, and nothing has changed. */  \
  HOOK(void, checkpoint_restore,                                                              \
       (int device, std::uint64_t first, std::uint64_t second, const void* checkpoint,        \
        void* context, void (*freed)(void*, void*), void (*live)(void*, void*)))              \
  /* Tells where blocks of a pool are live; throws. */                                        \
  HOOK(void, pool_live, (int device, std::uint64_t first, std::uint64_t second, void* context,\
                         void (*each)(void*, void*)))                                         \
  /* Hands the handle of the memory that a block lies in to `keep`, and returns where in it   \
     the block begins; throws. */                                                             \
  HOOK(std::size_t, share,                                                                    \
       (void* address, void* context, void (*keep)(void*, const char*, std::size_t)))         \
  /* Where the memory of a handle is mapped, for a device; throws. Each is closed once. */    \
  HOOK(void*, open_shared,                                                                    \
       (int device, const char* handle, std::size_t length, std::uint64_t* opened))           \
  HOOK(void, close_shared, (std::uint64_t opened))                                            \
  /* Lets a device at the memory of another, for good; throws. */                             \
  HOOK(void, peer_access, (int device, int to))                                              \
  /* A device's figures, throws: for each of allocation, segment, active, inactive_split,     \
     allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes and requested_bytes, \
     within it for all blocks, small ones and large ones: current, peak, allocated, freed;    \
     these of oversize_allocations and oversize_segments; then num_alloc_retries, num_ooms,   \
     num_sync_all_streams, num_device_alloc, num_device_free and max_split_size. */           \
  HOOK(void, stats, (int device, std::int64_t* figures))                                      \
  HOOK(void, stats_reset_peak, (int device))                                                  \
  HOOK(void, stats_reset_accumulated, (int device))                                           \
  /* Tells what each pool holds that the host has named, in bytes: for all of it, small       \
     blocks and large ones: current, peak, allocated, freed; throws. */                       \
  HOOK(void, stats_of_pools,                                                                  \
       (int device, void* data,                                                               \
        void (*each)(void*, std::uint64_t, std::uint64_t, const std::int64_t*)))              \
  /* What is known of the live block at an address; false where there is none. */             \
  HOOK(bool, block_row, (void* address, LiveRow* row))                                        \
  /* What comes with the thread's calls from now on, deleted by `drop` under locks of         \
     regraph's when nothing has it any more; null ends that. */                               \
  HOOK(void, context_set, (void* context, void (*drop)(void*)))                               \
  /* Keeps the latest events from now on; none, and forgets them, where `entries` is 0.       \
     `origins`: whether events keep contexts; `skipped`: a bit for each action that is left   \
     out. Throws. */                                                                          \
  HOOK(void, history_record,                                                                  \
       (std::size_t entries, bool clear, bool origins, std::uint32_t skipped))                \
  /* Shows a snapshot, of one pool or (0, 0) for all; throws. */                              \
  HOOK(void, snapshot_visit, (std::uint64_t first, std::uint64_t second, bool traces,         \
                              void* data, const Visitor* visitor))                            \
  /* Has requests that fail told, and `last_resort` called before, which says whether it freed \
     anything. Neither may throw. */                                                           \
  HOOK(void, oom_observe, (void (*observer)(const OomRow*), bool (*last_resort)()))           \
  /* Has memory told as it comes and goes, with locks of regraph's held; the watcher must     \
     not throw, nor call regraph. */                                                          \
  HOOK(void, watch, (void (*watcher)(const EntryRow*)))

struct Hooks {
#define REGRAPH_MEMBER(result, name, parameters) result(*name) parameters;
  REGRAPH_HOOKS(REGRAPH_MEMBER)
#undef REGRAPH_MEMBER
};

// Set once, before the allocator is PyTorch's.
extern Hooks hooks;

}  // namespace regraph
