// The allocator's blocks, and how it becomes PyTorch's.
#include "allocator.h"

#include <cstdio>
#include <cstring>
#include <string>

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "history.h"

namespace regraph {

Hooks hooks{};

namespace {

// Messages write numbers without streams: a compiler may link its C++ library statically, and a stream of that copy crashes
// with the locale of PyTorch's.
std::string text(const void* address) {
  char written[24];
  std::snprintf(written, sizeof written, "%p", address);
  return written;
}

// For an interpreter that traces GPU calls.
void trace_allocation(void* address) {
  const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(interpreter != nullptr)) {
    (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA,
                                                reinterpret_cast<std::uintptr_t>(address));
  }
}

void trace_free(void* address) {
  const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(interpreter != nullptr)) {
    (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA,
                                                  reinterpret_cast<std::uintptr_t>(address));
  }
}

void* allocate_on(DeviceIndex device, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  const Origin origin(Origin::Of::Allocation);
  drop_of_observer();
  void* address = nullptr;
  try {
    address = hooks.allocate(bytes, device, stream);
  } catch (...) {
    throw_of_observer();
    throw;
  }
  if (C10_UNLIKELY(observer_failed())) {
    hooks.free(address);
    throw_of_observer();
  }
  tell_allocation(address);
  trace_allocation(address);
  return address;
}

DeviceIndex current_device() {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

// False where no live block begins at the address.
bool give_back(void* address) {
  if (address == nullptr) return true;
  trace_free(address);
  const Origin origin(Origin::Of::Free);
  const Freed freed(address);
  const bool known = hooks.free(address);
  freed.tell();
  // Tensors are freed where nothing may be thrown.
  drop_of_observer();
  return known;
}

}  // namespace

void free_block(void* address) {
  if (!give_back(address)) TORCH_WARN("regraph has no live block at ", text(address), " to free");
}

void not_served(const char* what) {
  TORCH_CHECK(false, "regraph does not serve ", what);
}

c10::DataPtr Allocator::allocate(std::size_t bytes) {
  const DeviceIndex device = current_device();
  void* address = allocate_on(device, bytes, c10::cuda::getCurrentCUDAStream(device));
  return {address, address, &free_block, c10::Device(c10::kCUDA, device)};
}

#if REGRAPH_TORCH >= 213
c10::DataPtr Allocator::allocateWithAddress(std::size_t bytes, void* address) {
  const DeviceIndex device = current_device();
  TORCH_CHECK(bytes != 0, "allocateWithAddress needs a size");
  const Origin origin(Origin::Of::Allocation);
  drop_of_observer();
  const bool there =
      hooks.allocate_at(bytes, device, c10::cuda::getCurrentCUDAStream(device), address);
  TORCH_CHECK(there, "allocateWithAddress: the ", std::to_string(bytes), " bytes at ", text(address),
              " are not free for the current stream");
  if (C10_UNLIKELY(observer_failed())) {
    hooks.free(address);
    throw_of_observer();
  }
  tell_allocation(address);
  trace_allocation(address);
  return {address, address, &free_block, c10::Device(c10::kCUDA, device)};
}
#endif

c10::DeleterFnPtr Allocator::raw_deleter() const { return &free_block; }

void* Allocator::raw_alloc(std::size_t bytes) {
  const DeviceIndex device = current_device();
  return allocate_on(device, bytes, c10::cuda::getCurrentCUDAStream(device));
}

void* Allocator::raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) {
  return allocate_on(current_device(), bytes, stream);
}

// Called with an address, not by a tensor that goes: PyTorch's own allocator throws, too.
void Allocator::raw_delete(void* address) {
  TORCH_CHECK(give_back(address), "invalid device pointer: ", text(address));
}

void Allocator::recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) {
  // Memory of other processes is not the allocator's, and empty tensors have none.
  if (block.get() == nullptr || block.get_deleter() != &free_block) return;
  // The handle of a default stream is the same on each device: it would name that of the block's own.
  TORCH_CHECK(stream.device_index() == block.device().index() || stream.stream() != nullptr,
              "record_stream: this is the default stream of device ", std::to_string(stream.device_index()),
              ", which regraph cannot tell from that of device ", std::to_string(block.device().index()),
              "; use the tensor there on a stream of torch.cuda.Stream");
  hooks.record_stream(block.get(), stream.stream());
}

void Allocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
}

void Allocator::init(int devices) { devices_ = devices; }

bool Allocator::initialized() { return devices_ > 0; }

void Allocator::require(DeviceIndex device) const {
  TORCH_CHECK(0 <= device && device < devices_, "Allocator not initialized for device ",
              std::to_string(device), ": did you call init?");
}

double Allocator::getMemoryFraction(DeviceIndex device) {
  require(device);
  return hooks.memory_fraction_now(device);
}

void Allocator::setMemoryFraction(double share, DeviceIndex device) {
  require(device);
  hooks.memory_fraction(share, device);
}

std::string Allocator::name() { return name_; }

}  // namespace regraph

namespace {

// One for the process: PyTorch keeps bare pointers to it.
regraph::Allocator* installed = nullptr;

template <typename Function>
bool set(Function& function, const char* name, const char* const* names, void* const* addresses,
         std::size_t count) {
  for (std::size_t row = 0; row < count; ++row) {
    if (std::strcmp(names[row], name) == 0) {
      function = reinterpret_cast<Function>(addresses[row]);
      return true;
    }
  }
  return false;
}

}  // namespace

extern "C" {

// The minor version of PyTorch that this library was built for, as "2.11".
__attribute__((visibility("default"))) const char* regraph_native_version() {
#define REGRAPH_TEXT(number) #number
#define REGRAPH_NUMBER(number) REGRAPH_TEXT(number)
  return REGRAPH_NUMBER(TORCH_VERSION_MAJOR) "." REGRAPH_NUMBER(TORCH_VERSION_MINOR);
}

// The allocator's table of virtual functions, by which its class is compared with PyTorch's.
__attribute__((visibility("default"))) const void* regraph_native_table() {
  const regraph::Allocator allocator("");
  return *reinterpret_cast<const void* const*>(&allocator);
}

// Makes regraph PyTorch's allocator; null, or why it cannot be (a text that stays).
__attribute__((visibility("default"))) const char* regraph_native_install(
    const char* const* names, void* const* addresses, std::size_t count, const char* name) {
  using namespace regraph;
  if (native::get()->initialized()) return "already initialized";
#define REGRAPH_SET(result, member, parameters)                       \
  if (!set(hooks.member, #member, names, addresses, count)) {         \
    return "the native half of the package lacks the function " #member; \
  }
  REGRAPH_HOOKS(REGRAPH_SET)
#undef REGRAPH_SET
  watch_out_of_memory();
  installed = new Allocator(name);
  native::allocator.store(installed);
  // Above what PyTorch registers itself.
  c10::SetAllocator(c10::kCUDA, installed, 100);
  return nullptr;
}
}
