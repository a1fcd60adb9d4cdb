// The functions of regraph's native half that the allocator calls, by name.
//
// They come as addresses when the allocator is installed: this library is built for one minor version
// of PyTorch, the native half once for all. Functions that fail throw PyTorch's own exceptions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regraph {

// HOOK(result, name, parameters)
#define REGRAPH_HOOKS(HOOK)                                                                   \
  /* Memory of a device for what a stream submits next; throws. `bytes` is not 0. */          \
  HOOK(void*, allocate, (std::size_t bytes, int device, void* stream))                        \
  /* Takes back what `allocate` gave, of any device. */                                       \
  HOOK(void, free, (void* address))                                                           \
  /* A stream uses the block at an address; nothing where no block is there. */               \
  HOOK(void, record_stream, (void* address, void* stream))                                    \
  /* Gives free memory of all devices back. */                                                \
  HOOK(void, reset, ())                                                                       \
  /* Sets and tells the share of a device's memory that may be held. */                       \
  HOOK(void, memory_fraction, (double share, int device))                                     \
  HOOK(double, memory_fraction_now, (int device))                                             \
  /* `filter`: a std::function<bool(void*)>, made by new, which the native half deletes. */   \
  HOOK(void, route_begin,                                                                     \
       (int device, std::uint64_t first, std::uint64_t second, void* filter))                 \
  HOOK(void, end_pool, (int device, std::uint64_t first, std::uint64_t second))               \
  HOOK(void, release_pool, (int device, std::uint64_t first, std::uint64_t second))         \
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
  HOOK(void, peer_access, (int device, int to))

struct Hooks {
#define REGRAPH_MEMBER(result, name, parameters) result(*name) parameters;
  REGRAPH_HOOKS(REGRAPH_MEMBER)
#undef REGRAPH_MEMBER
};

// Set once, before the allocator is PyTorch's.
extern Hooks hooks;

}  // namespace regraph
