// What CUDA graph trees ask: the state of a pool, taken and put back.
#include "allocator.h"

namespace regraph {

namespace {

// The live blocks of a pool.
struct State final : native::AllocatorState {
  State(DeviceIndex device, MempoolId_t pool)
      : pool(pool), checkpoint(hooks.checkpoint_take(device, pool.first, pool.second)) {}
  ~State() override { hooks.checkpoint_drop(checkpoint); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const MempoolId_t pool;
  void* const checkpoint;
};

// What is filled while a pool is restored.
struct Filled {
  native::CheckpointDelta delta;
  DeviceIndex device;
};

}  // namespace

std::shared_ptr<native::AllocatorState> Allocator::getCheckpointState(DeviceIndex device,
                                                                      MempoolId_t pool) {
  return std::make_shared<State>(device, pool);
}

native::CheckpointDelta Allocator::setCheckpointPoolState(
    DeviceIndex device, std::shared_ptr<native::AllocatorState> state) {
  const auto* ours = dynamic_cast<const State*>(state.get());
  TORCH_CHECK(ours != nullptr, "this state of a pool was taken from another allocator than regraph");
  Filled filled{{}, device};
  const auto freed = [](void* context, void* address) {
    static_cast<Filled*>(context)->delta.ptrs_freed.push_back(address);
  };
  // A block that no tensor takes over stays live: PyTorch releases what it does not want of these.
  const auto live = [](void* context, void* address) {
    auto* filled = static_cast<Filled*>(context);
    filled->delta.dataptrs_allocd.emplace_back(address, address, &free_block,
                                               c10::Device(c10::kCUDA, filled->device));
  };
  hooks.checkpoint_restore(device, ours->pool.first, ours->pool.second, ours->checkpoint, &filled,
                           freed, live);
  return std::move(filled.delta);
}

bool Allocator::checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                         const std::unordered_set<void*>& expected) {
  struct Compared {
    const std::unordered_set<void*>& expected;
    std::size_t found = 0;
    bool strange = false;
  } compared{expected};
  const auto each = [](void* context, void* address) {
    auto* compared = static_cast<Compared*>(context);
    compared->found += 1;
    compared->strange |= compared->expected.count(address) == 0;
  };
  hooks.pool_live(device, pool.first, pool.second, &compared, each);
  return !compared.strange && compared.found == expected.size();
}

}  // namespace regraph
