#pragma once
// Tensors of Eigen's matrices, vectors, maps and blocks. Include Eigen's header before or after; this one needs none.
#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/data/memory.h"

namespace composer::data {

// What has its numbers in memory: a Matrix, Array, Map, Ref or block. A product or sum has to be evaluated first:
// from((a * b).eval()).
template <class M>
concept EigenMatrix = requires(const M& matrix) {
  typename M::Scalar;
  { M::IsRowMajor } -> std::convertible_to<bool>;
  { M::IsVectorAtCompileTime } -> std::convertible_to<bool>;
  { matrix.rows() } -> std::integral;
  { matrix.cols() } -> std::integral;
  { matrix.innerStride() } -> std::integral;
  { matrix.outerStride() } -> std::integral;
  { matrix.data() } -> std::convertible_to<const typename M::Scalar*>;
}
&&detail::Element<typename M::Scalar>;

// Shares the matrix's memory: [rows, cols], or [n] of a vector, in Eigen's order by strides. What view() of
// composer/data/memory.h says of lifetimes holds here as well.
template <EigenMatrix M>
at::Tensor view(const M& matrix, std::shared_ptr<const void> keep_alive = {}) {
  const auto rows = static_cast<std::int64_t>(matrix.rows()), cols = static_cast<std::int64_t>(matrix.cols());
  const auto inner = static_cast<std::int64_t>(matrix.innerStride());
  const auto outer = static_cast<std::int64_t>(matrix.outerStride());
  constexpr auto type = detail::type_of<typename M::Scalar>();
  if constexpr (M::IsVectorAtCompileTime) {
    return detail::strided_over(matrix.data(), type, {rows * cols}, {inner}, std::move(keep_alive));
  } else {
    return detail::strided_over(matrix.data(), type, {rows, cols},
                                M::IsRowMajor ? at::IntArrayRef{outer, inner} : at::IntArrayRef{inner, outer},
                                std::move(keep_alive));
  }
}

// A Matrix or Array that is gone after the call: use from(). Maps, Refs and blocks name the memory of others.
template <class M>
requires EigenMatrix<M> && std::same_as<typename M::PlainObject, M> at::Tensor view(
    M&& matrix, std::shared_ptr<const void> keep_alive = {})
= delete;

// A tensor of its own, in the order of rows: [rows, cols], or [n] of a vector. Copies, whatever the order in Eigen.
template <EigenMatrix M>
at::Tensor from(const M& matrix) {
  return view(matrix).clone(at::MemoryFormat::Contiguous);
}

}  // namespace composer::data
