// Pinned memory while a copy uses it: the host may not touch it yet.
//
// A copy to or from pinned memory goes on while the host does other things.
// Until the host has waited for it, it may not read what is being copied to
// the host, and it may not write what is being copied from there. The pages
// are protected meanwhile, so that the system tells us of the first access.
#pragma once

#include <cstddef>

#include "accesses.h"

namespace cuda_double {

enum class Way { to_host, from_host };

// A copy that has been issued uses pinned memory.
void guard_pinned(
    const void* begin, size_t bytes, Way way, const Operation& copy);
// Lift the protection of what the host has waited for by now.
void lift_guards_of_ended_copies();
// Lift it from memory that is given back.
void lift_guards(const void* begin, size_t bytes);

// While it lives, the double itself may use protected memory.
class OwnAccess {
 public:
  OwnAccess();
  ~OwnAccess();

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

}  // namespace cuda_double
