// Which operation used which bytes: the check for races.
//
// A block is what the allocator of PyTorch gave out, from allocation to the
// end of its life. It remembers who read and who wrote which of its bytes. An
// operation that overlaps an earlier one, where either of them writes, must
// come after it (order.h); if it does not, that is a race. A block that is
// given back while an operation on another stream may still use it is the
// same race with whoever gets the memory next: `record_stream` was forgotten.
// It is none if the block's own stream waits for that operation before it
// takes or uses any memory again. FSDP gives gradients back in this way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "extent.h"
#include "order.h"
#include "places.h"

namespace cuda_double {

struct Operation {
  std::string name;
  int stream;
  int64_t tick;
  Place place;
};

void block_begins(const void* begin, size_t bytes, cudaStream_t stream);
// A tensor is gone. Its block ends at once, unless `record_stream` was called:
// then the allocator first records events, and asks them before it ends.
void block_is_given_back(const void* begin);
void event_is_recorded();
void block_ends(const void* begin);
// Tell now of blocks that were given back too early, though their streams have
// not gone on yet: somebody asks what has been found.
void tell_what_is_left_open();

// An operation that has been issued reads or writes bytes.
void reads(const Operation& operation, const Extent& extent);
void writes(const Operation& operation, const Extent& extent);
void reads(const Operation& operation, const void* begin, size_t bytes);
void writes(const Operation& operation, const void* begin, size_t bytes);

// Issue an operation on a stream (null: the current device's default one).
Operation begin_operation(
    const std::string& name, cudaStream_t stream, const Place& place);

}  // namespace cuda_double
