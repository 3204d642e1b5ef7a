#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/in_memory.h"
#include "composer/data/loader.h"
#include "composer/data/map_style.h"
#include "composer/data/row_values.h"

namespace composer::data {

struct WindowOptions {
  std::int64_t length = 0;      // required: number of rows of an input
  std::int64_t horizon = 0;     // number of rows of its target, which follow it; 0: no target
  std::int64_t gap = 0;         // number of rows between an input and its target
  std::int64_t stride = 1;      // number of rows from one window of a series to the next
  std::string input = "input";  // the tensor [T, F] or [T] that inputs are taken from
  std::string target = {};      // the tensor [T, K] or [T] that targets are taken from; empty: that of the inputs
  std::vector<std::int64_t> target_columns = {};  // columns of that tensor that are predicted; empty: all
  RowValues series = {};  // which series each row belongs to: a tensor, or its name; none: all rows are one
  RowValues time = {};    // orders the rows of a series: a tensor, or its name; none: they are in order
};

struct WindowSplitOptions {
  std::int64_t gap = 0;  // rows of each series left out of windows at the end of each part but the last
  bool history = false;  // whether inputs of a part may begin in rows of earlier parts; targets never do
};

class Windows;

COMPOSER_EXPORT Windows windows(const Batch& rows, WindowOptions options);
COMPOSER_EXPORT Windows windows(const at::Tensor& rows, WindowOptions options);

// A loader of batches {"input": [B, length, F], "target": [B, horizon, K]}, each gathered in one pass. The options are
// those of in_memory() but for the transforms of images.
COMPOSER_EXPORT std::shared_ptr<Loader> in_memory(const Windows& windows, InMemoryOptions options);

// For split() and k_folds(), whose parts share rows if windows overlap: split_by_time() rules that out.
COMPOSER_EXPORT std::int64_t num_rows(const Windows& windows);
COMPOSER_EXPORT Windows subset(Windows windows, const at::Tensor& which);
COMPOSER_EXPORT at::Tensor column(const Windows& windows, const std::string& name);

// Divides the rows of each series in their order, and the windows with them. A window is in the part that all of its
// target lies in; its input lies there as well, or with `history` in that and earlier parts. So no target of a part is
// in any window of an earlier part, and without `history` two parts have no row in common. Windows that no part can
// have are left out. Throws ConfigError for fractions as split() does, DataError for a part without windows.
COMPOSER_EXPORT std::vector<Windows> split_by_time(const Windows& windows, const std::vector<double>& fractions,
                                                   const WindowSplitOptions& options = {});

// The windows of one or many series: sample i is {"input": [length, F], "target": [horizon, K]}, as views of the rows,
// which are not copied (unless they are not yet in the order of series and time: once). No window spans two series.
// A data set for map_style(); in_memory() below is much faster. Copies share the data.
class COMPOSER_EXPORT Windows {
 public:
  // Throws ConfigError for invalid options, DataError for rows that do not fit them or that have no window.
  Windows(const Batch& rows, WindowOptions options);

  std::int64_t size() const { return starts_.numel(); }
  Sample get(std::int64_t index) const;
  // The rows of the given data that are the target of each window: int64 [N, horizon]. For the times of predictions.
  at::Tensor target_rows() const;

 private:
  friend Windows subset(Windows windows, const at::Tensor& which);
  friend std::vector<Windows> split_by_time(const Windows& windows, const std::vector<double>& fractions,
                                            const WindowSplitOptions& options);
  friend std::shared_ptr<Loader> in_memory(const Windows& windows, InMemoryOptions options);
  struct Rows;
  std::shared_ptr<const Rows> rows_;
  at::Tensor starts_;  // the first row of each window: int64 [N] on the host
};

template <std::size_t N>
std::array<Windows, N> split_by_time(const Windows& windows, const double (&fractions)[N],
                                     const WindowSplitOptions& options = {}) {
  std::vector<Windows> parts = split_by_time(windows, std::vector<double>(fractions, fractions + N), options);
  return [&]<std::size_t... I>(std::index_sequence<I...>) { return std::array<Windows, N>{std::move(parts[I])...}; }
  (std::make_index_sequence<N>());
}

}  // namespace composer::data
