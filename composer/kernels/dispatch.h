#pragma once
// The dispatch key at which operators of libtorch are replaced. Internal.
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "composer/kernels/products.h"

namespace torch {
class Library;
}

namespace composer::kernels {

// This key is above the CPU's kernels and below autograd, and libtorch registers nothing for it. The neighbouring
// backend keys cannot be used: libtorch registers decompositions of some 400 operators for them, which take precedence
// over a fallback.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

// Calls the operator as without a scope. This also holds for operators that libtorch calls in turn (for a batch of
// products, for example).
template <class Operator, class... Args>
decltype(auto) leave(c10::DispatchKeySet keys, Args&&... args) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  return Operator::redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey),
                              std::forward<Args>(args)...);
}

// Whether the tensor is dense and on the CPU, with this dtype and `dim` dimensions. Checks its dispatch keys, because
// nested tensors and those of other libraries otherwise look dense.
bool is_plain(const at::Tensor& tensor, std::int64_t dim, at::ScalarType type = at::kFloat);

// Whether a ProductScope or a ProductRecorder is open on this thread.
bool is_in_scope();
// Whether the table of the innermost scope selects this library's kernel. Also notes the shape for recorders.
bool is_chosen(const ProductShape& shape);

// Like is_chosen(), but notes nothing.
bool is_own(const ProductShape& shape);

// Replaces mkldnn_rnn_layer and its backward operator.
void replace_lstm(torch::Library& aten);
// Replaces _scaled_dot_product_flash_attention_for_cpu and its backward operator.
void replace_attention(torch::Library& aten);

}  // namespace composer::kernels
