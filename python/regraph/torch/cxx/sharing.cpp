// Memory that other devices and processes use.
#include "allocator.h"

namespace regraph {

native::ShareableHandle Allocator::shareIpcHandle(void*) { not_served("shareIpcHandle"); }

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string) { not_served("getIpcDevPtr"); }

void Allocator::enablePeerAccess(DeviceIndex, DeviceIndex) {}

cudaError_t Allocator::memcpyAsync(void* to, int to_device, const void* from, int from_device,
                                   std::size_t bytes, cudaStream_t stream, bool peers) {
  if (peers || to_device == from_device) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

}  // namespace regraph
