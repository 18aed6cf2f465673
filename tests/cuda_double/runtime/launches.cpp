// A kernel that is launched after all: it is refused, and named.
//
// PyTorch's operators never get here, because their kernels for CUDA are
// replaced (../kernels). What does get here is an operator that has none for
// the CPU, or code that launches by itself.
#include <cstring>
#include <string>

#include <cuda_runtime_api.h>
#include <execinfo.h>

#include "errors.h"
#include "findings.h"
#include "places.h"

using namespace cuda_double;

namespace {

// The functions of PyTorch on the stack, as far as they have names.
std::string callers() {
  void* addresses[24];
  int count = backtrace(addresses, 24);
  char** names = backtrace_symbols(addresses, count);
  std::string text;
  for (int i = 2; i < count && text.size() < 300; ++i) {
    const char* open = std::strchr(names[i], '(');
    const char* plus = open ? std::strchr(open, '+') : nullptr;
    if (plus == nullptr || plus == open + 1) continue;
    text += (text.empty() ? "" : " < ") + std::string(open + 1, plus);
  }
  free(names);
  return text;
}

cudaError_t refuse() {
  tell("not doubled: a kernel was launched at " + describe(here()) +
       " (called by " + callers() + ")");
  return fail(cudaErrorNotSupported);
}

}  // namespace

extern "C" {

cudaError_t cudaLaunchKernel(
    const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  return refuse();
}

cudaError_t cudaLaunchKernelExC(
    const cudaLaunchConfig_t*, const void*, void**) {
  return refuse();
}

cudaError_t cudaLaunchCooperativeKernel(
    const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  return refuse();
}

// What the compiler of CUDA 13 calls in place of the functions above.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(
    cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  return refuse();
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) {
  return refuse();
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return refuse();
}

}  // extern "C"
