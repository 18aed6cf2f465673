// Put the double's kernels in the place of CUDA's, and watch the allocator.
//
// What stays PyTorch's own is all that launches no kernel: it allocates,
// makes views, copies through the runtime, or waits.
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/library.h>

#include "../runtime/accesses.h"
#include "computing.h"
#include "copying.h"
#include "only_on_cuda.h"

namespace {

using c10::DispatchKey;

const std::set<std::string> stays_as_it_is = {
    "aten::empty.memory_format", "aten::empty_strided",
    "aten::resize_",             "aten::record_stream",
    "aten::_local_scalar_dense", "aten::is_pinned",
    "aten::_pin_memory",         "aten::set_",
    "aten::set_.source_Storage", "aten::set_.source_Storage_storage_offset",
    "aten::set_.source_Tensor",  "aten::is_set_to",
};

// These choose among kernels of CUDA before any of them is called.
const std::set<std::string> taken_as_a_whole = {
    "aten::convolution",
    "aten::convolution_backward",
};

bool returns_a_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns())
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite())
      return true;
  return false;
}

bool is_replaced(const c10::OperatorHandle& op) {
  std::string name = op.operator_name().name;
  if (name.rfind("aten::", 0) != 0) return false;
  if (taken_as_a_whole.count(name)) return true;
  std::string overload = op.operator_name().overload_name;
  if (!overload.empty()) name += "." + overload;
  return op.hasKernelForDispatchKey(DispatchKey::CUDA) &&
         !stays_as_it_is.count(name) && op.hasSchema() &&
         !returns_a_view(op.schema());
}

// PyTorch warns of each kernel that is replaced.
struct NoWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void replace_kernels() {
  static auto* handles = new std::vector<c10::RegistrationHandleRAII>;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findSchema(name);
    if (!op.has_value() || !is_replaced(*op)) continue;
    auto kernel = c10::KernelFunction::makeFromBoxedFunction<
        &cuda_double::compute_on_cpu>();
    handles->push_back(dispatcher.registerImpl(
        name, DispatchKey::CUDA, std::move(kernel), std::nullopt, nullptr,
        "the double of CUDA"));
  }
  static auto* library = new torch::Library(
      torch::Library::IMPL, "aten", DispatchKey::CUDA, __FILE__, __LINE__);
  cuda_double::register_copying(*library);
  cuda_double::register_only_on_cuda(*library);
}

// What is added to the scores: 0 where a mask is true, else -infinity.
std::optional<at::Tensor> as_added(const std::optional<at::Tensor>& mask,
                                   const at::Tensor& query) {
  if (!mask.has_value() || mask->scalar_type() != at::kBool) return mask;
  auto nothing = at::zeros_like(*mask, query.options());
  return nothing.masked_fill(
      mask->logical_not(), -std::numeric_limits<double>::infinity());
}

at::Tensor attention_of_products(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
    std::optional<double> scale, bool enable_gqa) {
  return std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, as_added(mask, query), dropout_p, is_causal,
      /*dropout_mask=*/std::nullopt, scale, enable_gqa));
}

// Attention and convolutions are not to be handed to libraries of CUDA. The
// switches of attention stay as they are: simulated devices heed them, too.
void choose_plain_kernels() {
  at::globalContext().setUserEnabledCuDNN(false);
  for (auto key : {DispatchKey::CUDA, DispatchKey::AutogradCUDA}) {
    auto* library = new torch::Library(
        torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    library->impl("scaled_dot_product_attention", &attention_of_products);
  }
}

void follow(const c10::CachingDeviceAllocator::TraceEntry& entry) {
  using Entry = c10::CachingDeviceAllocator::TraceEntry;
  auto* address = reinterpret_cast<const void*>(entry.addr_);
  auto stream = static_cast<cudaStream_t>(entry.stream_);
  if (stream == nullptr) stream = cuda_double::default_stream(entry.device_);
  if (entry.action_ == Entry::ALLOC)
    cuda_double::block_begins(address, entry.size_, stream);
  if (entry.action_ == Entry::FREE_REQUESTED)
    cuda_double::block_is_given_back(address);
  if (entry.action_ == Entry::FREE_COMPLETED)
    cuda_double::block_ends(address);
}

}  // namespace

extern "C" {

// Once, when torch has been imported.
void cuda_double_install_kernels() {
  NoWarnings quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  replace_kernels();
  choose_plain_kernels();
}

// Once, when CUDA has started and the allocator knows its devices.
void cuda_double_watch_allocator() {
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(&follow);
}

}  // extern "C"
