#include "rounding.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <set>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>

namespace cuda_double {
namespace {

using at::Tensor;

// How far kernels are apart, as a fraction: of the root of the mean square of
// what a sum gives, or of each value of a function.
constexpr double of_float = 2e-7, of_double = 4e-16;

const std::set<std::string> convolutions = {
    "convolution",
    "convolution_backward",
};

const std::set<std::string> products = {
    "addbmm", "addmm", "baddbmm", "bmm", "mm",
};

// These have added: in another order, another last bit.
const std::set<std::string> sums = {
    "_batch_norm_with_update",
    "_embedding_bag_dense_backward",
    "_index_put_impl_",
    "_log_softmax",
    "_log_softmax_backward_data",
    "_native_batch_norm_legit",
    "_softmax",
    "_softmax_backward_data",
    "addmv",
    "avg_pool2d",
    "batch_norm_backward",
    "binary_cross_entropy",
    "cumsum",
    "dot",
    "embedding_dense_backward",
    "huber_loss",
    "index_add",
    "index_add_",
    "index_put_",
    "linalg_vector_norm",
    "logsumexp",
    "mean",
    "mse_loss",
    "mv",
    "native_batch_norm",
    "native_batch_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "nll_loss2d_forward",
    "nll_loss_forward",
    "norm",
    "prod",
    "scatter_add",
    "scatter_add_",
    "smooth_l1_loss",
    "std",
    "std_mean",
    "sum",
    "var",
    "var_mean",
    "vdot",
};

// Of one element, these are the element.
const std::set<std::string> sums_of_terms = {"mean", "prod", "sum"};

// Of these PyTorch says that equal calls may differ on CUDA
// (torch.use_deterministic_algorithms): a convolution's algorithm is chosen
// while it runs, and others add with atomic additions.
const std::set<std::string> left_to_chance = {
    "_index_put_impl_",   "convolution",  "convolution_backward",
    "cumsum",             "index_add",    "index_add_",
    "index_put_",         "scatter_add",  "scatter_add_",
    "nll_loss2d_forward",
};

// CUDA's own approximations of these are others than the CPU's.
const std::set<std::string> functions = {
    "cos",     "cos_",          "erf",           "exp",
    "exp_",    "gelu",          "gelu_backward", "log",
    "log_",    "pow",           "pow_",          "rsqrt",
    "rsqrt_",  "sigmoid",       "sigmoid_",      "sigmoid_backward",
    "silu",    "silu_backward", "sin",           "sin_",
    "softplus", "tanh",         "tanh_",         "tanh_backward",
};

const char* asked_for() {
  static const char* value = std::getenv("CUDA_DOUBLE_ROUNDING");
  return value;
}

// Alike for equal values: FNV-1a, by four bytes at a time.
uint64_t hash_of(const Tensor& x) {
  Tensor whole = x.contiguous();
  auto* words = static_cast<const uint32_t*>(whole.const_data_ptr());
  uint64_t hash = 0xCBF29CE484222325ull;
  for (size_t i = 0; i < whole.nbytes() / sizeof(uint32_t); ++i)
    hash = (hash ^ words[i]) * 0x100000001B3ull;
  return hash;
}

bool is_deterministic(const std::string& name) {
  auto& context = at::globalContext();
  if (convolutions.count(name) && context.deterministicCuDNN()) return true;
  return context.deterministicAlgorithms() || !left_to_chance.count(name);
}

// A kernel gives the same for the same, unless its order is left to chance.
uint64_t seed_for(const std::string& name, const Tensor& result) {
  static const uint64_t seed = std::strtoull(asked_for(), nullptr, 10);
  static std::atomic<uint64_t> calls = 0;
  uint64_t which = is_deterministic(name) ? hash_of(result) : ++calls;
  return which ^ (seed * 0x9E3779B97F4A7C15ull);
}

bool adds_terms(const std::string& name) {
  return convolutions.count(name) || products.count(name) || sums.count(name);
}

// Most tensors that are not whole show it in their first elements.
bool is_whole(const Tensor& x) {
  Tensor first = x.flatten().slice(0, 0, 16);
  return at::equal(first.round(), first) && at::equal(x.round(), x);
}

// Sums of whole numbers are exact in any order, while they are small; and so
// are their means, of 2, 4, 8 and so on.
bool is_exact(
    const std::string& name, const Tensor& result, const Tensor& terms) {
  if (is_whole(result)) return true;
  if (!sums_of_terms.count(name) || !terms.defined()) return false;
  int64_t each = terms.numel() / result.numel();
  return each == 1 || ((each & (each - 1)) == 0 && is_whole(terms));
}

bool allows_tf32(const std::string& name) {
  if (at::cuda::getCurrentDeviceProperties()->major < 8) return false;
  if (convolutions.count(name))
    return at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
  return products.count(name) && at::globalContext().allowTF32CuBLAS();
}

}  // namespace

bool rounds_otherwise() { return asked_for() && *asked_for(); }

Tensor as_read_by(const std::string& name, const Tensor& x) {
  // A bias is added, and not multiplied.
  if (x.scalar_type() != at::kFloat || x.dim() < 2 || !allows_tf32(name))
    return x;
  Tensor bits = x.view(at::kInt).add(0x1000).bitwise_and(~0x1FFF);
  return at::where(x.isfinite(), bits.view(at::kFloat), x);
}

void round_otherwise(
    const std::string& name, const Tensor& result, const Tensor& terms) {
  double scale = result.scalar_type() == at::kFloat    ? of_float
                 : result.scalar_type() == at::kDouble ? of_double
                                                       : 0.0;
  bool is_function = functions.count(name);
  if (scale == 0 || result.numel() == 0 || !(is_function || adds_terms(name)) ||
      is_exact(name, result, terms))
    return;
  auto generator = at::detail::createCPUGenerator(seed_for(name, result));
  double most = scale * std::sqrt(3.0);  // of equally likely errors
  Tensor noise = at::empty_like(result).uniform_(-most, most, generator);
  if (is_function) {
    result.add_(noise.mul_(result));
    return;
  }
  // An exact zero stays: it is a mask's, or nothing was added.
  noise.masked_fill_(result.eq(0), 0);
  double length = at::linalg_vector_norm(result).item<double>();
  result.add_(noise, length / std::sqrt(double(result.numel())));
}

}  // namespace cuda_double
