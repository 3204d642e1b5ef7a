#include "composer/cli/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fnmatch.h>
#include <map>
#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>

#include <nlohmann/json.hpp>

#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/util/json.h"
#include "composer/util/text_table.h"

namespace composer::cli {
namespace {

struct View {
  std::map<std::string, const Entry*> tensors;
  std::map<std::string, std::string> values;
};

// Adds the manifest except the values that belong to one run or machine. A killed run may have counted more
// checkpoints.
void add_manifest(const saving::Manifest& manifest, View& view) {
  static const std::set<std::string> own = {
      "format",           "version",          "id",    "run_id",  "number", "program",
      "composer_version", "libtorch_version", "files", "checksum"};
  const nlohmann::json json = util::parse_json<nlohmann::json>(manifest.to_json());
  for (const auto& [name, value] : json.items())
    if (!own.contains(name) && !value.is_object()) view.values[join("manifest/", name)] = value.dump();
  for (const auto& [name, group] : json.items())
    if (group.is_object())
      for (const auto& [key, value] : group.items()) view.values[join("manifest/", name, "/", key)] = value.dump();
}

View view_of(const Contents& contents, bool weights_only, const std::vector<std::string>& ignored) {
  View view;
  for (const Entry& tensor : contents.tensors) {
    const bool weight = !contents.checkpoint || tensor.name.starts_with(kModel);
    if (weights_only && !weight) continue;
    view.tensors[weights_only && contents.checkpoint ? tensor.name.substr(kModel.size()) : tensor.name] = &tensor;
  }
  if (contents.checkpoint && !weights_only) {
    add_manifest(contents.checkpoint->manifest, view);
    for (const auto& [name, value] : contents.values) view.values[name] = value;
  }
  const auto unwanted = [&](const auto& item) { return fits_any(item.first, ignored); };
  std::erase_if(view.tensors, unwanted);
  std::erase_if(view.values, unwanted);
  return view;
}

// Calls back with names that only one of the two has, and with what(a, b) for names that both have, in the order of the
// names.
template <class Map, class What>
void join_maps(const Map& a, const Map& b, Comparison& result, const What& what) {
  std::map<std::string, std::string> wrong;
  for (const auto& [name, value] : a) {
    ++result.compared;
    const auto other = b.find(name);
    std::string text = other == b.end() ? "only in the first" : what(value, other->second);
    if (text.empty())
      ++result.equal;
    else
      wrong[name] = std::move(text);
  }
  for (const auto& [name, value] : b)
    if (!a.contains(name)) ++result.compared, wrong[name] = "only in the second";
  for (auto& [name, text] : wrong) result.differences.push_back({name, std::move(text)});
}

std::string difference_of_entries(const Entry& a, const Entry& b) {
  if (a.dtype != b.dtype) return "dtype " + a.dtype + " and " + b.dtype;
  if (a.shape != b.shape) return "shape " + shape_text(a.shape) + " and " + shape_text(b.shape);
  return difference_of(a.read(), b.read());
}

std::string shortened(const std::string& text) {
  constexpr std::size_t kLongest = 60;
  return printable(text.size() <= kLongest ? text : text.substr(0, kLongest) + "...");
}

}  // namespace

const std::vector<std::string>& wall_clock_globs() {
  static const std::vector<std::string> globs = [] {
    std::vector<std::string> all = {"*_wct",
                                    "*/wct",
                                    "manifest/time/seconds",
                                    "callbacks/CheckpointSaver*/run_id",
                                    "callbacks/RuntimeEstimator*/evaluations/*",
                                    "callbacks/WandBLogger*/*",
                                    "callbacks/MLFlowLogger*/*"};
    for (const char* writer : {"CsvLogger", "FileLogger", "JsonLinesLogger", "MLPerfCallback", "TensorBoardLogger"})
      for (const char* what : {"file", "size", "head", "tail"}) all.push_back(join("callbacks/", writer, "*/", what));
    return all;
  }();
  return globs;
}

bool fits_any(const std::string& name, const std::vector<std::string>& globs) {
  return std::ranges::any_of(globs,
                             [&](const std::string& glob) { return fnmatch(glob.c_str(), name.c_str(), 0) == 0; });
}

std::string difference_of(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes())
    return join(a.scalar_type(), " ", a.sizes(), " and ", b.scalar_type(), " ", b.sizes());
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  if (left.numel() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0) return "";
  // The bits of each element.
  const auto bits = [](const at::Tensor& t) {
    return at::from_blob(t.data_ptr(), {t.numel(), static_cast<std::int64_t>(t.element_size())}, at::kByte);
  };
  const std::int64_t unequal = bits(left).ne(bits(right)).any(1).sum().item<std::int64_t>();
  std::string text = util::grouped(unequal) + " of " + util::grouped(left.numel()) + " differ";
  if (a.is_complex()) return text;
  const at::Tensor x = left.to(at::kDouble), y = right.to(at::kDouble);
  const at::Tensor distance = (x - y).abs();
  const auto largest = [](const at::Tensor& t) { return t.nan_to_num(0.0, HUGE_VAL, HUGE_VAL).max().item<double>(); };
  const at::Tensor scale = at::maximum(x.abs(), y.abs()).clamp_min(1e-300);
  text += ", max abs " + number_text(largest(distance)) + ", max rel " + number_text(largest(distance / scale));
  const std::int64_t nan = (x.isnan() != y.isnan()).sum().item<std::int64_t>();
  if (nan > 0) text += ", NaN on one side only: " + util::grouped(nan);
  return text;
}

Comparison compare(const Contents& a, const Contents& b, const std::vector<std::string>& ignored) {
  const bool weights_only = a.checkpoint.has_value() != b.checkpoint.has_value();
  const View left = view_of(a, weights_only, ignored), right = view_of(b, weights_only, ignored);
  Comparison result;
  join_maps(left.tensors, right.tensors, result,
            [](const Entry* x, const Entry* y) { return difference_of_entries(*x, *y); });
  join_maps(left.values, right.values, result, [](const std::string& x, const std::string& y) {
    return x == y ? std::string() : shortened(x) + " and " + shortened(y);
  });
  return result;
}

}  // namespace composer::cli
