// Operators that PyTorch has for CUDA and not for the CPU.
#pragma once

#include <torch/library.h>

namespace cuda_double {

void register_only_on_cuda(torch::Library& library);

}  // namespace cuda_double
