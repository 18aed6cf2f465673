#include "computing.h"

#include <set>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "aliases.h"
#include "random.h"
#include "rounding.h"

namespace cuda_double {
namespace {

using at::Tensor;
using c10::IValue;

// The shape of what these return depends on values: the host waits for them.
const std::set<std::string> waits_for_values = {
    "aten::nonzero",         "aten::masked_select",
    "aten::_unique2",        "aten::unique_dim",
    "aten::equal",           "aten::unique_consecutive",
    "aten::is_nonzero",      "aten::repeat_interleave",
    "aten::bincount",        "aten::_assert_async",
};

// These take indices, or what they put there, from the CPU.
const std::set<std::string> takes_cpu_tensors = {
    "aten::index",        "aten::index_put_", "aten::_index_put_impl_",
    "aten::_unsafe_index",
};

// In 16 bits the CPU may take minutes for what a GPU does in a millisecond. As
// on a GPU, the terms are added in float32, and each sum is rounded once.
const std::set<std::string> products_of_16_bits = {
    "aten::addmm", "aten::baddbmm", "aten::bmm", "aten::mm",
};

bool has_16_bits(const Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
}

// One call: what was given, and what the CPU's kernel is given in its place.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : op_(op), schema_(op.schema()), stack_(stack) {
    size_t count = schema_.arguments().size();
    first_ = stack->size() - count;
    given_.assign(stack->begin() + first_, stack->end());
  }

  void run() {
    find_device();
    c10::cuda::CUDAGuard on_device(device_);
    replace_arguments();
    std::vector<IValue> replaced(stack_->begin() + first_, stack_->end());
    {
      at::AutoDispatchBelowADInplaceOrView no_autograd;
      compute();
      if (rounds_otherwise()) round_results(replaced);
    }
    auto operation = begin_on(device_, short_name());
    for (auto& tensor : read_) reads(operation, tensor);
    take_back_arguments(replaced);
    for (auto& tensor : written_) writes(operation, tensor);
    replace_results(operation, replaced);
    if (waits_for_values.count(schema_.name()) || has_mask())
      c10::cuda::stream_synchronize(c10::cuda::getCurrentCUDAStream());
  }

 private:
  void compute() {
    c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
    IValue& first = (*stack_)[first_];
    if (!products_of_16_bits.count(schema_.name()) || !written_.empty() ||
        !has_16_bits(first.toTensor()))
      return op_.redispatchBoxed(cpu, stack_);
    auto dtype = first.toTensor().scalar_type();
    for (size_t i = first_; i < stack_->size(); ++i)
      if ((*stack_)[i].isTensor())
        (*stack_)[i] = (*stack_)[i].toTensor().to(at::kFloat);
    op_.redispatchBoxed(cpu, stack_);
    stack_->back() = stack_->back().toTensor().to(dtype);
  }

  std::string short_name() const {
    return schema_.name().substr(schema_.name().find(':') + 2);
  }

  bool is_written(size_t i) const {
    auto* alias = schema_.arguments()[i].alias_info();
    return alias != nullptr && alias->isWrite();
  }

  // All tensors of an argument, whether it is one or a list.
  static std::vector<Tensor> tensors_of(const IValue& value) {
    std::vector<Tensor> found;
    if (value.isTensor()) found.push_back(value.toTensor());
    if (value.isTensorList()) found = value.toTensorVector();
    if (value.isOptionalTensorList())
      for (const auto& x : value.toOptionalTensorVector())
        if (x.has_value()) found.push_back(*x);
    return found;
  }

  [[noreturn]] void refuse(c10::Device a, c10::Device b) const {
    TORCH_CHECK(
        false,
        "Expected all tensors to be on the same device, but found at least "
        "two devices, ", a, " and ", b, "!");
  }

  // Among indices, a mask: how many it selects has to be counted first.
  bool has_mask() const {
    for (const auto& value : given_)
      if (value.isOptionalTensorList())
        for (const auto& x : tensors_of(value))
          if (x.defined() && x.scalar_type() == at::kBool) return true;
    return false;
  }

  // The device of the tensors, which has to be one; or the one asked for.
  void find_device() {
    std::optional<c10::Device> found, asked_for;
    bool has_cpu_tensor = false;
    for (size_t i = 0; i < given_.size(); ++i) {
      if (given_[i].isDevice()) asked_for = given_[i].toDevice();
      for (const auto& x : tensors_of(given_[i])) {
        if (!x.defined()) continue;
        has_cpu_tensor |= x.is_cpu() && x.dim() > 0;
        if (!x.is_cuda()) continue;
        if (found && *found != x.device()) refuse(*found, x.device());
        found = x.device();
        (is_written(i) ? written_ : read_).push_back(x);
      }
    }
    bool allowed = takes_cpu_tensors.count(schema_.name()) > 0;
    if (found && has_cpu_tensor && !allowed)
      refuse(*found, c10::Device(at::kCPU));
    TORCH_CHECK(
        !found || !allowed || given_[0].toTensor().is_cuda(),
        "indices should be either on cpu or on the same device as the indexed "
        "tensor (cpu)");
    device_ = found ? *found : asked_for.value_or(c10::Device(at::kCUDA));
    if (!device_.has_index())
      device_ = c10::Device(at::kCUDA, c10::cuda::current_device());
  }

  Tensor replaced(size_t i, const Tensor& x) const {
    if (!x.defined() || !x.is_cuda()) return x;
    Tensor alias = alias_on_cpu(x);
    bool is_read = rounds_otherwise() && !is_written(i);
    return is_read ? as_read_by(short_name(), alias) : alias;
  }

  void replace_arguments() {
    for (size_t i = 0; i < given_.size(); ++i) {
      const IValue& value = given_[i];
      IValue& place = (*stack_)[first_ + i];
      if (value.isTensor()) {
        place = replaced(i, value.toTensor());
      } else if (value.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& x : value.toTensorVector())
          list.push_back(replaced(i, x));
        place = list;
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<Tensor>> list;
        for (const auto& x : value.toOptionalTensorVector())
          list.push_back(x ? std::optional(replaced(i, *x)) : x);
        place = list;
      } else if (value.isDevice()) {
        place = c10::Device(at::kCPU);
      } else if (is_generator(i)) {
        place = generator_for_cpu(value, device_);
      }
    }
  }

  // What is put at indices is not added, unless that is asked for.
  bool adds() const {
    for (size_t i = 0; i < given_.size(); ++i)
      if (schema_.arguments()[i].name() == "accumulate")
        return given_[i].toBool();
    return true;
  }

  void round_results(const std::vector<IValue>& replaced) const {
    if (!adds()) return;
    Tensor terms;
    for (const IValue& value : replaced)
      if (!terms.defined() && value.isTensor()) terms = value.toTensor();
    size_t first = stack_->size() - schema_.returns().size();
    for (size_t i = first; i < stack_->size(); ++i)
      for (const Tensor& x : tensors_of((*stack_)[i]))
        if (x.defined() && x.is_cpu()) round_otherwise(short_name(), x, terms);
  }

  bool is_generator(size_t i) const {
    auto type = schema_.arguments()[i].type()->annotation_str();
    return type.find("Generator") != std::string::npos;
  }

  // An argument such as `out` may have been given another shape, or memory.
  void take_back_arguments(const std::vector<IValue>& replaced) {
    for (size_t i = 0; i < given_.size(); ++i) {
      if (!is_written(i) || !given_[i].isTensor()) continue;
      Tensor mine = given_[i].toTensor();
      if (!mine.defined() || !mine.is_cuda()) continue;
      Tensor computed = replaced[i].toTensor();
      bool same_memory =
          mine.numel() == 0 || computed.data_ptr() == mine.data_ptr();
      bool same_shape = computed.sizes() == mine.sizes() &&
                        computed.strides() == mine.strides();
      if (same_shape && same_memory) continue;
      mine.resize_(computed.sizes());
      mine.as_strided_(computed.sizes(), computed.strides());
      alias_on_cpu(mine).copy_(computed);
    }
  }

  // The given tensor that a result is, or none if it is a new one.
  std::optional<IValue> given_as(
      size_t result, const Tensor& computed,
      const std::vector<IValue>& replaced) const {
    auto* alias = schema_.returns()[result].alias_info();
    for (size_t i = 0; i < given_.size(); ++i) {
      if (!given_[i].isTensor()) continue;
      auto* argument = schema_.arguments()[i].alias_info();
      bool declared = alias && argument && *alias == *argument;
      bool is_it = replaced[i].toTensor().defined() &&
                   replaced[i].toTensor().is_same(computed);
      if (declared || is_it) return given_[i];
    }
    return std::nullopt;
  }

  Tensor on_gpu(const Operation& operation, const Tensor& computed) const {
    if (!computed.defined() || !computed.is_cpu()) return computed;
    Tensor moved = move_to_gpu(computed, device_);
    writes(operation, moved);
    return moved;
  }

  void replace_results(
      const Operation& operation, const std::vector<IValue>& replaced) {
    size_t count = schema_.returns().size();
    size_t first = stack_->size() - count;
    for (size_t result = 0; result < count; ++result) {
      IValue& value = (*stack_)[first + result];
      if (value.isTensor()) {
        Tensor computed = value.toTensor();
        auto given = given_as(result, computed, replaced);
        value = given ? *given : IValue(on_gpu(operation, computed));
      } else if (value.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& x : value.toTensorVector())
          list.push_back(on_gpu(operation, x));
        value = list;
      }
    }
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack* stack_;
  size_t first_ = 0;
  std::vector<IValue> given_;
  std::vector<Tensor> read_, written_;
  c10::Device device_{at::kCUDA};
};

}  // namespace

void compute_on_cpu(
    const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call(op, stack).run();
}

}  // namespace cuda_double
