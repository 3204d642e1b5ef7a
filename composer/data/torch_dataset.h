#pragma once
// Data sets of torch::data, without its headers.
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/data/map_style.h"

namespace composer::data {

namespace detail {

// The example with this index, by get(index) or, as of a data set after map(), by get_batch({index}).
template <class D>
concept HasExamples = requires(D& dataset, std::size_t index) {
  dataset.get(index);
}
|| requires(D& dataset, std::size_t index) { dataset.get_batch(std::vector<std::size_t>{index}); };
template <HasExamples D>
auto example_of(D& dataset, std::size_t index) {
  if constexpr (requires { dataset.get(index); }) {
    return dataset.get(index);
  } else {
    auto batch = dataset.get_batch(std::vector<std::size_t>{index});
    if (batch.size() != 1) throw DataError("adapt: get_batch() of 1 index returned ", batch.size(), " examples");
    return std::move(batch.front());
  }
}

// torch::data's size() may be a std::optional.
template <class D>
std::int64_t size_of(const D& dataset) {
  if constexpr (requires { dataset.size().value_or(0); }) {
    const auto size = dataset.size();
    if (!size) throw DataError("adapt: the data set does not know its size");
    return static_cast<std::int64_t>(*size);
  } else {
    return static_cast<std::int64_t>(dataset.size());
  }
}

COMPOSER_EXPORT at::Tensor scalar_of(double value);
COMPOSER_EXPORT at::Tensor scalar_of(std::int64_t value);

template <class T>
at::Tensor tensor_of(T value) {
  if constexpr (std::integral<T>)
    return scalar_of(static_cast<std::int64_t>(value));
  else if constexpr (std::floating_point<T>)
    return scalar_of(static_cast<double>(value));
  else
    return value;
}

}  // namespace detail

// A data set of torch::data with random access, as it is or after map() with transforms of single examples: its samples
// have the data as "input" and the target, if there is one, as "target" (whole numbers as int64, others as float32).
// With workers, its get() is called from several threads at once, so it must not change the data set.
template <detail::HasExamples D>
SampleSource adapt(D dataset) {
  const auto shared = std::make_shared<D>(std::move(dataset));
  return {.size = detail::size_of(*shared), .get = [shared](std::int64_t index, RandomStream) {
            auto example = detail::example_of(*shared, static_cast<std::size_t>(index));
            Sample sample{{"input", detail::tensor_of(std::move(example.data))}};
            if constexpr (requires { requires !std::is_empty_v<decltype(example.target)>; })
              sample.set("target", detail::tensor_of(std::move(example.target)));
            return sample;
          }};
}

}  // namespace composer::data
