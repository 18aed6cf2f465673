#include "devices.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "errors.h"
#include "host_memory.h"
#include "order.h"

namespace cuda_double {
namespace {

thread_local int the_current_device = 0;

std::string setting(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// As CUDA reads the variable: what follows a wrong or repeated entry is lost.
std::vector<int> visible_devices() {
  int count = std::atoi(setting("CUDA_DOUBLE", "0").c_str());
  std::vector<int> found;
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int device = 0; device < count; ++device) found.push_back(device);
    return found;
  }
  std::stringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    char* end = nullptr;
    long device = std::strtol(entry.c_str(), &end, 10);
    if (end == entry.c_str() || device < 0 || device >= count) break;
    for (int earlier : found)
      if (earlier == device) return {};
    found.push_back(static_cast<int>(device));
  }
  return found;
}

const std::vector<int>& devices() {
  static auto* visible = new std::vector<int>(visible_devices());
  return *visible;
}

bool is_device(int device) { return device >= 0 && device < num_devices(); }

}  // namespace

int num_devices() { return static_cast<int>(devices().size()); }
int current_device() { return the_current_device; }
int number_on_machine(int device) { return devices()[device]; }

size_t bytes_per_device() {
  constexpr size_t of_a_t4 = size_t{15} << 30;
  static size_t bytes = std::strtoull(
      setting("CUDA_DOUBLE_BYTES", std::to_string(of_a_t4)).c_str(),
      nullptr,
      10);
  return bytes;
}

}  // namespace cuda_double

using namespace cuda_double;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = num_devices();
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = the_current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  the_current_device = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  Clock all;
  for (auto* stream : streams_of(the_current_device))
    all.join(clock_of(stream->number));
  host_waits_for(all);
  lift_guards_of_ended_copies();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  std::memset(prop, 0, sizeof *prop);
  std::string name = setting("CUDA_DOUBLE_NAME", "NVIDIA Double");
  std::snprintf(prop->name, sizeof prop->name, "%s", name.c_str());
  std::string capability = setting("CUDA_DOUBLE_CAPABILITY", "8.0");
  prop->major = std::atoi(capability.c_str());
  size_t point = capability.find('.');
  prop->minor = point == std::string::npos
                    ? 0
                    : std::atoi(capability.c_str() + point + 1);
  int number = number_on_machine(device);
  prop->uuid.bytes[0] = static_cast<char>(number + 1);
  prop->pciBusID = number + 1;
  prop->totalGlobalMem = bytes_per_device();
  prop->multiProcessorCount = 108;
  prop->warpSize = 32;
  prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
  prop->maxThreadsPerBlock = 1024;
  prop->maxThreadsPerMultiProcessor = 2048;
  prop->maxBlocksPerMultiProcessor = 32;
  for (int axis = 0; axis < 3; ++axis) {
    prop->maxThreadsDim[axis] = axis < 2 ? 1024 : 64;
    prop->maxGridSize[axis] = axis < 1 ? 2147483647 : 65535;
  }
  prop->sharedMemPerBlock = 48 << 10;
  prop->sharedMemPerBlockOptin = prop->sharedMemPerMultiprocessor = 163 << 10;
  prop->l2CacheSize = 40 << 20;
  prop->memoryBusWidth = 256;
  prop->concurrentKernels = prop->unifiedAddressing = 1;
  prop->asyncEngineCount = 3;
  prop->streamPrioritiesSupported = 1;
  prop->canMapHostMemory = prop->hostRegisterSupported = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(
    int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp prop;
  cudaError_t error = cudaGetDeviceProperties(&prop, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = prop.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = prop.minor; break;
    case cudaDevAttrMultiProcessorCount:
      *value = prop.multiProcessorCount;
      break;
    case cudaDevAttrWarpSize: *value = prop.warpSize; break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = prop.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(prop.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMemoryClockRate: *value = 1'215'000; break;  // kHz
    case cudaDevAttrClockRate: *value = 1'410'000; break;
    case cudaDevAttrL2CacheSize: *value = prop.l2CacheSize; break;
    default: *value = 0;  // has not, is not
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  int bus = number_on_machine(device) + 1;
  std::snprintf(id, length, "00000000:%02x:00.0", bus);
  return cudaSuccess;
}

// As between two T4: a copy from one to the other goes through the host.
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer))
    return fail(cudaErrorInvalidDevice);
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return fail(cudaErrorPeerAccessUnsupported);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// Driver functions that PyTorch looks up by name: there are none.
cudaError_t cudaGetDriverEntryPointByVersion(
    const char*, void** function, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  if (result != nullptr) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"
