#include "composer/core/log_records.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/core/scalar.h"

namespace composer {
namespace {

struct ToNumber {
  double operator()(std::int64_t value) const { return static_cast<double>(value); }
  double operator()(double value) const { return value; }
  double operator()(bool value) const { return value ? 1 : 0; }
  double operator()(const std::string& value) const { throw DataError("expected a number, got \"", value, '"'); }
  double operator()(const at::Tensor& value) const { return value.item<double>(); }
};

template <class... Parts>
[[noreturn]] void fail(std::string_view key, const Parts&... parts) {
  throw DataError("Logger: ", key, ": ", parts...);
}

void check_key(std::string_view key) {
  if (key.empty()) throw DataError("Logger: a key must not be empty");
}

void check_dense(std::string_view key, std::string_view what, const at::Tensor& tensor) {
  if (!tensor.defined()) fail(key, what, " is an undefined tensor");
  if (tensor.layout() != at::kStrided) fail(key, what, " must be a dense tensor, got layout ", tensor.layout());
  if (tensor.is_complex()) fail(key, what, " must be of real numbers, got type ", tensor.scalar_type());
}

// Checks the images, and returns the sizes that a mask must have.
std::vector<std::int64_t> check_pixels(std::string_view key, const LogImages& images) {
  const at::Tensor& pixels = images.images;
  check_dense(key, "images", pixels);
  if (pixels.scalar_type() != at::kByte && !pixels.is_floating_point())
    fail(key, "images must be uint8 or floating-point from 0 to 1, got type ", pixels.scalar_type());
  const std::int64_t rank = pixels.dim();
  if (rank < 2 || rank > 4)
    fail(key, "images must be of shape [N, C, H, W], [C, H, W] or [H, W], got ", pixels.sizes());
  if (pixels.numel() == 0) fail(key, "images are empty, of shape ", pixels.sizes());
  std::vector<std::int64_t> sizes = pixels.sizes().vec();
  if (rank == 2) return sizes;
  const std::int64_t channel = images.channels_last ? rank - 1 : rank - 3;
  const std::int64_t channels = pixels.size(channel);
  if (channels != 1 && channels != 3 && channels != 4)
    fail(key, "images must have 1, 3 or 4 channels, got ", channels, " in dimension ", channel, " of shape ",
         pixels.sizes(), images.channels_last ? " (channels_last)" : "");
  sizes.erase(sizes.begin() + channel);
  return sizes;
}

at::Tensor to_host(const at::Tensor& tensor) { return tensor.to(at::kCPU).contiguous(); }

}  // namespace

double to_number(const LogValue& value) { return std::visit(ToNumber{}, value); }

LogHistogram LogHistogram::of(const at::Tensor& values, std::int64_t bins) {
  check_dense("LogHistogram", "values", values);
  if (values.numel() == 0) throw DataError("Logger: LogHistogram: values are empty");
  if (bins < 1 || bins > 10'000) throw DataError("Logger: LogHistogram: bins must be from 1 to 10000, got ", bins);
  const at::NoGradGuard no_grad;
  const at::Tensor flat = values.detach().reshape({-1}).to(at::kDouble);
  const at::Tensor finite = flat.isfinite();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  at::Tensor least = at::where(finite, flat, kInfinity).min(), greatest = at::where(finite, flat, -kInfinity).max();
  const at::Tensor none = least > greatest;  // no value is finite
  least = at::where(none, 0.0, least);
  greatest = at::where(none, 0.0, greatest);
  const at::Tensor widening = at::where(least == greatest, 0.5, 0.0);
  least = least - widening;
  greatest = greatest + widening;
  const at::Tensor share = at::linspace(0, 1, bins + 1, flat.options());
  // Computes the edges without a difference of the two, which could overflow.
  const at::Tensor edges = least * (1 - share) + greatest * share;
  const at::Tensor inside = at::where(finite, flat, least);
  // Divides by two first, because a difference may overflow. The result is NaN if all values are equal up to their last
  // bits.
  const at::Tensor above = (inside / 2 - least / 2) / (greatest / 2 - least / 2);
  const at::Tensor bin = (above * static_cast<double>(bins)).floor().nan_to_num(0);
  const at::Tensor index = bin.clamp(0, static_cast<double>(bins - 1)).to(at::kLong);
  at::Tensor counts = at::zeros({bins}, flat.options().dtype(at::kLong));
  counts.scatter_add_(0, index, finite.to(at::kLong));
  return {counts, edges, flat.numel() - finite.sum()};
}

LogHistogram LogHistogram::of(const std::vector<double>& counts, const std::vector<double>& edges) {
  LogHistogram histogram{.counts = at::tensor(counts, at::kDouble), .edges = at::tensor(edges, at::kDouble)};
  check("LogHistogram", histogram);
  if (std::ranges::any_of(counts, [](double count) { return !(count >= 0); }))
    throw DataError("Logger: LogHistogram: counts must be >= 0");
  if (!std::ranges::is_sorted(edges)) throw DataError("Logger: LogHistogram: edges must be ascending");
  return histogram;
}

void check(std::string_view key, const LogImages& images) {
  check_key(key);
  const std::vector<std::int64_t> sizes = check_pixels(key, images);
  std::set<std::string_view> names;
  for (const auto& [name, classes] : images.masks) {
    if (!names.insert(name).second) fail(key, "two masks are called \"", name, '"');
    check_dense(key, join("mask \"", name, '"'), classes);
    if (!at::isIntegralType(classes.scalar_type(), /*includeBool=*/true))
      fail(key, "mask \"", name, "\" must be of integers, got type ", classes.scalar_type());
    if (classes.sizes() != at::IntArrayRef(sizes))
      fail(key, "mask \"", name, "\" must be of shape ", at::IntArrayRef(sizes), ", got ", classes.sizes());
  }
}

void check(std::string_view key, const LogTable& table) {
  check_key(key);
  if (table.columns.empty()) fail(key, "a table must have at least one column");
  const std::set<std::string_view> names(table.columns.begin(), table.columns.end());
  if (names.size() != table.columns.size()) fail(key, "two columns of the table have the same name");
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const std::vector<LogValue>& cells = table.rows[row];
    if (cells.size() != table.columns.size())
      fail(key, "row ", row, " of the table has ", cells.size(), " values, and there are ", table.columns.size(),
           " columns");
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const auto* tensor = std::get_if<at::Tensor>(&cells[column]);
      if (tensor == nullptr) continue;
      const std::string where = join("row ", row, ", column \"", table.columns[column], '"');
      check_dense(key, where, *tensor);
      if (tensor->numel() != 1) fail(key, where, " must be one number, got a tensor of shape ", tensor->sizes());
    }
  }
}

void check(std::string_view key, const LogHistogram& histogram) {
  check_key(key);
  const auto& [counts, edges, left_out] = histogram;
  check_dense(key, "counts", counts);
  check_dense(key, "edges", edges);
  if (counts.dim() != 1 || counts.numel() == 0) fail(key, "counts must be of shape [bins], got ", counts.sizes());
  if (edges.dim() != 1 || edges.numel() != counts.numel() + 1)
    fail(key, "edges must be of shape [", counts.numel() + 1, "] for ", counts.numel(), " counts, got ", edges.sizes());
  if (!edges.is_floating_point()) fail(key, "edges must be floating-point, got type ", edges.scalar_type());
  if (left_out.defined() &&
      (left_out.numel() != 1 || !at::isIntegralType(left_out.scalar_type(), /*includeBool=*/false)))
    fail(key, "left_out must be one integer, got shape ", left_out.sizes(), " and type ", left_out.scalar_type());
}

void check(std::string_view key, const LogFile& file) {
  std::error_code error;
  if (key.empty()) throw DataError("Logger: upload_file: the name of ", file.path, " must not be empty");
  if (!std::filesystem::is_regular_file(file.path, error))
    throw DataError("Logger: upload_file: ", file.path, " is not a file");
}

std::vector<at::Tensor> tensors_of(const LogImages& images) {
  std::vector<at::Tensor> tensors = {images.images};
  for (const LogMask& mask : images.masks) tensors.push_back(mask.classes);
  return tensors;
}

std::vector<at::Tensor> tensors_of(const LogTable& table) {
  std::vector<at::Tensor> tensors;
  for (const std::vector<LogValue>& row : table.rows)
    for (const LogValue& value : row)
      if (const auto* cell = std::get_if<at::Tensor>(&value)) tensors.push_back(*cell);
  return tensors;
}

std::vector<at::Tensor> tensors_of(const LogHistogram& histogram) {
  return {histogram.counts, histogram.edges, histogram.left_out};
}

std::vector<at::Tensor> tensors_of(const LogFile&) { return {}; }

LogImages copied_to_host(const LogImages& images) {
  LogImages copy = images;
  copy.images = to_host(copy.images);
  for (LogMask& mask : copy.masks) mask.classes = to_host(mask.classes);
  return copy;
}

LogTable copied_to_host(const LogTable& table) {
  LogTable copy = table;
  for (std::vector<LogValue>& row : copy.rows)
    for (LogValue& value : row) value = value_on_host(value);
  return copy;
}

LogHistogram copied_to_host(const LogHistogram& histogram) {
  return {to_host(histogram.counts.to(at::kDouble)), to_host(histogram.edges.to(at::kDouble)),
          histogram.left_out.defined() ? to_host(histogram.left_out) : at::Tensor()};
}

LogFile copied_to_host(const LogFile& file) { return file; }

}  // namespace composer
