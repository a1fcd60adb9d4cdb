// What only C++ can say: exceptions that PyTorch's Python bindings understand, and filters that
// arrive as std::function. Built without PyTorch's headers, so that one library serves every version;
// what it needs of PyTorch it finds by name at run time.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>

namespace {

// As c10::SourceLocation.
struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

// The constructor c10::Error(SourceLocation, std::string), called as the Itanium ABI calls it.
using Construct = void (*)(void*, SourceLocation, std::string);
using Destroy = void (*)(void*);

void* find(const char* symbol) {
  static const char* const kLibraries[] = {
      "libc10.so", "libc10_cuda.so", "libtorch_cuda.so", "libtorch_python.so"};
  for (const char* library : kLibraries) {
    // Only what PyTorch has loaded already.
    void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* found = dlsym(handle, symbol);
    dlclose(handle);
    if (found != nullptr) return found;
  }
  return nullptr;
}

// A kind of PyTorch's errors.
struct Kind {
  Construct construct;
  void* table;  // The virtual table; null where the constructor sets the right one.
  std::type_info* type;

  bool known() const { return construct != nullptr && type != nullptr; }
};

Construct constructor() {
  return reinterpret_cast<Construct>(
      find("_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"));
}

// What was found stays; what was not may be there once PyTorch is loaded.
const Kind& remembered(Kind& known, bool memory) {
  static std::mutex guard;
  std::lock_guard<std::mutex> lock(guard);
  if (known.known()) return known;
  // c10::OutOfMemoryError adds nothing to c10::Error but its type: that alone decides who catches it.
  // Later versions do not export its virtual table; that of c10::Error does as well.
  void* table = memory ? find("_ZTVN3c1016OutOfMemoryErrorE") : nullptr;
  const char* type = memory ? "_ZTIN3c1016OutOfMemoryErrorE" : "_ZTIN3c105ErrorE";
  known = Kind{constructor(), table, static_cast<std::type_info*>(find(type))};
  return known;
}

const Kind& plain() {
  static Kind kind{};
  return remembered(kind, false);
}

const Kind& out_of_memory() {
  static Kind kind{};
  return remembered(kind, true);
}

[[noreturn]] void raise(const Kind& kind, const std::string& message) {
  // Several times what c10::Error has taken in any version.
  constexpr std::size_t kRoom = 2048;
  void* error = abi::__cxa_allocate_exception(kRoom);
  std::memset(error, 0, kRoom);
  kind.construct(error, SourceLocation{"allocate", "regraph", 0}, message);
  if (kind.table != nullptr) {
    // Objects point behind the offset and the type that a table begins with.
    *static_cast<void**>(error) = static_cast<char*>(kind.table) + 2 * sizeof(void*);
  }
  // The complete destructor comes first among the virtual functions.
  Destroy destroy = (*static_cast<Destroy**>(error))[0];
  abi::__cxa_throw(error, kind.type, destroy);
}

// The size of the table of virtual functions that holds an address, in bytes; 0 where it is not known.
std::size_t table_size(const void* address) {
  Dl_info info;
  void* entry = nullptr;
  if (dladdr1(address, &info, &entry, RTLD_DL_SYMENT) == 0 || entry == nullptr) return 0;
  return static_cast<const ElfW(Sym)*>(entry)->st_size;
}

// The name of a virtual function of a class, without its scope and arguments; empty where the loader knows no function
// that begins at the address.
std::string member_name(const void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_saddr != function || info.dli_sname == nullptr) return {};
  // Behind "_ZN" come the names of the scopes and of the function, each with its length, then its arguments.
  const char* at = info.dli_sname;
  if (std::strncmp(at, "_ZN", 3) != 0) return {};
  at += 3;
  while (std::strchr("rVKRO", *at) != nullptr && *at != '\0') ++at;
  std::string name;
  for (;;) {
    // A mark such as "B5cxx11" belongs to the name before it.
    const bool mark = *at == 'B';
    char* rest = nullptr;
    const unsigned long length = std::strtoul(mark ? at + 1 : at, &rest, 10);
    if (length == 0 || std::strlen(rest) < length) return name;
    if (!mark) name.assign(rest, length);
    at = rest + length;
  }
}

// Whether two tables of virtual functions name the same functions in the same order, as far as both name them. An entry
// that a table has twice says nothing: the linker may have found that two functions do the same.
bool same_order(const void* const* ours, const void* const* theirs, std::size_t count) {
  // No std::vector: without optimization it needs a newer C++ library than the wheel may.
  const std::unique_ptr<std::string[]> known(new std::string[count]);
  for (std::size_t row = 0; row < count; ++row) known[row] = member_name(ours[row]);
  for (std::size_t row = 0; row < count; ++row) {
    const std::string name = member_name(theirs[row]);
    const bool once = std::count(theirs, theirs + count, theirs[row]) == 1 &&
                      std::count(ours, ours + count, ours[row]) == 1;
    const bool member = std::find(known.get(), known.get() + count, name) != known.get() + count;
    if (once && member && !name.empty() && !known[row].empty() && name != known[row]) return false;
  }
  return true;
}

using Filter = std::function<bool(void*)>;

}  // namespace

extern "C" {

// Rust's half.
void regraph_hook_begin_pool(int device, std::uint64_t first, std::uint64_t second, void* filter,
                             const void* owner, void* (*graph_of)(const void*, std::uint64_t));

// Whether PyTorch's own errors can be thrown: out of memory, and any other.
bool regraph_shim_can_throw(bool memory) {
  return memory ? out_of_memory().known() : plain().known();
}

// Throws; what it throws becomes torch.OutOfMemoryError, or else RuntimeError, in Python.
void regraph_shim_throw(bool memory, const char* text, std::size_t length) {
  const std::string message(text, length);
  if (memory && out_of_memory().known()) raise(out_of_memory(), message);
  if (plain().known()) raise(plain(), message);
  throw std::runtime_error(message);
}

// PyTorch's hook: its arguments are C++ objects.
void regraph_shim_begin_pool(int device, std::pair<unsigned long long, unsigned long long> pool,
                             Filter filter) {
  regraph_hook_begin_pool(device, pool.first, pool.second, new Filter(std::move(filter)),
                          nullptr, nullptr);
}

// Whether requests of a stream belong to a pool; not if the filter throws.
bool regraph_shim_filter_takes(const void* filter, void* stream) {
  try {
    return (*static_cast<const Filter*>(filter))(stream);
  } catch (...) {
    return false;
  }
}

void regraph_shim_filter_drop(void* filter) { delete static_cast<Filter*>(filter); }

// Whether the calling thread has the interpreter's lock. Every version of Python has the function, outside of its stable
// interface.
bool regraph_shim_has_interpreter() {
  using Check = int (*)();
  static const Check check = reinterpret_cast<Check>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  return check != nullptr && check() != 0;
}

// The file that a function of this library lies in.
const char* regraph_shim_path() {
  Dl_info info;
  return dladdr(reinterpret_cast<void*>(&regraph_shim_can_throw), &info) != 0 ? info.dli_fname
                                                                              : nullptr;
}

// Whether a class of allocators with this table of virtual functions is of the kind that the loaded
// PyTorch has. Its class for plug-ins adds no virtual functions either, so its table is as long, and has the same
// functions in the same order.
bool regraph_shim_is_allocator(const void* table) {
  const void* theirs =
      find("_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE");
  const std::size_t size = table_size(table);
  if (theirs == nullptr || size == 0 || size != table_size(theirs)) return false;
  // Objects point behind the offset and the type that a table begins with.
  const std::size_t count = size / sizeof(void*) - 2;
  return same_order(static_cast<const void* const*>(table),
                    static_cast<const void* const*>(theirs) + 2, count);
}
}
