#include "aliases.h"

#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace cuda_double {
namespace {

char* first_byte(const at::Tensor& x) {
  auto* storage = static_cast<char*>(x.storage().mutable_data());
  return storage + x.storage_offset() * x.element_size();
}

bool has_memory(const at::Tensor& x) {
  return x.defined() && x.numel() > 0 && x.has_storage() &&
         x.storage().data() != nullptr;
}

Extent extent_of(const at::Tensor& x) {
  auto item = static_cast<int64_t>(x.element_size());
  Extent extent = whole(first_byte(x), item);
  for (int64_t axis = 0; axis < x.dim(); ++axis)
    extent.end += (x.size(axis) - 1) * x.stride(axis) * item;
  if (extent.end - extent.begin <= x.numel() * item) return extent;
  extent.item = item;
  extent.sizes = x.sizes().vec();
  for (int64_t stride : x.strides()) extent.strides.push_back(stride * item);
  return extent;
}

}  // namespace

at::Tensor alias_on_cpu(const at::Tensor& on_gpu) {
  auto options = at::TensorOptions().dtype(on_gpu.dtype()).device(at::kCPU);
  if (!has_memory(on_gpu))
    return at::empty_strided(on_gpu.sizes(), on_gpu.strides(), options);
  auto alias = at::for_blob(first_byte(on_gpu), on_gpu.sizes())
                   .strides(on_gpu.strides())
                   .deleter([keep = on_gpu](void*) {})
                   .target_device(c10::Device(at::kCPU))
                   .resizeable_storage()
                   .allocator(c10::GetCPUAllocator())
                   .options(options)
                   .make_tensor();
  if (on_gpu.is_conj()) alias._set_conj(true);
  if (on_gpu.is_neg()) alias._set_neg(true);
  return alias;
}

at::Tensor move_to_gpu(const at::Tensor& on_cpu, c10::Device device) {
  c10::cuda::CUDAGuard guard(device);
  auto options = on_cpu.options().device(device).pinned_memory(false);
  auto on_gpu = on_cpu.is_non_overlapping_and_dense()
                    ? at::empty_strided(
                          on_cpu.sizes(), on_cpu.strides(), options)
                    : at::empty(on_cpu.sizes(), options);
  alias_on_cpu(on_gpu).copy_(on_cpu);
  return on_gpu;
}

Operation begin_on(c10::Device device, const std::string& name) {
  Place place = here();
  auto stream = c10::cuda::getCurrentCUDAStream(device.index());
  c10::cuda::CUDAGuard guard(device);  // its default stream's handle is null
  return begin_operation(name, stream.stream(), place);
}

void reads(const Operation& operation, const at::Tensor& on_gpu) {
  if (has_memory(on_gpu)) reads(operation, extent_of(on_gpu));
}

void writes(const Operation& operation, const at::Tensor& on_gpu) {
  if (has_memory(on_gpu)) writes(operation, extent_of(on_gpu));
}

}  // namespace cuda_double
