// Which bytes a tensor has: a range of memory, perhaps with gaps.
//
// A column of a matrix spans nearly all of the matrix's memory, but two
// columns share no byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cuda_double {

struct Extent {
  const char* begin;
  const char* end;
  // Without gaps these are empty: all bytes from begin to end are used.
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in bytes
  int64_t item = 1;              // bytes of an element

  bool has_gaps() const { return !sizes.empty(); }
};

Extent whole(const void* begin, size_t bytes);
bool overlap(const Extent& a, const Extent& b);
// Whether every byte of b is surely one of a.
bool covers(const Extent& a, const Extent& b);

}  // namespace cuda_double
