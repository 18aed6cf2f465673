#include "memory.h"

#include <cstring>
#include <map>
#include <new>

#include <sys/mman.h>

#include <cuda_runtime_api.h>

#include "devices.h"
#include "errors.h"
#include "host_memory.h"
#include "order.h"

namespace cuda_double {
namespace {

struct Region {
  size_t bytes;
  int device;  // -1: pinned memory of the host
  bool is_ours;
};

struct State {
  std::map<const char*, Region> regions;
  std::map<int, size_t> used;  // bytes, by device
};

State& state() {
  static auto* the_state = new State;
  return *the_state;
}

const Region* region_that_holds(const void* given) {
  auto* address = static_cast<const char*>(given);
  auto after = state().regions.upper_bound(address);
  if (after == state().regions.begin()) return nullptr;
  const auto& [begin, region] = *std::prev(after);
  return address < begin + region.bytes ? &region : nullptr;
}

// Pages of the system, which give memory only where they are written.
void* new_pages(size_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

cudaError_t allocate(void** pointer, size_t bytes, int device) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (device >= 0 && state().used[device] + bytes > bytes_per_device())
    return fail(cudaErrorMemoryAllocation);
  *pointer = new_pages(bytes);
  if (*pointer == nullptr) return fail(cudaErrorMemoryAllocation);
  state().regions[static_cast<char*>(*pointer)] = {bytes, device, true};
  if (device >= 0) state().used[device] += bytes;
  return cudaSuccess;
}

cudaError_t release(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  auto found = state().regions.find(static_cast<char*>(pointer));
  if (found == state().regions.end()) return fail(cudaErrorInvalidValue);
  Region region = found->second;
  state().regions.erase(found);
  if (region.device >= 0) state().used[region.device] -= region.bytes;
  if (region.device < 0) lift_guards(pointer, region.bytes);
  if (region.is_ours) munmap(pointer, region.bytes);
  return cudaSuccess;
}

}  // namespace

bool is_pinned(const void* address) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  const Region* region = region_that_holds(address);
  return region != nullptr && region->device < 0;
}

}  // namespace cuda_double

using namespace cuda_double;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, current_device());
}

cudaError_t cudaFree(void* pointer) { return release(pointer); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  *total = bytes_per_device();
  *free = *total - state().used[current_device()];
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return allocate(pointer, bytes, -1);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, -1);
}

cudaError_t cudaFreeHost(void* pointer) { return release(pointer); }

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  if (region_that_holds(pointer) != nullptr)
    return fail(cudaErrorHostMemoryAlreadyRegistered);
  state().regions[static_cast<char*>(pointer)] = {bytes, -1, false};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) { return release(pointer); }

cudaError_t cudaPointerGetAttributes(
    cudaPointerAttributes* attributes, const void* pointer) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  std::memset(attributes, 0, sizeof *attributes);
  const Region* region = region_that_holds(pointer);
  attributes->device = region && region->device >= 0 ? region->device : 0;
  if (region == nullptr) {
    attributes->type = cudaMemoryTypeUnregistered;
    return cudaSuccess;
  }
  bool pinned = region->device < 0;
  attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  auto* address = const_cast<void*>(pointer);
  attributes->hostPointer = pinned ? address : nullptr;
  attributes->devicePointer = address;
  return cudaSuccess;
}

}  // extern "C"
