// Sums, products and extremes of the ranks' numbers, in the order of ranks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nccl.h>

namespace cuda_double {

size_t bytes_of(ncclDataType_t type);
std::string name_of(ncclDataType_t type);
std::string name_of(ncclRedOp_t op);

// Reduce count numbers of each rank into `to`. What the operation multiplies
// the ranks' numbers by before they are added is 1, but for ncclAvg and the
// operations of ncclRedOpCreatePreMulSum.
void reduce(
    void* to, const std::vector<const void*>& from, size_t count,
    ncclDataType_t type, ncclRedOp_t op, const std::vector<double>& factors);

// A number in memory, as another type.
double number_at(const void* address, ncclDataType_t type);

}  // namespace cuda_double
