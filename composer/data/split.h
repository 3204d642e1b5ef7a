#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/data/row_values.h"
#include "composer/data/subset.h"

namespace composer::data {

// At most one of stratify, groups and (time, series) may be given.
struct SplitOptions {
  std::uint64_t seed = 17;  // seed of the random choice of rows
  bool shuffle = true;      // false: the first rows are the first part; no effect with time or series
  RowValues stratify = {};  // a class for each row: each class is divided like the whole
  RowValues groups = {};    // rows with equal values, such as those of one patient, stay in one part
  RowValues time = {};      // the oldest rows are the first part; rows of one moment stay in one part
  RowValues series = {};    // divides each series by time, or in the order of its rows if time is unset
  std::int64_t gap = 0;  // with time or series: number of rows left out at the end of each part except the last; >= 0
};

// The rows of each part: int64 [n], ascending. Each row is in exactly one part, but for those that `gap` leaves out.
// Depends only on the arguments. Throws ConfigError for fractions that are not > 0 or do not add up to 1 and for
// options that contradict each other, DataError for values that do not fit the rows and for a part without rows.
COMPOSER_EXPORT std::vector<at::Tensor> split_rows(std::int64_t rows, const std::vector<double>& fractions,
                                                   const SplitOptions& options = {});

struct FoldRows {
  at::Tensor train, test;  // as in split_rows()
};

// k ways to train on one part of the rows and to test on the rest. Each row is tested in exactly one of them. With time
// or series, the rows are divided into k + 1 blocks, and fold i trains on the blocks up to i and is tested on the next.
COMPOSER_EXPORT std::vector<FoldRows> k_fold_rows(std::int64_t rows, std::int64_t k, const SplitOptions& options = {});

// Data that can be divided: a Batch, a SampleSource, Windows, and each type for which these functions are declared in
// its namespace.
template <class D>
concept Divisible = requires(const D& data, const at::Tensor& rows, const std::string& name) {
  num_rows(data);
  subset(data, rows);
  column(data, name);
};

namespace detail {

// Replaces names by the values of the data's columns.
template <class D>
SplitOptions with_values(const D& data, SplitOptions options) {
  for (RowValues* values : {&options.stratify, &options.groups, &options.time, &options.series})
    if (!values->name().empty()) *values = column(data, values->name());
  return options;
}

}  // namespace detail

// The parts of the data: const auto [train, test] = split(data, {0.8, 0.2}, {.stratify = "target"});
template <Divisible D, std::size_t N>
auto split(const D& data, const double (&fractions)[N], const SplitOptions& options = {}) {
  const std::vector<at::Tensor> rows =
      split_rows(num_rows(data), {fractions, fractions + N}, detail::with_values(data, options));
  return [&]<std::size_t... I>(std::index_sequence<I...>) { return std::array{subset(data, rows[I])...}; }
  (std::make_index_sequence<N>());
}

// The same for a number of parts that is known only when the program runs.
template <Divisible D>
auto split(const D& data, const std::vector<double>& fractions, const SplitOptions& options = {}) {
  std::vector<decltype(subset(data, at::Tensor()))> parts;
  for (const at::Tensor& rows : split_rows(num_rows(data), fractions, detail::with_values(data, options)))
    parts.push_back(subset(data, rows));
  return parts;
}

template <class Part>
struct Fold {
  Part train, test;
};

// The folds of k_folds(). Each is made when it is asked for, so that a loop over them holds the rows of one.
template <class D>
class Folds {
 public:
  using value_type = Fold<decltype(subset(std::declval<const D&>(), std::declval<const at::Tensor&>()))>;
  Folds(D data, std::vector<FoldRows> rows) : data_(std::move(data)), rows_(std::move(rows)) {}

  class Iterator {
   public:
    using value_type = Folds::value_type;
    using reference = value_type;
    using pointer = void;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    Iterator() = default;
    Iterator(const Folds* folds, std::size_t at) : folds_(folds), at_(at) {}
    value_type operator*() const { return (*folds_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return {folds_, at_++}; }
    bool operator==(const Iterator&) const = default;

   private:
    const Folds* folds_ = nullptr;
    std::size_t at_ = 0;
  };
  std::size_t size() const { return rows_.size(); }
  value_type operator[](std::size_t i) const { return {subset(data_, rows_[i].train), subset(data_, rows_[i].test)}; }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  D data_;
  std::vector<FoldRows> rows_;
};

// for (const auto& [train, test] : k_folds(data, 5)) ...
template <Divisible D>
Folds<D> k_folds(const D& data, std::int64_t k, const SplitOptions& options = {}) {
  return {data, k_fold_rows(num_rows(data), k, detail::with_values(data, options))};
}

// Data sets by index: the parts are SampleSources.
template <Dataset D>
requires(!Divisible<D>) auto split(D dataset, const std::vector<double>& fractions, const SplitOptions& options = {}) {
  return split(source(std::move(dataset)), fractions, options);
}
template <Dataset D, std::size_t N>
requires(!Divisible<D>) auto split(D dataset, const double (&fractions)[N], const SplitOptions& options = {}) {
  return split(source(std::move(dataset)), fractions, options);
}
template <Dataset D>
requires(!Divisible<D>) auto k_folds(D dataset, std::int64_t k, const SplitOptions& options = {}) {
  return k_folds(source(std::move(dataset)), k, options);
}

}  // namespace composer::data
