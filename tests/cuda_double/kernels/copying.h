// copy_: within a GPU it is a kernel, elsewhere a copy of the runtime.
#pragma once

#include <torch/library.h>

namespace cuda_double {

void register_copying(torch::Library& library);

}  // namespace cuda_double
