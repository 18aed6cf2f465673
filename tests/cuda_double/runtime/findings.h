// What the double tells: one line for each thing that it found.
//
// A line goes to the standard error and, if CUDA_DOUBLE_LOG names a file, to
// its end. The same line is told once a process.
#pragma once

#include <string>

namespace cuda_double {

void tell(const std::string& finding);
long num_findings();

}  // namespace cuda_double
