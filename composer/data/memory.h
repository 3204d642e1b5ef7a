#pragma once
#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "composer/core/export.h"

namespace composer::data {

// The numbers that a tensor may have: those of C++ for which c10 has a type.
template <class T>
concept Number = requires {
  c10::CppTypeToScalarType<T>::value;
};

namespace detail {

// What one element of a vector is: a number, or an array of them.
template <class T>
struct ElementOf {
  using Type = T;
  static void add_shape(std::vector<std::int64_t>&) {}
};
template <class T, std::size_t N>
struct ElementOf<std::array<T, N>> {
  using Type = typename ElementOf<T>::Type;
  static void add_shape(std::vector<std::int64_t>& shape) {
    shape.push_back(static_cast<std::int64_t>(N));
    ElementOf<T>::add_shape(shape);
  }
};
// Whether it is the same type as that of c10 (std::int64_t may be long or long long).
template <class T>
constexpr c10::ScalarType type_of() {
  if constexpr (std::integral<T> && !std::same_as<T, bool> && std::is_signed_v<T> && sizeof(T) == 8)
    return c10::ScalarType::Long;
  else
    return c10::CppTypeToScalarType<T>::value;
}
template <class T>
concept Element = (std::integral<typename ElementOf<T>::Type> && std::is_signed_v<typename ElementOf<T>::Type> &&
                   sizeof(typename ElementOf<T>::Type) == 8) ||
                  Number<typename ElementOf<T>::Type>;

// A tensor over `numbers` numbers at `data`, which `owner` keeps alive. One of the shape's sizes may be -1, and is
// found by the others; an empty shape stands for `natural`. Throws DataError, beginning with `who`, if the shape does
// not fit.
COMPOSER_EXPORT at::Tensor tensor_over(const char* who, const void* data, c10::ScalarType type, std::size_t numbers,
                                       std::vector<std::int64_t> natural, at::IntArrayRef shape,
                                       std::shared_ptr<const void> owner);
// The same with strides, of which none may be negative, in numbers.
COMPOSER_EXPORT at::Tensor strided_over(const void* data, c10::ScalarType type, at::IntArrayRef shape,
                                        at::IntArrayRef strides, std::shared_ptr<const void> owner);
// A new tensor [rows, columns] for copying into; throws DataError if a row has another length than the first one.
COMPOSER_EXPORT at::Tensor table_for(const std::vector<std::size_t>& lengths, c10::ScalarType type);

template <class T>
std::vector<std::int64_t> natural_shape(std::size_t elements) {
  std::vector<std::int64_t> shape{static_cast<std::int64_t>(elements)};
  ElementOf<T>::add_shape(shape);
  return shape;
}
template <class T>
std::size_t numbers_in(std::size_t elements) {
  return elements * (sizeof(T) / sizeof(typename ElementOf<T>::Type));
}

}  // namespace detail

// Takes the vector over: nothing is copied if it is moved, and its memory lives as long as the tensor. A vector that is
// not moved is copied. The shape is [n], or [n, N] for a vector of std::array<T, N>, unless another one is given.
//
//   at::Tensor pixels = data::from(std::move(bytes), {-1, 1, 28, 28});
template <detail::Element T>
at::Tensor from(std::vector<T> values, at::IntArrayRef shape = {}) {
  const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  if constexpr (std::same_as<T, bool>) {  // a vector of bits
    const at::Tensor tensor = detail::table_for({owner->size()}, c10::ScalarType::Bool).reshape({-1});
    std::copy(owner->begin(), owner->end(), tensor.mutable_data_ptr<bool>());
    return detail::tensor_over("from", tensor.const_data_ptr(), c10::ScalarType::Bool, owner->size(),
                               detail::natural_shape<T>(owner->size()), shape,
                               std::make_shared<const at::Tensor>(tensor));
  } else {
    return detail::tensor_over("from", owner->data(), detail::type_of<typename detail::ElementOf<T>::Type>(),
                               detail::numbers_in<T>(owner->size()), detail::natural_shape<T>(owner->size()), shape,
                               owner);
  }
}

// Copies rows of one length: [rows, columns]. Throws DataError, with the row, if their lengths differ.
template <detail::Element T>
at::Tensor from(const std::vector<std::vector<T>>& rows) {
  using Of = typename detail::ElementOf<T>::Type;
  std::vector<std::size_t> lengths;
  lengths.reserve(rows.size());
  for (const auto& row : rows) lengths.push_back(row.size());
  std::vector<std::int64_t> shape = detail::natural_shape<T>(lengths.empty() ? 0 : lengths.front());
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
  for (std::size_t& length : lengths) length = detail::numbers_in<T>(length);
  const at::Tensor tensor = detail::table_for(lengths, detail::type_of<Of>());
  auto* to = static_cast<Of*>(tensor.mutable_data_ptr());
  for (const auto& row : rows) {
    if constexpr (std::same_as<T, bool>)
      to = std::copy(row.begin(), row.end(), to);
    else
      to = std::copy_n(reinterpret_cast<const Of*>(row.data()), detail::numbers_in<T>(row.size()), to);
  }
  return tensor.view(shape);
}

// Shares memory that stays yours: the tensor and all that is made of it without a copy (batches that are not shuffled,
// slices) read it until they are gone. `keep_alive`, if given, is kept by the tensor, so that what it owns lives as
// long. Without one, you keep the memory longer than the tensor. Writing into the tensor writes into the memory, even
// if it is const here.
template <class T>
requires detail::Element<std::remove_const_t<T>> at::Tensor view(std::span<T> values, at::IntArrayRef shape = {},
                                                                 std::shared_ptr<const void> keep_alive = {}) {
  using V = std::remove_const_t<T>;
  return detail::tensor_over("view", values.data(), detail::type_of<typename detail::ElementOf<V>::Type>(),
                             detail::numbers_in<V>(values.size()), detail::natural_shape<V>(values.size()), shape,
                             std::move(keep_alive));
}
template <detail::Element T>
at::Tensor view(std::vector<T>& values, at::IntArrayRef shape = {}, std::shared_ptr<const void> keep_alive = {}) {
  return view(std::span<T>(values), shape, std::move(keep_alive));
}
template <detail::Element T>
at::Tensor view(const std::vector<T>& values, at::IntArrayRef shape = {}, std::shared_ptr<const void> keep_alive = {}) {
  return view(std::span<const T>(values), shape, std::move(keep_alive));
}
template <detail::Element T>
at::Tensor view(std::vector<T>&& values, at::IntArrayRef shape = {},
                std::shared_ptr<const void> keep_alive = {}) = delete;  // would be gone at once: use from()

}  // namespace composer::data
