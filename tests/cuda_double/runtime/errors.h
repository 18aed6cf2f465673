// The last error of a thread, as CUDA keeps it: until somebody asks.
#pragma once

#include <cuda_runtime_api.h>

namespace cuda_double {

// Remembers an error for cudaGetLastError, and returns it.
cudaError_t fail(cudaError_t error);
// The same for what the double does not do; says so on the standard error.
cudaError_t not_doubled(const char* function);

}  // namespace cuda_double
