// Random numbers: a GPU's generator is a seed and an offset, as on CUDA.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

namespace cuda_double {

// A generator for one call of a CPU's kernel, made from the state of a GPU's
// generator (none: the default one of the device), which moves on.
at::Generator generator_for_cpu(
    const c10::IValue& given, c10::Device device);

}  // namespace cuda_double
