// Streams and events: all that gives an order to what streams do.
//
// A stream's work is done when it is issued, so nobody ever waits for time to
// pass. What waiting leaves behind is knowledge, and that is kept (order.h).
#include <cstring>

#include <dlfcn.h>

#include "accesses.h"
#include "devices.h"
#include "errors.h"
#include "host_memory.h"
#include "order.h"

using namespace cuda_double;

struct CUevent_st {
  int device;
  bool has_time;
  bool is_recorded = false;
  Clock clock;         // of the stream, when it was recorded
  double seconds = 0;  // by the host's watch
};

namespace {

// Until then, "not yet" is the answer about work that nobody has waited for;
// then it has surely been done, and who asks knows. (PyTorch's work of NCCL
// asks before it waits, so that an answer "yes" has to count as a wait.)
constexpr double seconds_to_be_done = 0.5;

// Whether PyTorch's allocator asks, in order to reuse memory: the only one in
// its library c10_cuda. What it learns, the program does not know.
bool is_the_allocator(void* return_address) {
  Dl_info found;
  static void* begin_of_c10_cuda = nullptr;
  if (dladdr(return_address, &found) == 0) return false;
  if (begin_of_c10_cuda == nullptr &&
      std::strstr(found.dli_fname, "libc10_cuda") != nullptr)
    begin_of_c10_cuda = found.dli_fbase;
  return found.dli_fbase == begin_of_c10_cuda;
}

// Answer whoever asks, without waiting, if a clock's work has been done.
cudaError_t answer(const Clock& clock, double issued) {
  if (clock_of_host().knows(clock)) return cudaSuccess;
  if (seconds_now() - issued < seconds_to_be_done) return cudaErrorNotReady;
  clock_of_host().join(clock);
  lift_guards_of_ended_copies();
  return cudaSuccess;
}

}  // namespace

extern "C" {

// --- streams ---------------------------------------------------------------

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -1;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(
    cudaStream_t* stream, unsigned flags, int priority) {
  *stream = new_stream(current_device(), flags, priority);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}

// Its clock stays: memory may remember what it did.
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = resolve(stream)->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  host_waits_for(clock_of(resolve(stream)->number));
  lift_guards_of_ended_copies();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  int number = resolve(stream)->number;
  return answer(clock_of(number), time_of_last_issue(number));
}

cudaError_t cudaStreamWaitEvent(
    cudaStream_t stream, cudaEvent_t event, unsigned) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  clock_of(resolve(stream)->number).join(event->clock);
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(
    cudaStream_t stream, cudaStreamCallback_t call, void* data, unsigned) {
  call(stream, cudaSuccess, data);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t call, void* data) {
  call(data);
  return cudaSuccess;
}

// --- events ----------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  bool has_time = (flags & cudaEventDisableTiming) == 0;
  *event = new CUevent_st{current_device(), has_time};
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(
    cudaEvent_t event, cudaStream_t given, unsigned) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  cudaStream_t stream = resolve(given);
  if (stream->device != event->device)
    return fail(cudaErrorInvalidResourceHandle);
  event_is_recorded();
  issue(stream->number);
  event->clock = clock_of(stream->number);
  event->seconds = seconds_now();
  event->is_recorded = true;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  host_waits_for(event->clock);
  lift_guards_of_ended_copies();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  bool for_memory = is_the_allocator(__builtin_return_address(0));
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  if (!for_memory) return answer(event->clock, event->seconds);
  clock_of_allocators().join(event->clock);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(
    float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  for (cudaEvent_t event : {start, end}) {
    bool usable = event->has_time && event->is_recorded;
    if (!usable || event->device != start->device)
      return fail(cudaErrorInvalidResourceHandle);
    if (!clock_of_host().knows(event->clock))
      return fail(cudaErrorNotReady);
  }
  *milliseconds = static_cast<float>(1e3 * (end->seconds - start->seconds));
  return cudaSuccess;
}

// --- graphs are not recorded -----------------------------------------------

cudaError_t cudaStreamIsCapturing(
    cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
    cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**,
    size_t*) {
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return not_doubled("cudaStreamBeginCapture");
}

}  // extern "C"
