// The same memory, once as a tensor of a GPU and once as one of the CPU.
#pragma once

#include <ATen/ATen.h>

#include "../runtime/accesses.h"

namespace cuda_double {

// A tensor of the CPU on the memory of one of a GPU, which it keeps alive.
at::Tensor alias_on_cpu(const at::Tensor& on_gpu);
// A tensor of a GPU with the values and strides of one of the CPU.
at::Tensor move_to_gpu(const at::Tensor& on_cpu, c10::Device device);

// An operation on the current stream of a device, begun now.
Operation begin_on(c10::Device device, const std::string& name);
void reads(const Operation& operation, const at::Tensor& on_gpu);
void writes(const Operation& operation, const at::Tensor& on_gpu);

}  // namespace cuda_double
