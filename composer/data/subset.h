#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/map_style.h"

namespace composer::data {

// The number of rows: of samples, where rows are samples.
COMPOSER_EXPORT std::int64_t num_rows(const Batch& data);
COMPOSER_EXPORT std::int64_t num_rows(const SampleSource& data);

// The rows with these indices (int64 [n]), in this order; an index may occur several times. Consecutive rows of a batch
// are views of it, others are copied; tensors without dimensions are kept. A data set reads its samples when it is
// asked for them. Throws DataError for an index that is not from 0 to rows - 1.
COMPOSER_EXPORT Batch subset(const Batch& data, const at::Tensor& rows);
COMPOSER_EXPORT SampleSource subset(SampleSource data, const at::Tensor& rows);
template <Dataset D>
SampleSource subset(D dataset, const at::Tensor& rows) {
  return subset(source(std::move(dataset)), rows);
}

// The tensor with this name. Throws DataError if there is none, ConfigError for data whose samples are read by index.
COMPOSER_EXPORT at::Tensor column(const Batch& data, const std::string& name);
COMPOSER_EXPORT at::Tensor column(const SampleSource& data, const std::string& name);

// The rows of all parts, one part after another. Batches are copied; they must have the same names, types and shapes
// but for the number of rows, or concat() throws DataError.
COMPOSER_EXPORT Batch concat(const std::vector<Batch>& parts);
COMPOSER_EXPORT SampleSource concat(std::vector<SampleSource> parts);

namespace detail {

// Throws DataError, beginning with `who`, unless it is an int64 [n] of rows from 0 to `rows` - 1. Returns it on the
// host.
COMPOSER_EXPORT at::Tensor checked_rows(const char* who, const at::Tensor& rows, std::int64_t of);

}  // namespace detail
}  // namespace composer::data
