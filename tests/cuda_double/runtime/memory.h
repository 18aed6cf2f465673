// Memory: of a device (of fixed size), pinned, and of neither kind.
#pragma once

#include <cstddef>

namespace cuda_double {

bool is_pinned(const void* address);

}  // namespace cuda_double
