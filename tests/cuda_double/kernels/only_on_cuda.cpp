// Operators that PyTorch has for CUDA and not for the CPU, each written with
// others that it has for both.
//
// Shapes: N examples, C channels, H hidden units, W ranks.
#include "only_on_cuda.h"

#include <array>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <torch/library.h>

namespace cuda_double {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Tensors2 = std::tuple<Tensor, Tensor>;
using Tensors3 = std::tuple<Tensor, Tensor, Tensor>;
using Tensors4 = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Tensors5 = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

bool is_given(const OptionalTensor& x) { return x && x->defined(); }

// Sums for statistics are kept in float32, at least.
Tensor in_float(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

// --- batch normalization in its parts, as SyncBatchNorm takes it -----------

// All axes of (N, C, ...) but that of the channels.
std::vector<int64_t> axes_but_channels(const Tensor& x) {
  std::vector<int64_t> axes = {0};
  for (int64_t axis = 2; axis < x.dim(); ++axis) axes.push_back(axis);
  return axes;
}

// (C,) as (1, C, 1, ...), to go with x of shape (N, C, ...).
Tensor by_channel(const Tensor& per_channel, const Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = x.size(1);
  return per_channel.view(shape);
}

Tensors2 stats(const Tensor& x, double eps) {
  auto axes = axes_but_channels(x);
  Tensor mean = in_float(x).mean(axes);
  Tensor variance = in_float(x).var(axes, /*unbiased=*/false);
  return {mean, (variance + eps).rsqrt()};
}

// means, invstds: (W, C); counts: (W,), examples times pixels of each rank.
Tensors2 gather_stats_with_counts(
    const Tensor& x, const Tensor& means, const Tensor& invstds,
    const OptionalTensor& running_mean, const OptionalTensor& running_var,
    double momentum, double eps, const Tensor& counts) {
  Tensor weights = counts.to(means.dtype()).unsqueeze(1);  // (W, 1)
  Tensor total = weights.sum();
  Tensor variances = invstds.pow(-2) - eps;
  Tensor mean = (weights * means).sum(0) / total;
  Tensor squares = weights * (variances + (means - mean).pow(2));
  Tensor variance = squares.sum(0) / total;
  if (is_given(running_mean))
    running_mean->mul_(1 - momentum).add_(mean, momentum);
  if (is_given(running_var))
    running_var->mul_(1 - momentum)
        .add_(variance * total / (total - 1), momentum);
  return {mean, (variance + eps).rsqrt()};
}

Tensors2 gather_stats(
    const Tensor& x, const Tensor& means, const Tensor& invstds,
    const OptionalTensor& running_mean, const OptionalTensor& running_var,
    double momentum, double eps, int64_t count) {
  Tensor counts = at::full({means.size(0)}, count, means.options());
  return gather_stats_with_counts(
      x, means, invstds, running_mean, running_var, momentum, eps, counts);
}

Tensor elemt(
    const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
    const Tensor& mean, const Tensor& invstd, double) {
  Tensor y = (x - by_channel(mean, x)) * by_channel(invstd, x);
  if (is_given(weight)) y = y * by_channel(*weight, x);
  if (is_given(bias)) y = y + by_channel(*bias, x);
  return y.to(x.dtype());
}

// Returns sum dy, sum dy (x - mean), and the gradients of weight and bias.
Tensors4 backward_reduce(
    const Tensor& dy, const Tensor& x, const Tensor& mean,
    const Tensor& invstd, const OptionalTensor&, bool, bool weight_g,
    bool bias_g) {
  auto axes = axes_but_channels(x);
  Tensor sum_dy = in_float(dy).sum(axes);
  Tensor centred = in_float(x) - by_channel(mean, x);
  Tensor sum_dy_centred = (in_float(dy) * centred).sum(axes);
  Tensor d_weight, d_bias;
  if (weight_g) d_weight = sum_dy_centred * invstd;
  if (bias_g) d_bias = sum_dy.clone();
  return {sum_dy, sum_dy_centred, d_weight, d_bias};
}

Tensor backward_elemt(
    const Tensor& dy, const Tensor& x, const Tensor& mean,
    const Tensor& invstd, const OptionalTensor& weight, const Tensor& sum_dy,
    const Tensor& sum_dy_centred, const Tensor& counts) {
  Tensor total = counts.to(mean.dtype()).sum();
  Tensor centred = x - by_channel(mean, x);
  Tensor slope = invstd.pow(2) * sum_dy_centred / total;
  Tensor dx = dy - by_channel(sum_dy / total, x) -
              centred * by_channel(slope, x);
  dx = dx * by_channel(invstd, x);
  if (is_given(weight)) dx = dx * by_channel(*weight, x);
  return dx.to(x.dtype());
}

// --- the gradients of RMSNorm ----------------------------------------------

// y = x * rstd * weight, where rstd is 1 / sqrt(mean of x^2 + eps) over the
// last axes, as many as the shape has. rstd has length 1 along these.
Tensors2 rms_norm_backward(
    const Tensor& dy, const Tensor& x, at::IntArrayRef shape,
    const Tensor& rstd, const OptionalTensor& weight,
    std::array<bool, 2> wanted) {
  int64_t rows = x.dim() - static_cast<int64_t>(shape.size());
  std::vector<int64_t> outer, inner;
  for (int64_t axis = 0; axis < x.dim(); ++axis)
    (axis < rows ? outer : inner).push_back(axis);
  Tensor normed = in_float(x) * rstd;
  Tensor d_normed = in_float(dy);
  Tensor d_weight = d_normed * normed;
  if (is_given(weight)) d_normed = d_normed * in_float(*weight);
  Tensor slope = (d_normed * normed).mean(inner, /*keepdim=*/true);
  Tensor dx = rstd * (d_normed - normed * slope);
  if (!outer.empty()) d_weight = d_weight.sum(outer);
  return {
      wanted[0] ? dx.to(x.dtype()) : Tensor(),
      wanted[1] && is_given(weight) ? d_weight.to(weight->dtype()) : Tensor()};
}

// --- dropout ---------------------------------------------------------------

Tensors2 dropout(
    const Tensor& x, double p, std::optional<bool> train) {
  if (train.has_value() && !*train)
    return {x.clone(), at::ones_like(x, x.options().dtype(at::kBool))};
  Tensor mask = at::empty_like(x, x.options().dtype(at::kBool));
  mask.bernoulli_(1 - p);
  double scale = p == 1 ? 0 : 1 / (1 - p);
  return {x * mask * scale, mask};
}

// --- cells of recurrent networks -------------------------------------------

Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) {
  return is_given(bias) ? gates + *bias : gates;
}

// Gates (N, 4H) in the order input, forget, cell, output.
Tensors3 fused_lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  Tensor gates = with_bias(input_gates, input_bias) +
                 with_bias(hidden_gates, hidden_bias);
  auto parts = gates.chunk(4, 1);
  Tensor i = parts[0].sigmoid(), f = parts[1].sigmoid();
  Tensor g = parts[2].tanh(), o = parts[3].sigmoid();
  Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}

Tensors3 fused_lstm_cell_backward(
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
    const Tensor& cx, const Tensor& cy, const Tensor& workspace,
    bool has_bias) {
  auto parts = workspace.chunk(4, 1);
  Tensor i = parts[0], f = parts[1], g = parts[2], o = parts[3];
  Tensor dh = is_given(grad_hy) ? *grad_hy : at::zeros_like(cx);
  Tensor dc = is_given(grad_cy) ? *grad_cy : at::zeros_like(cx);
  Tensor tanh_cy = cy.tanh();
  dc = dc + dh * o * (1 - tanh_cy.pow(2));
  Tensor d_gates = at::cat(
      {dc * g * i * (1 - i),
       dc * cx * f * (1 - f),
       dc * i * (1 - g.pow(2)),
       dh * tanh_cy * o * (1 - o)},
      1);
  Tensor d_bias = has_bias ? d_gates.sum(0) : Tensor();
  return {d_gates, dc * f, d_bias};
}

// Gates (N, 3H) in the order reset, update, new.
Tensors2 fused_gru_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  Tensor r = (from_input[0] + from_hidden[0]).sigmoid();
  Tensor z = (from_input[1] + from_hidden[1]).sigmoid();
  Tensor n = (from_input[2] + r * from_hidden[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, from_hidden[2]}, 1)};
}

Tensors5 fused_gru_cell_backward(
    const Tensor& dh, const Tensor& workspace, bool has_bias) {
  auto parts = workspace.chunk(5, 1);
  Tensor r = parts[0], z = parts[1], n = parts[2], hx = parts[3];
  Tensor from_hidden = parts[4];
  Tensor dn = dh * (1 - z) * (1 - n.pow(2));
  Tensor dz = dh * (hx - n) * z * (1 - z);
  Tensor dr = dn * from_hidden * r * (1 - r);
  Tensor d_input = at::cat({dr, dz, dn}, 1);
  Tensor d_hidden = at::cat({dr, dz, dn * r}, 1);
  Tensor none;
  return {
      d_input, d_hidden, dh * z, has_bias ? d_input.sum(0) : none,
      has_bias ? d_hidden.sum(0) : none};
}

}  // namespace

void register_only_on_cuda(torch::Library& library) {
  library.impl("batch_norm_stats", &stats);
  library.impl(
      "batch_norm_gather_stats_with_counts",
      &gather_stats_with_counts);
  library.impl("batch_norm_gather_stats", &gather_stats);
  library.impl("batch_norm_elemt", &elemt);
  library.impl("batch_norm_backward_reduce", &backward_reduce);
  library.impl("batch_norm_backward_elemt", &backward_elemt);
  library.impl("_fused_rms_norm_backward", &rms_norm_backward);
  library.impl("native_dropout", &dropout);
  library.impl("_thnn_fused_lstm_cell", &fused_lstm_cell);
  library.impl(
      "_thnn_fused_lstm_cell_backward_impl", &fused_lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", &fused_gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", &fused_gru_cell_backward);
}

}  // namespace cuda_double
