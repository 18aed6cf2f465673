// Which GPUs there are, and which of them is the current one of a thread.
#pragma once

#include <cstddef>

namespace cuda_double {

// Those that CUDA_VISIBLE_DEVICES leaves of the CUDA_DOUBLE there are.
int num_devices();
int current_device();
// The number of a visible device on this machine: another process that sees
// other devices calls it something else.
int number_on_machine(int device);
size_t bytes_per_device();

}  // namespace cuda_double
