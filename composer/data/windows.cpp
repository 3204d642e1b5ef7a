#include "composer/data/windows.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/batch_memory.h"
#include "composer/data/data_spec.h"
#include "composer/data/fractions.h"
#include "composer/data/gather.h"
#include "composer/data/keys.h"
#include "composer/data/loader_parts.h"
#include "composer/data/seekable_loader.h"
#include "composer/data/subset.h"

namespace composer::data {

// The rows of all series, one series after another, each in the order of time.
struct Windows::Rows {
  at::Tensor input, target;          // [T, F], and [T, K] or undefined; contiguous
  at::Tensor order;                  // which of the given rows each is; undefined: the same
  std::vector<std::int64_t> bounds;  // of the series: the first row of each, and T
  std::int64_t length, horizon, gap;

  std::int64_t all() const { return length + (horizon > 0 ? gap + horizon : 0); }
};

namespace {

std::vector<Option<WindowOptions>> window_options() {
  using O = WindowOptions;
  return all_options(option("length", &O::length).at_least(1, "rows"),
                     option("horizon", &O::horizon).at_least(0, "rows"), option("gap", &O::gap).at_least(0, "rows"),
                     option("stride", &O::stride).at_least(1, "rows"), option("input", &O::input),
                     option("target", &O::target), part("target_columns", &O::target_columns, "whole numbers"),
                     part("series", &O::series, "a tensor or name"), part("time", &O::time, "a tensor or name"));
}

std::vector<Option<WindowSplitOptions>> window_split_options() {
  using O = WindowSplitOptions;
  return all_options(option("gap", &O::gap).at_least(0, "rows"), option("history", &O::history));
}

at::Tensor as_columns(const std::string& name, const at::Tensor& rows) {
  if (rows.dim() != 1 && rows.dim() != 2)
    throw DataError("windows: \"", name, "\" must have the shape [T, F] or [T], got ", rows.sizes());
  return rows.dim() == 1 ? rows.detach().unsqueeze(1) : rows.detach();
}

at::Tensor chosen_columns(const std::string& name, const at::Tensor& rows, const std::vector<std::int64_t>& columns) {
  if (columns.empty()) return rows;
  for (const std::int64_t column : columns)
    if (column < 0 || column >= rows.size(1))
      throw ConfigError("windows: target_columns has ", column, ", and the columns of \"", name, "\" are 0 to ",
                        rows.size(1) - 1);
  return rows.index_select(1, at::tensor(columns).to(rows.device()));
}

RowValues values_of(const Batch& rows, const RowValues& values) {
  return values.name().empty() ? values : RowValues(rows.at(values.name()));
}

// The rows by series, and by time in each; sets `bounds`.
std::vector<std::int64_t> ordered_rows(std::int64_t rows, const RowValues& series, const RowValues& time,
                                       std::vector<std::int64_t>& bounds) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::optional<detail::Keys> times;
  if (!time.empty()) order = times.emplace(time, rows, "windows: time").ascending();
  bounds = {0, rows};
  if (!series.empty()) {
    std::int64_t count = 0;
    const std::vector<std::int64_t> series_of = detail::Keys(series, rows, "windows: series").distinct(count);
    bounds.assign(static_cast<std::size_t>(count + 1), 0);
    for (const std::int64_t one : series_of) ++bounds[static_cast<std::size_t>(one + 1)];
    std::partial_sum(bounds.begin(), bounds.end(), bounds.begin());
    std::vector<std::int64_t> next = bounds, by_series(order.size());
    for (const std::int64_t row : order)
      by_series[static_cast<std::size_t>(next[static_cast<std::size_t>(series_of[static_cast<std::size_t>(row)])]++)] =
          row;
    order = std::move(by_series);
  }
  if (!times) return order;
  for (std::size_t one = 0; one + 1 < bounds.size(); ++one)
    for (std::int64_t i = bounds[one] + 1; i < bounds[one + 1]; ++i)
      if (const std::int64_t row = order[static_cast<std::size_t>(i)], before = order[static_cast<std::size_t>(i - 1)];
          times->equal(row, before))
        throw DataError("windows: time: rows ", before, " and ", row, " of one series have the same time, ",
                        times->text(row), "; name the series that they belong to, or leave one of them out");
  return order;
}

at::Tensor as_tensor(const std::vector<std::int64_t>& numbers) { return at::tensor(numbers, at::kLong); }

// Makes the batches of a loader.
class WindowGather {
 public:
  WindowGather(at::Tensor starts, std::shared_ptr<const detail::Sampler> sampler)
      : starts_(std::move(starts)), sampler_(std::move(sampler)) {}

  // Adds a tensor of batches: `length` of the rows [T, F], from the one that is `offset` after a window's start.
  void add(const char* name, at::Tensor rows, std::int64_t offset, std::int64_t length, detail::BatchMemory memory) {
    pieces_.push_back({name, std::move(rows), offset, length, std::move(memory)});
  }

  Batch make(std::int64_t epoch, std::int64_t batch) {
    const std::shared_ptr<const detail::Sampler::Order> order = sampler_->order(epoch);
    const auto [from, count] = sampler_->span(batch);
    std::vector<std::int64_t> starts(static_cast<std::size_t>(count));
    const auto* all = starts_.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < count; ++i)
      starts[static_cast<std::size_t>(i)] = all[order ? (*order)[static_cast<std::size_t>(from + i)] : from + i];
    Batch made;
    for (Piece& piece : pieces_) made.set(piece.name, gather(piece, starts));
    return made;
  }

 private:
  struct Piece {
    const char* name;
    at::Tensor rows;  // [T, F]
    std::int64_t offset, length;
    detail::BatchMemory memory;
  };

  static at::Tensor gather(Piece& piece, const std::vector<std::int64_t>& starts) {
    const auto count = static_cast<std::int64_t>(starts.size());
    const at::Tensor& rows = piece.rows;
    const std::int64_t columns = rows.size(1);
    if (!rows.is_cpu()) {  // all windows of this length, of which each begins a row after the one before
      const at::Tensor windows =
          rows.as_strided({rows.size(0) - piece.length + 1, piece.length, columns}, {columns, columns, 1});
      return windows.index_select(0, as_tensor(starts).add(piece.offset).to(rows.device()));
    }
    at::Tensor out = piece.memory.take({count, piece.length, columns}, rows.scalar_type());
    const std::int64_t row = columns * static_cast<std::int64_t>(rows.element_size());
    const auto* first = static_cast<const char*>(rows.const_data_ptr()) + piece.offset * row;
    detail::gather_rows(static_cast<char*>(out.mutable_data_ptr()), count, piece.length * row, /*scattered=*/true,
                        [&](std::int64_t i) { return first + starts[static_cast<std::size_t>(i)] * row; });
    return out;
  }

  std::vector<Piece> pieces_;
  at::Tensor starts_;
  std::shared_ptr<const detail::Sampler> sampler_;
};

}  // namespace

Windows::Windows(const Batch& rows, WindowOptions options) {
  options = checked("windows", std::move(options), window_options());
  const std::int64_t count = get_num_samples_in_batch(rows);
  auto made = std::make_shared<Rows>();
  made->length = options.length;
  made->horizon = options.horizon;
  made->gap = options.gap;
  made->input = as_columns(options.input, rows.at(options.input));
  if (options.horizon > 0) {
    const std::string& name = options.target.empty() ? options.input : options.target;
    made->target = chosen_columns(name, as_columns(name, rows.at(name)), options.target_columns);
  } else if (!options.target.empty() || !options.target_columns.empty()) {
    throw ConfigError("windows: target and target_columns need a horizon");
  }
  const std::vector<std::int64_t> order =
      ordered_rows(count, values_of(rows, options.series), values_of(rows, options.time), made->bounds);
  if (!std::ranges::is_sorted(order)) {
    made->order = as_tensor(order);
    const auto reorder = [&](const at::Tensor& tensor) {
      return tensor.index_select(0, made->order.to(tensor.device()));
    };
    const bool same = made->target.is_same(made->input);
    made->input = reorder(made->input);
    if (made->target.defined()) made->target = same ? made->input : reorder(made->target);
  }
  const auto plain = [](const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().contiguous(); };
  const bool same = made->target.is_same(made->input);
  made->input = plain(made->input);
  if (made->target.defined()) made->target = same ? made->input : plain(made->target);

  std::vector<std::int64_t> starts;
  std::int64_t longest = 0;
  for (std::size_t one = 0; one + 1 < made->bounds.size(); ++one) {
    longest = std::max(longest, made->bounds[one + 1] - made->bounds[one]);
    for (std::int64_t row = made->bounds[one]; row + made->all() <= made->bounds[one + 1]; row += options.stride)
      starts.push_back(row);
  }
  if (starts.empty())
    throw DataError("windows: a window has ", made->all(), " rows (length",
                    options.horizon > 0 ? ", gap and horizon" : "", "), and the longest series has ", longest);
  starts_ = as_tensor(starts);
  rows_ = std::move(made);
}

Sample Windows::get(std::int64_t index) const {
  const std::int64_t start = starts_.const_data_ptr<std::int64_t>()[index];
  const auto& [input, target, order, bounds, length, horizon, gap] = *rows_;
  Sample sample(input.slice(0, start, start + length));
  if (target.defined()) {
    const std::int64_t from = start + length + gap;
    sample.set("target", target.slice(0, from, from + horizon));
  }
  return sample;
}

at::Tensor Windows::target_rows() const {
  const at::Tensor rows =
      starts_.add(rows_->length + rows_->gap).unsqueeze(1).add(at::arange(rows_->horizon, at::kLong));
  return rows_->order.defined() ? rows_->order.index_select(0, rows.reshape({-1})).view_as(rows) : rows;
}

Windows windows(const Batch& rows, WindowOptions options) { return {rows, std::move(options)}; }

Windows windows(const at::Tensor& rows, WindowOptions options) {
  return {Batch{{options.input, rows}}, std::move(options)};
}

std::shared_ptr<Loader> in_memory(const Windows& windows, InMemoryOptions options) {
  const Windows::Rows& rows = *windows.rows_;
  if (options.normalize || options.flip || options.crop_padding != 0 || options.cutout != 0 || options.channels_last)
    throw ConfigError("in_memory: normalize, flip, crop_padding, cutout and channels_last are for images, not for ",
                      "windows");
  options = detail::checked_loader(std::move(options), rows.input.device());
  auto sampler = detail::sampler_of(windows.size(), options);
  const detail::SeekableLoader::Ahead ahead{.threads = options.prefetch > 0, .depth = options.prefetch};
  const std::size_t keep = static_cast<std::size_t>(options.prefetch) + detail::kHeldByOthers;
  return std::make_shared<detail::SeekableLoader>(
      std::move(sampler), ahead, [windows, keep, pin = options.pin_memory](const auto& batches) {
        const Windows::Rows& all = *windows.rows_;
        const auto gather = std::make_shared<WindowGather>(windows.starts_, batches);
        gather->add("input", all.input, 0, all.length, {keep, pin});
        if (all.target.defined()) gather->add("target", all.target, all.length + all.gap, all.horizon, {keep, pin});
        return [gather](std::int64_t epoch, std::int64_t batch, detail::StillWanted) {
          return gather->make(epoch, batch);
        };
      });
}

std::int64_t num_rows(const Windows& windows) { return windows.size(); }

Windows subset(Windows windows, const at::Tensor& which) {
  windows.starts_ = windows.starts_.index_select(0, detail::checked_rows("subset", which, windows.size()));
  return windows;
}

at::Tensor column(const Windows&, const std::string& name) {
  throw ConfigError("\"", name, "\" is a name, and windows span many rows; give a tensor with a value for each window");
}

std::vector<Windows> split_by_time(const Windows& windows, const std::vector<double>& fractions,
                                   const WindowSplitOptions& options) {
  const auto [gap, history] = checked("split_by_time", options, window_split_options());
  detail::check_fractions("split_by_time", fractions);
  const Windows::Rows& rows = *windows.rows_;
  std::vector<std::vector<std::int64_t>> starts(fractions.size());
  std::size_t one = 0;
  std::int64_t first = 0;          // of the series
  std::vector<std::int64_t> ends;  // of its parts
  const auto begin_series = [&] {
    first = rows.bounds[one];
    ends.clear();
    for (const std::size_t end :
         detail::ends_of_parts(fractions, static_cast<std::size_t>(rows.bounds[one + 1] - first)))
      ends.push_back(first + static_cast<std::int64_t>(end));
  };
  begin_series();
  const auto* all = windows.starts_.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < windows.size(); ++i) {
    if (all[i] < first || all[i] >= rows.bounds[one + 1]) {  // windows of a subset may be in any order
      one = static_cast<std::size_t>(std::ranges::upper_bound(rows.bounds, all[i]) - rows.bounds.begin() - 1);
      begin_series();
    }
    const std::int64_t target = all[i] + (rows.horizon > 0 && history ? rows.length + rows.gap : 0);
    const std::int64_t last = all[i] + rows.all() - 1;
    const auto part = static_cast<std::size_t>(std::ranges::upper_bound(ends, last) - ends.begin());
    const std::int64_t begin = part == 0 ? first : ends[part - 1];
    const std::int64_t end = ends[part] - (part + 1 < ends.size() ? gap : 0);
    if (target >= begin && last < end) starts[part].push_back(all[i]);
  }
  std::vector<Windows> parts;
  for (std::size_t part = 0; part < starts.size(); ++part) {
    if (starts[part].empty())
      throw DataError("split_by_time: part ", part, " of ", starts.size(), ", a fraction of ", fractions[part],
                      ", has no window of ", rows.all(), " rows in any series",
                      history ? "" : "; with history = true, ", history ? "" : "inputs may begin in earlier parts");
    parts.push_back(windows);
    parts.back().starts_ = as_tensor(starts[part]);
  }
  return parts;
}

}  // namespace composer::data
