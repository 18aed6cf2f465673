// The place in Python where an operation was asked for.
//
// A place is up to four frames of the program's own code (none of installed
// packages, of Python's library or of the double), the innermost first. It is
// taken at every operation, so it holds only pointers to code and offsets;
// lines and names are looked up when a finding is told.
#pragma once

#include <array>
#include <string>

namespace cuda_double {

struct Frame {
  const void* code = nullptr;  // a PyCodeObject that is never freed
  int instruction = 0;
};

struct Place {
  std::array<Frame, 4> frames;
  bool in_backward = false;  // the frames are those of the main thread
};

// Takes Python's lock: never call it with another lock held.
Place here();
// Where this thread was when it last asked: for who may not take Python's
// lock, because it holds another one.
Place last_here();
// Python is ending, and gives back all that it has.
bool python_is_going();
std::string describe(const Place& place);

}  // namespace cuda_double
