// The kernel that stands for all kernels of CUDA: the CPU's.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

namespace cuda_double {

// Call an operator as on a GPU: its tensors there are taken for tensors of
// the CPU on the same memory, the CPU's kernel computes, and what it returns
// is put into memory of the GPU.
void compute_on_cpu(
    const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace cuda_double
