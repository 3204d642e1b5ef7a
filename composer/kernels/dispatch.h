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

// Above the kernels of the CPU and below autograd, with nothing registered by libtorch. The keys of backends beside it
// do not serve: for them libtorch registers decomposed forms of some 400 operators, which precede a fallback.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

// What the program would do without a scope, also for the operators that libtorch makes of this one (of a batch of
// products, for example).
template <class Operator, class... Args>
decltype(auto) leave(c10::DispatchKeySet keys, Args&&... args) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  return Operator::redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey),
                              std::forward<Args>(args)...);
}

// Dense numbers of this type on the CPU with `dim` dimensions. By its keys, because nested tensors and those of other
// libraries look like dense ones otherwise.
bool is_plain(const at::Tensor& tensor, std::int64_t dim, at::ScalarType type = at::kFloat);

// Whether a ProductScope or a ProductRecorder is open on this thread.
bool is_in_scope();
// Whether the innermost scope's table says so; also notes the shape.
bool is_chosen(const ProductShape& shape);

// Likewise, without noting it.
bool is_own(const ProductShape& shape);

// mkldnn_rnn_layer and its backward operator.
void replace_lstm(torch::Library& aten);
// _scaled_dot_product_flash_attention_for_cpu and its backward operator.
void replace_attention(torch::Library& aten);

}  // namespace composer::kernels
