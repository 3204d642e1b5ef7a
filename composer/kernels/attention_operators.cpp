// Replaces _scaled_dot_product_flash_attention_for_cpu, which scaled_dot_product_attention calls on a CPU, and its
// backward.
#include <cmath>
#include <optional>
#include <tuple>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "composer/kernels/attention.h"
#include "composer/kernels/dispatch.h"
#include "composer/kernels/gemm.h"

namespace composer::kernels {
namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor with_adjacent_columns(const at::Tensor& tensor) {
  return tensor.stride(3) == 1 || tensor.size(3) == 1 ? tensor : tensor.contiguous();
}

template <class Rows, class Data>
Rows rows_of(const at::Tensor& tensor, Data* data) {
  return {.data = data, .batch = tensor.stride(0), .head = tensor.stride(1), .row = tensor.stride(2)};
}
ConstHeadRows read(const at::Tensor& tensor) { return rows_of<ConstHeadRows>(tensor, tensor.const_data_ptr<float>()); }
HeadRows written(const at::Tensor& tensor) { return rows_of<HeadRows>(tensor, tensor.mutable_data_ptr<float>()); }

// An empty tensor [batch, heads, rows, depth], in which the heads of a row are adjacent.
at::Tensor empty_heads(at::IntArrayRef sizes) {
  const at::Tensor rows =
      at::detail::empty_cpu({sizes[0], sizes[2], sizes[1], sizes[3]}, at::TensorOptions(at::kFloat));
  return rows.transpose(1, 2);
}

// The operands. They are copied if the numbers of a row are not adjacent.
struct Operands {
  at::Tensor query, key, value;
  bool causal;
  double scale;

  ProductShape shape() const {
    return attention_shape(query.size(0) * query.size(1), query.size(2), key.size(2), query.size(3), causal);
  }
  Attention attention() const {
    return {.batch = query.size(0),
            .heads = query.size(1),
            .queries = query.size(2),
            .keys = key.size(2),
            .depth = query.size(3),
            .causal = causal,
            .scale = static_cast<float>(scale),
            .q = read(query),
            .k = read(key),
            .v = read(value)};
  }
};

// nullopt: this library's kernels do not support these operands
std::optional<Operands> operands(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 double dropout_p, bool is_causal, const std::optional<at::Tensor>& attn_mask,
                                 std::optional<double> scale) {
  if (!is_in_scope() || !has_gemm() || dropout_p != 0 || (attn_mask && attn_mask->defined())) return {};
  if (!is_plain(query, 4) || !is_plain(key, 4) || !is_plain(value, 4)) return {};
  if (query.numel() == 0 || key.numel() == 0 || query.size(3) > kDepth || key.sizes() != value.sizes()) return {};
  for (const std::int64_t dim : {0, 1, 3})
    if (query.size(dim) != key.size(dim)) return {};
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  if (!std::isfinite(factor)) return {};
  return Operands{.query = query, .key = key, .value = value, .causal = is_causal, .scale = factor};
}

Operands readable(const Operands& given) {
  Operands made = given;
  for (at::Tensor* tensor : {&made.query, &made.key, &made.value}) *tensor = with_adjacent_columns(*tensor);
  return made;
}

// NOLINTNEXTLINE(readability-function-size): the operator's parameters
Two attention_operator_forward(c10::DispatchKeySet keys, const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value, double dropout_p, bool is_causal,
                               const std::optional<at::Tensor>& attn_mask, std::optional<double> scale) {
  const auto given = operands(query, key, value, dropout_p, is_causal, attn_mask, scale);
  if (!given || !is_chosen(given->shape()))
    return leave<at::_ops::_scaled_dot_product_flash_attention_for_cpu>(keys, query, key, value, dropout_p, is_causal,
                                                                        attn_mask, scale);
  const Operands made = readable(*given);
  // With the strides that libtorch would give, because code may rely on them.
  at::Tensor output = at::empty_like(query);
  const at::Tensor computed = output.stride(3) == 1 || output.size(3) == 1 ? output : empty_heads(query.sizes());
  const at::Tensor logsumexp = empty_heads({query.size(0), query.size(1), query.size(2), 1});
  attention_forward(made.attention(), written(computed), written(logsumexp));
  if (!computed.is_same(output)) output.copy_(computed);
  return {std::move(output), logsumexp.squeeze(3)};
}

// NOLINTNEXTLINE(readability-function-size): the operator's parameters
Three attention_operator_backward(c10::DispatchKeySet keys, const at::Tensor& grad_out, const at::Tensor& query,
                                  const at::Tensor& key, const at::Tensor& value, const at::Tensor& out,
                                  const at::Tensor& logsumexp, double dropout_p, bool is_causal,
                                  const std::optional<at::Tensor>& attn_mask, std::optional<double> scale) {
  const auto given = operands(query, key, value, dropout_p, is_causal, attn_mask, scale);
  const auto is_result = [&](const at::Tensor& tensor) {
    return is_plain(tensor, 4) && tensor.sizes() == query.sizes();
  };
  if (!given || !is_result(grad_out) || !is_result(out) || !is_plain(logsumexp, 3) ||
      logsumexp.sizes() != query.sizes().slice(0, 3) || !is_own(given->shape()))
    return leave<at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward>(
        keys, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale);
  const Operands made = readable(*given);
  const at::Tensor output = with_adjacent_columns(out), d_output = with_adjacent_columns(grad_out);
  at::Tensor d_query = empty_heads(query.sizes()), d_key = empty_heads(key.sizes()),
             d_value = empty_heads(value.sizes());
  attention_backward(made.attention(), read(output), read(logsumexp.unsqueeze(3)), read(d_output),
                     {.q = written(d_query), .k = written(d_key), .v = written(d_value)});
  return {std::move(d_query), std::move(d_key), std::move(d_value)};
}

}  // namespace

void replace_attention(torch::Library& aten) {
  aten.impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(attention_operator_forward));
  aten.impl("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(attention_operator_backward));
}

}  // namespace composer::kernels
