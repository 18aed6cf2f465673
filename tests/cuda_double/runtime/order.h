// Who comes before whom: vector clocks, one for each stream and one for the
// host.
//
// Every operation of a stream is given the next tick of that stream. A clock
// says, for each stream, up to which tick its owner knows everything to have
// ended. An event carries a copy of a stream's clock; who waits for the event
// learns what the copy says. Two operations are ordered if the later one's
// stream knew, when it was issued, that the earlier one had ended.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

// CUDA leaves these two types open; here a stream is no more than its names.
struct CUstream_st {
  int device;
  int number;  // in the order of the clocks; the default stream's comes first
  bool is_default;
  int priority;
  unsigned flags;
};

namespace cuda_double {

class Clock {
 public:
  int64_t of(int stream) const {
    return stream < static_cast<int>(ticks_.size()) ? ticks_[stream] : 0;
  }
  bool knows(int stream, int64_t tick) const { return of(stream) >= tick; }
  bool knows(const Clock& other) const;
  void join(const Clock& other);
  int64_t advance(int stream);

 private:
  std::vector<int64_t> ticks_;
};

// Everything below is read and written under this lock alone. Whoever holds
// it never takes Python's lock (places.h).
std::recursive_mutex& the_lock();

cudaStream_t new_stream(int device, unsigned flags, int priority);
cudaStream_t default_stream(int device);
// What a program calls its stream: null and the two special handles mean the
// default stream of the current device.
cudaStream_t resolve(cudaStream_t given);
std::string name_of(int stream);
std::vector<cudaStream_t> streams_of(int device);

Clock& clock_of(int stream);
Clock& clock_of_host();
// What CUDA's and PyTorch's own libraries have asked events about, in order
// to reuse memory. A program may not rely on it, so it is no part of the
// host's clock.
Clock& clock_of_allocators();

// Issue an operation: it comes after all that the stream has done or waited
// for, and after all that the host has waited for. Returns its tick.
int64_t issue(int stream);
double seconds_now();  // of the host's watch
double time_of_last_issue(int stream);
// The host waits; num_host_waits counts how often there was work to wait for.
void host_waits_for(const Clock& clock);
long num_host_waits();

}  // namespace cuda_double
