// Memory that other devices and processes use.
#include "allocator.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

namespace regraph {

native::ShareableHandle Allocator::shareIpcHandle(void* address) {
  native::ShareableHandle shared{};
  const auto keep = [](void* handle, const char* bytes, std::size_t length) {
    static_cast<std::string*>(handle)->assign(bytes, length);
  };
  shared.offset = static_cast<std::ptrdiff_t>(hooks.share(address, &shared.handle, keep));
  return shared;
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
  std::uint64_t opened = 0;
  void* address =
      hooks.open_shared(c10::cuda::current_device(), handle.data(), handle.size(), &opened);
  return std::shared_ptr<void>(address, [opened](void*) { hooks.close_shared(opened); });
}

void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex peer) {
  {
    // For memory of other allocators, and whole allocations of regraph's. Captures forbid it otherwise.
    c10::cuda::CUDAGuard guard(device);
    c10::cuda::CUDAStreamCaptureModeGuard relaxed{cudaStreamCaptureModeRelaxed};
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
    } else {
      C10_CUDA_CHECK(error);
    }
  }
  hooks.peer_access(device, peer);
}

cudaError_t Allocator::memcpyAsync(void* to, int to_device, const void* from, int from_device,
                                   std::size_t bytes, cudaStream_t stream, bool peers) {
  if (peers || to_device == from_device) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  // Without access, mapped memory is copied between devices in this way alone; all memory can be.
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

}  // namespace regraph
