// What CUDA graph trees ask: the state of a pool, taken and put back.
#include "allocator.h"

namespace regraph {

std::shared_ptr<native::AllocatorState> Allocator::getCheckpointState(DeviceIndex, MempoolId_t) {
  not_served("getCheckpointState");
}

native::CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex,
                                                          std::shared_ptr<native::AllocatorState>) {
  not_served("setCheckpointPoolState");
}

}  // namespace regraph
