#include "order.h"

#include <algorithm>
#include <ctime>

#include "devices.h"

namespace cuda_double {

bool Clock::knows(const Clock& other) const {
  for (size_t s = 0; s < other.ticks_.size(); ++s)
    if (of(static_cast<int>(s)) < other.ticks_[s]) return false;
  return true;
}

void Clock::join(const Clock& other) {
  if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
  for (size_t s = 0; s < other.ticks_.size(); ++s)
    ticks_[s] = std::max(ticks_[s], other.ticks_[s]);
}

int64_t Clock::advance(int stream) {
  if (static_cast<int>(ticks_.size()) <= stream) ticks_.resize(stream + 1);
  return ++ticks_[stream];
}

namespace {

struct State {
  std::recursive_mutex lock;
  std::vector<cudaStream_t> streams;
  std::vector<Clock> clocks;
  std::vector<double> issued;  // when the last operation was, by stream
  std::vector<cudaStream_t> defaults;
  Clock host;
  Clock allocators;
  long host_waits = 0;
};

// Never destroyed: threads may still compute while the process ends.
State& state() {
  static auto* the_state = new State;
  return *the_state;
}

}  // namespace

std::recursive_mutex& the_lock() { return state().lock; }

cudaStream_t new_stream(int device, unsigned flags, int priority) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  int number = static_cast<int>(state().streams.size());
  auto* stream = new CUstream_st{device, number, false, priority, flags};
  state().streams.push_back(stream);
  state().clocks.emplace_back();
  state().issued.push_back(0);
  return stream;
}

cudaStream_t default_stream(int device) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  auto& defaults = state().defaults;
  while (static_cast<int>(defaults.size()) <= device) {
    defaults.push_back(new_stream(static_cast<int>(defaults.size()), 0, 0));
    defaults.back()->is_default = true;
  }
  return defaults[device];
}

cudaStream_t resolve(cudaStream_t given) {
  bool special = given == nullptr || given == cudaStreamLegacy ||
                 given == cudaStreamPerThread;
  return special ? default_stream(current_device()) : given;
}

std::string name_of(int stream) {
  auto* s = state().streams[stream];
  std::string device = "cuda:" + std::to_string(s->device);
  if (s->is_default) return device + " default stream";
  return device + " stream " + std::to_string(s->number);
}

std::vector<cudaStream_t> streams_of(int device) {
  std::vector<cudaStream_t> found;
  for (auto* stream : state().streams)
    if (stream->device == device) found.push_back(stream);
  return found;
}

Clock& clock_of(int stream) { return state().clocks[stream]; }
Clock& clock_of_host() { return state().host; }
Clock& clock_of_allocators() { return state().allocators; }

int64_t issue(int stream) {
  Clock& clock = clock_of(stream);
  clock.join(clock_of_host());
  state().issued[stream] = seconds_now();
  return clock.advance(stream);
}

double seconds_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
}

double time_of_last_issue(int stream) { return state().issued[stream]; }

void host_waits_for(const Clock& clock) {
  if (clock_of_host().knows(clock)) return;
  clock_of_host().join(clock);
  ++state().host_waits;
}

long num_host_waits() { return state().host_waits; }

}  // namespace cuda_double
