#include "errors.h"

#include <string>

#include "findings.h"

namespace cuda_double {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t fail(cudaError_t error) { return last_error = error; }

cudaError_t not_doubled(const char* function) {
  tell("not doubled: " + std::string(function));
  return fail(cudaErrorNotSupported);
}

}  // namespace cuda_double

extern "C" {

cudaError_t cudaGetLastError() {
  cudaError_t error = cuda_double::last_error;
  cuda_double::last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return cuda_double::last_error; }

}  // extern "C"
