// mkldnn_rnn_layer, which torch::nn::LSTM calls on a CPU for each layer and direction, and mkldnn_rnn_layer_backward.
#include <array>
#include <optional>
#include <tuple>

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mkldnn_rnn_layer_backward_ops.h>
#include <ATen/ops/mkldnn_rnn_layer_ops.h>
#include <c10/core/TensorImpl.h>
#include <torch/library.h>

#include "composer/kernels/dispatch.h"
#include "composer/kernels/gemm.h"
#include "composer/kernels/lstm.h"

namespace composer::kernels {
namespace {

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Seven = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

constexpr std::int64_t kLstm = 2;  // of libtorch's modes

bool has_sizes(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return is_plain(tensor, static_cast<std::int64_t>(sizes.size())) && tensor.sizes() == sizes;
}

// nothing: not for us
std::optional<LstmSizes> sizes_of(const at::Tensor& input, const at::Tensor& w_ih, const at::Tensor& w_hh,
                                  const at::Tensor& hx, const at::Tensor& cx) {
  if (!is_plain(input, 3) || !is_plain(hx, 2)) return {};
  const LstmSizes s{.steps = input.size(0), .samples = input.size(1), .inputs = input.size(2), .hidden = hx.size(1)};
  if (s.steps < 1 || s.samples < 1 || s.inputs < 1 || s.hidden < 1) return {};
  if (!has_sizes(w_ih, {4 * s.hidden, s.inputs}) || !has_sizes(w_hh, {4 * s.hidden, s.hidden}) ||
      !has_sizes(hx, {s.samples, s.hidden}) || !has_sizes(cx, {s.samples, s.hidden}))
    return {};
  return s;
}

// The operands, which are copied if they are not contiguous.
struct Tensors {
  at::Tensor input, w_ih, w_hh, hx, cx;
  bool reverse;
  LstmOperands operands() const {
    const auto data = [](const at::Tensor& tensor) { return tensor.const_data_ptr<float>(); };
    return {.input = data(input),
            .w_ih = data(w_ih),
            .w_hh = data(w_hh),
            .hx = data(hx),
            .cx = data(cx),
            .reverse = reverse};
  }
};

at::Tensor empty(at::IntArrayRef sizes) { return at::detail::empty_cpu(sizes, at::TensorOptions(at::kFloat)); }
float* data(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr; }

// The workspace tensor. It has the dispatch key, so that an operator that gets it comes to this library's kernel within
// any scope or none. It is of floats, so that oneDNN, whose workspace consists of bytes, rejects a copy without the
// key.
at::Tensor workspace(const LstmSizes& sizes) {
  const std::int64_t floats = lstm_workspace_floats(sizes);
  const at::Tensor plain = empty({floats});
  at::Tensor marked = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(plain.storage()), plain.key_set() | c10::DispatchKeySet(kKey), plain.dtype());
  marked.unsafeGetTensorImpl()->set_sizes_contiguous({floats});
  return marked;
}

bool is_ours(const at::Tensor& workspace) {
  return workspace.defined() && workspace.key_set().has(kKey) && workspace.scalar_type() == at::kFloat;
}

// NOLINTNEXTLINE(readability-function-size): the operator's parameters
Four lstm_operator_forward(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight0,
                           const at::Tensor& weight1, const at::Tensor& weight2, const at::Tensor& weight3,
                           const at::Tensor& hx, const at::Tensor& cx, bool reverse, at::IntArrayRef batch_sizes,
                           std::int64_t mode, std::int64_t hidden_size, std::int64_t num_layers, bool has_biases,
                           bool bidirectional, bool batch_first, bool train) {
  const auto sizes = is_in_scope() && has_gemm() && mode == kLstm && batch_sizes.empty()
                         ? sizes_of(input, weight0, weight1, hx, cx)
                         : std::nullopt;
  const auto is_bias = [&](const at::Tensor& bias) { return has_sizes(bias, {4 * sizes->hidden}); };
  if (!sizes || hidden_size != sizes->hidden || (has_biases && (!is_bias(weight2) || !is_bias(weight3))) ||
      !is_chosen(lstm_shape(sizes->steps, sizes->samples, sizes->hidden, sizes->inputs)))
    return leave<at::_ops::mkldnn_rnn_layer>(keys, input, weight0, weight1, weight2, weight3, hx, cx, reverse,
                                             batch_sizes, mode, hidden_size, num_layers, has_biases, bidirectional,
                                             batch_first, train);
  const Tensors tensors{.input = input.contiguous(),
                        .w_ih = weight0.contiguous(),
                        .w_hh = weight1.contiguous(),
                        .hx = hx.contiguous(),
                        .cx = cx.contiguous(),
                        .reverse = reverse};
  at::Tensor bias;
  if (has_biases) {
    bias = empty({4 * sizes->hidden});
    const at::Tensor of_input = weight2.contiguous(), of_hidden = weight3.contiguous();
    for (std::int64_t i = 0; i < bias.numel(); ++i)
      data(bias)[i] = of_input.const_data_ptr<float>()[i] + of_hidden.const_data_ptr<float>()[i];
  }
  at::Tensor output = empty({sizes->steps, sizes->samples, sizes->hidden}), hy = empty({sizes->samples, sizes->hidden}),
             cy = empty({sizes->samples, sizes->hidden});
  at::Tensor kept = at::GradMode::is_enabled() ? workspace(*sizes) : at::Tensor();
  lstm_forward(*sizes, tensors.operands(), data(bias),
               {.output = data(output), .hy = data(hy), .cy = data(cy), .workspace = data(kept)});
  return {std::move(output), std::move(hy), std::move(cy), std::move(kept)};
}

// NOLINTNEXTLINE(readability-function-size): likewise
Seven lstm_operator_backward(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight1,
                             const at::Tensor& weight2, const at::Tensor& weight3, const at::Tensor& weight4,
                             const at::Tensor& hx, const at::Tensor& cx, const at::Tensor& output, const at::Tensor& hy,
                             const at::Tensor& cy, const std::optional<at::Tensor>& grad_output,
                             const std::optional<at::Tensor>& grad_hy, const std::optional<at::Tensor>& grad_cy,
                             bool reverse, std::int64_t mode, std::int64_t hidden_size, std::int64_t num_layers,
                             bool has_biases, bool train, bool bidirectional, at::IntArrayRef batch_sizes,
                             bool batch_first, const at::Tensor& workspace) {
  if (!is_ours(workspace))
    return leave<at::_ops::mkldnn_rnn_layer_backward>(
        keys, input, weight1, weight2, weight3, weight4, hx, cx, output, hy, cy, grad_output, grad_hy, grad_cy, reverse,
        mode, hidden_size, num_layers, has_biases, train, bidirectional, batch_sizes, batch_first, workspace);
  const auto given = [](const std::optional<at::Tensor>& gradient) {
    return gradient && gradient->defined() ? gradient->contiguous() : at::Tensor();
  };
  const std::array<at::Tensor, 3> gradients = {given(grad_output), given(grad_hy), given(grad_cy)};
  if (!gradients[0].defined() && !gradients[1].defined() && !gradients[2].defined()) return {};
  const auto sizes = sizes_of(input, weight1, weight2, hx, cx);
  TORCH_CHECK(sizes && workspace.numel() == lstm_workspace_floats(*sizes),
              "mkldnn_rnn_layer_backward: the workspace is not that of these operands");
  const at::IntArrayRef of_state = hx.sizes();
  TORCH_CHECK(has_sizes(output, {sizes->steps, sizes->samples, sizes->hidden}) &&
                  (!gradients[0].defined() || has_sizes(gradients[0], output.sizes())) &&
                  (!gradients[1].defined() || has_sizes(gradients[1], of_state)) &&
                  (!gradients[2].defined() || has_sizes(gradients[2], of_state)),
              "mkldnn_rnn_layer_backward: a gradient does not have the shape of its tensor, or is not dense float");
  const Tensors tensors{.input = input.contiguous(),
                        .w_ih = weight1.contiguous(),
                        .w_hh = weight2.contiguous(),
                        .hx = hx.contiguous(),
                        .cx = cx.contiguous(),
                        .reverse = reverse};
  const at::Tensor outputs = output.contiguous();
  // In backward, autograd's saved inputs say whether their gradients are needed.
  at::Tensor d_input = input.requires_grad() ? empty(input.sizes()) : at::Tensor();
  at::Tensor d_ih = empty(weight1.sizes()), d_hh = empty(weight2.sizes()), d_hx = empty(of_state),
             d_cx = empty(of_state);
  at::Tensor d_bias = has_biases ? empty({4 * sizes->hidden}) : at::Tensor();
  const auto read = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
  };
  lstm_backward(*sizes, tensors.operands(), read(outputs), read(workspace),
                {.output = read(gradients[0]), .hy = read(gradients[1]), .cy = read(gradients[2])},
                {.input = data(d_input),
                 .w_ih = data(d_ih),
                 .w_hh = data(d_hh),
                 .bias = data(d_bias),
                 .hx = data(d_hx),
                 .cx = data(d_cx)});
  at::Tensor d_bias_too = has_biases ? d_bias.clone() : at::Tensor();
  return {std::move(d_input),    std::move(d_ih), std::move(d_hh), std::move(d_bias),
          std::move(d_bias_too), std::move(d_hx), std::move(d_cx)};
}

}  // namespace

void replace_lstm(torch::Library& aten) {
  aten.impl("mkldnn_rnn_layer", TORCH_FN(lstm_operator_forward));
  aten.impl("mkldnn_rnn_layer_backward", TORCH_FN(lstm_operator_backward));
}

}  // namespace composer::kernels
