// Copies, and what they make the host wait for.
//
// A copy is an operation of its stream like any other. A copy between a
// device and memory of the host that is not pinned goes through a buffer of
// the driver: the host waits for the stream. To or from pinned memory it does
// not, and the memory is in use until somebody waits for the copy.
#include <cstring>

#include "accesses.h"
#include "devices.h"
#include "host_memory.h"
#include "memory.h"
#include "order.h"

using namespace cuda_double;

namespace {

bool is_of_a_device(const void* address) {
  cudaPointerAttributes attributes;
  cudaPointerGetAttributes(&attributes, address);
  return attributes.type == cudaMemoryTypeDevice;
}

bool host_has_to_wait(const void* address) {
  return !is_of_a_device(address) && !is_pinned(address);
}

cudaError_t copy(
    void* to, const void* from, size_t bytes, cudaStream_t stream,
    const char* name) {
  if (bytes == 0) return cudaSuccess;
  Place place = here();
  Operation operation = begin_operation(name, stream, place);
  reads(operation, from, bytes);
  {
    OwnAccess to_pinned_memory;
    std::memmove(to, from, bytes);
  }
  writes(operation, to, bytes);
  if (host_has_to_wait(to) || host_has_to_wait(from))
    return cudaStreamSynchronize(stream);
  if (is_pinned(to)) guard_pinned(to, bytes, Way::to_host, operation);
  if (is_pinned(from)) guard_pinned(from, bytes, Way::from_host, operation);
  return cudaSuccess;
}

const char* name_of_copy(const void* to, const void* from) {
  if (!is_of_a_device(from)) return "copy from the host";
  return is_of_a_device(to) ? "copy" : "copy to the host";
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind,
    cudaStream_t stream) {
  return copy(to, from, bytes, stream, name_of_copy(to, from));
}

cudaError_t cudaMemcpyPeerAsync(
    void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return copy(to, from, bytes, stream, "copy to a peer");
}

cudaError_t cudaMemcpy(
    void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  cudaError_t error = copy(to, from, bytes, nullptr, name_of_copy(to, from));
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}

cudaError_t cudaMemsetAsync(
    void* to, int value, size_t bytes, cudaStream_t stream) {
  Place place = here();
  Operation operation = begin_operation("memset", stream, place);
  std::memset(to, value, bytes);
  writes(operation, to, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

}  // extern "C"
