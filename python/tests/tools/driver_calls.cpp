// Says which call of the CUDA driver invalidates a stream capture, and which library made it.
//
//   g++ -O2 -std=c++17 -shared -fPIC -o driver_calls.so driver_calls.cpp -ldl
//   LD_PRELOAD=$PWD/driver_calls.so python program.py
//
// Libraries find the driver's functions by dlsym and cuGetProcAddress. Both answers are replaced by
// functions that pass their arguments on and then ask for the status of each stream that captures.
// The first call after which a capture is invalid is written to standard error, with its result,
// its thread and the libraries on its stack. DRIVER_CALLS=all writes every call made while a stream
// captures. Calls between the driver's own libraries are not seen: then the call that is named is
// the first one seen after them.

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace {

using Word = std::uint64_t;
// No function of the driver takes more arguments, all of them integers or pointers. More words are
// passed on than a function has arguments: it ignores them.
using Function = Word (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word,
                          Word, Word, Word, Word);

constexpr std::size_t kSlots = 1000;
constexpr int kInvalidated = 2;

struct Slot {
  Function function = nullptr;
  std::string name;
};

std::array<Slot, kSlots> slots;
std::atomic<std::size_t> used{0};
std::mutex guard;
std::map<Function, void*> replaced;

// Streams that capture, by handle, with the thread that began; and whether theirs is invalid.
struct Captured {
  long thread;
  bool told;
};
std::map<Word, Captured> capturing;

int (*is_capturing)(Word stream, int* status) = nullptr;
thread_local bool inside = false;
const bool write_all = [] {
  const char* wanted = std::getenv("DRIVER_CALLS");
  return wanted != nullptr && std::strcmp(wanted, "all") == 0;
}();

bool begins(const std::string& name, const char* with) { return name.rfind(with, 0) == 0; }

long this_thread() { return syscall(SYS_gettid); }

void write_stack() {
  std::array<void*, 48> frames;
  int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
}

const char* library_of(void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
}

void after(const Slot& slot, Word first, Word result, void* caller) {
  std::lock_guard<std::mutex> lock(guard);
  int code = static_cast<int>(result);
  if (begins(slot.name, "cuStreamBeginCapture") && code == 0) {
    capturing[first] = {this_thread(), false};
    std::fprintf(stderr, "driver_calls: stream %#lx captures, thread %ld\n", first, this_thread());
  }
  if (write_all && !capturing.empty()) {
    std::fprintf(stderr, "driver_calls: %s -> %d, thread %ld, from %s\n", slot.name.c_str(), code,
                 this_thread(), library_of(caller));
  }
  if (begins(slot.name, "cuStreamEndCapture")) capturing.erase(first);
  if (is_capturing == nullptr) return;
  for (auto& [stream, captured] : capturing) {
    int status = 0;
    if (captured.told || is_capturing(stream, &status) != 0 || status != kInvalidated) continue;
    captured.told = true;
    std::fprintf(stderr,
                 "driver_calls: %s -> %d INVALIDATED the capture of stream %#lx, which thread %ld "
                 "began; called by thread %ld from %s\n",
                 slot.name.c_str(), code, stream, captured.thread, this_thread(),
                 library_of(caller));
    write_stack();
  }
}

__attribute__((noinline)) Word pass(std::size_t index, void* caller, Word a, Word b, Word c, Word d,
                                    Word e, Word f, Word g, Word h, Word i, Word j, Word k, Word l,
                                    Word m, Word n, Word o, Word p) {
  const Slot& slot = slots[index];
  if (inside) return slot.function(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  inside = true;
  // The end is the last moment to see that a capture is invalid.
  if (begins(slot.name, "cuStreamEndCapture")) {
    static const Slot before{nullptr, "(a call that was not seen)"};
    after(before, 0, 0, caller);
  }
  inside = false;
  Word result = slot.function(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  inside = true;
  after(slot, a, result, caller);
  inside = false;
  return result;
}

// What stands in the place of the slot's function.
template <std::size_t Index>
Word call(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k,
          Word l, Word m, Word n, Word o, Word p) {
  return pass(Index, __builtin_return_address(0), a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
}

template <std::size_t... Indices>
std::array<Function, sizeof...(Indices)> table(std::index_sequence<Indices...>) {
  return {call<Indices>...};
}

const std::array<Function, kSlots>& calls() {
  static const std::array<Function, kSlots> all = table(std::make_index_sequence<kSlots>());
  return all;
}

using GetProcAddress = int (*)(const char*, void**, int, Word, Word);
GetProcAddress real_get_proc_address = nullptr;
GetProcAddress real_get_proc_address_v1 = nullptr;

void* replacement(const char* name, void* found);

int get_proc_address(const char* name, void** function, int version, Word flags, Word status) {
  int code = real_get_proc_address(name, function, version, flags, status);
  if (code == 0 && function != nullptr) *function = replacement(name, *function);
  return code;
}

int get_proc_address_v1(const char* name, void** function, int version, Word flags, Word rest) {
  int code = real_get_proc_address_v1(name, function, version, flags, rest);
  if (code == 0 && function != nullptr) *function = replacement(name, *function);
  return code;
}

void* replacement(const char* name, void* found) {
  if (found == nullptr || name == nullptr) return found;
  if (std::strcmp(name, "cuGetProcAddress_v2") == 0) {
    real_get_proc_address = reinterpret_cast<GetProcAddress>(found);
    return reinterpret_cast<void*>(&get_proc_address);
  }
  if (std::strcmp(name, "cuGetProcAddress") == 0) {
    // Asked for by cuGetProcAddress itself, this is the newer one.
    if (real_get_proc_address != nullptr) return reinterpret_cast<void*>(&get_proc_address);
    real_get_proc_address_v1 = reinterpret_cast<GetProcAddress>(found);
    return reinterpret_cast<void*>(&get_proc_address_v1);
  }
  if (std::strcmp(name, "cuStreamIsCapturing") == 0 && is_capturing == nullptr) {
    is_capturing = reinterpret_cast<int (*)(Word, int*)>(found);
  }
  // Tables of functions and profilers' doors are passed on as they are.
  if (std::strcmp(name, "cuGetExportTable") == 0) return found;
  std::lock_guard<std::mutex> lock(guard);
  Function function = reinterpret_cast<Function>(found);
  auto known = replaced.find(function);
  if (known != replaced.end()) return known->second;
  std::size_t index = used.load();
  if (index == kSlots) return found;
  slots[index] = {function, name};
  used.store(index + 1);
  void* instead = reinterpret_cast<void*>(calls()[index]);
  replaced.emplace(function, instead);
  return instead;
}

using Dlsym = void* (*)(void*, const char*);

Dlsym real_dlsym() {
  static Dlsym real = [] {
    void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (found == nullptr) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return reinterpret_cast<Dlsym>(found);
  }();
  return real;
}

}  // namespace

extern "C" void* dlsym(void* handle, const char* name) {
  Dlsym real = real_dlsym();
  // What depends on the caller, RTLD_NEXT above all, must see the caller: this is a jump.
  if (std::strncmp(name, "cu", 2) != 0 || handle == RTLD_NEXT) {
    return real(handle, name);
  }
  void* found = real(handle, name);
  // The runtime's functions begin with "cuda", those of its libraries with "cublas" and so on.
  bool drivers = name[2] >= 'A' && name[2] <= 'Z';
  if (found == nullptr || !drivers) return found;
  if (is_capturing == nullptr) {
    is_capturing = reinterpret_cast<int (*)(Word, int*)>(real(handle, "cuStreamIsCapturing"));
  }
  return replacement(name, found);
}
