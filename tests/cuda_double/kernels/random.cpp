#include "random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

namespace cuda_double {
namespace {

// Spread a seed and an offset over the 32 bits that the CPU's generator
// takes (the finalizer of MurmurHash3, in 64 bits).
uint64_t mix(uint64_t seed, uint64_t offset) {
  uint64_t bits = seed ^ (offset * 0x9E3779B97F4A7C15ull);
  bits = (bits ^ (bits >> 33)) * 0xFF51AFD7ED558CCDull;
  bits = (bits ^ (bits >> 33)) * 0xC4CEB9FE1A85EC53ull;
  return (bits ^ (bits >> 33)) & 0xFFFFFFFFull;
}

}  // namespace

at::Generator generator_for_cpu(
    const c10::IValue& given, c10::Device device) {
  at::Generator generator =
      given.isNone()
          ? at::cuda::detail::getDefaultCUDAGenerator(device.index())
          : given.toGenerator();
  auto* state = at::check_generator<at::CUDAGeneratorImpl>(generator);
  std::lock_guard<std::mutex> guard(state->mutex_);
  uint64_t offset = state->philox_offset_per_thread();
  state->set_philox_offset_per_thread(offset + 4);
  return at::detail::createCPUGenerator(mix(state->current_seed(), offset));
}

}  // namespace cuda_double
