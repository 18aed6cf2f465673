#include "copying.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_native.h>

#include "aliases.h"

namespace cuda_double {
namespace {

using at::Tensor;

// PyTorch's own code for CUDA does what crosses from a device to another or
// to the host: the order between the two current streams, the buffers for
// what is not contiguous, the choice whether the host waits.
Tensor& copy_(Tensor& to, const Tensor& from, bool non_blocking) {
  if (to.device() != from.device())
    return at::native::copy_(to, from, non_blocking);
  if (to.is_same(from)) return to;
  auto operation = begin_on(to.device(), "copy_");
  reads(operation, from);
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  alias_on_cpu(to).copy_(alias_on_cpu(from));
  writes(operation, to);
  return to;
}

// The lists may cross devices, which other operators on lists may not.
void foreach_copy_(at::TensorList to, at::TensorList from, bool non_blocking) {
  for (size_t i = 0; i < to.size(); ++i) {
    Tensor target = to[i];
    target.copy_(from[i], non_blocking);
  }
}

}  // namespace

void register_copying(torch::Library& library) {
  library.impl("copy_", &copy_);
  library.impl("_foreach_copy_", &foreach_copy_);
}

}  // namespace cuda_double
