// Values that differ from the CPU's as those of a GPU do, where asked for.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace cuda_double {

// Whether CUDA_DOUBLE_ROUNDING asks for other values than the CPU's.
bool rounds_otherwise();

// What a kernel for matrix units reads of a tensor of the CPU: on cards that
// have TF32, and where PyTorch allows it for this operator, the first 10 bits
// of each float32's fraction. Else the tensor itself.
at::Tensor as_read_by(const std::string& name, const at::Tensor& x);

// Change the last bits of what an operator has computed, in place, if its
// kernel for CUDA adds in another order or takes another approximation.
// `terms` is its first tensor, or none.
void round_otherwise(
    const std::string& name, const at::Tensor& result,
    const at::Tensor& terms);

}  // namespace cuda_double
