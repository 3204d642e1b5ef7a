#include "composer/data/subset.h"

#include <algorithm>
#include <memory>

#include <ATen/ops/cat.h>

#include "composer/core/error.h"
#include "composer/data/data_spec.h"

namespace composer::data {
namespace {

bool are_consecutive(const at::Tensor& rows) {
  const auto* row = rows.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 1; i < rows.numel(); ++i)
    if (row[i] != row[i - 1] + 1) return false;
  return true;
}

void check_fits(const Batch& first, const Batch& part, std::size_t number) {
  for (const auto& [name, tensor] : part)
    if (!first.contains(name)) throw DataError("concat: part ", number, " has \"", name, "\", and part 0 does not");
  for (const auto& [name, tensor] : first) {
    const at::Tensor* other = part.find(name);
    if (!other) throw DataError("concat: part 0 has \"", name, "\", and part ", number, " does not");
    if (tensor.dim() == 0) throw DataError("concat: \"", name, "\" has no dimensions, so it has no rows");
    if (other->scalar_type() != tensor.scalar_type() || other->device() != tensor.device() || other->dim() == 0 ||
        other->sizes().slice(1) != tensor.sizes().slice(1))
      throw DataError("concat: \"", name, "\" is ", tensor.sizes(), " of ", tensor.scalar_type(), " on ",
                      tensor.device(), " in part 0 and ", other->sizes(), " of ", other->scalar_type(), " on ",
                      other->device(), " in part ", number, "; all but the number of rows must be equal");
  }
}

}  // namespace

namespace detail {

at::Tensor checked_rows(const char* who, const at::Tensor& rows, std::int64_t of) {
  if (!rows.defined() || rows.dim() != 1 || rows.scalar_type() != at::kLong)
    throw DataError(who, ": the rows must be an int64 tensor [n]");
  at::Tensor on_host = rows.to(at::kCPU).contiguous();
  const auto* row = on_host.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < on_host.numel(); ++i)
    if (row[i] < 0 || row[i] >= of)
      throw DataError(who, ": there is no row ", row[i], "; the data has ", of, " rows, counted from 0");
  return on_host;
}

}  // namespace detail

std::int64_t num_rows(const Batch& data) { return get_num_samples_in_batch(data); }

std::int64_t num_rows(const SampleSource& data) { return data.size; }

Batch subset(const Batch& data, const at::Tensor& rows) {
  const at::Tensor chosen = detail::checked_rows("subset", rows, num_rows(data));
  const bool consecutive = are_consecutive(chosen);
  const std::int64_t count = chosen.numel();
  const std::int64_t first = count > 0 ? *chosen.const_data_ptr<std::int64_t>() : 0;
  Batch part = data;
  for (auto& [name, tensor] : part) {
    if (tensor.dim() == 0) continue;
    tensor = consecutive ? tensor.slice(0, first, first + count) : tensor.index_select(0, chosen.to(tensor.device()));
  }
  return part;
}

SampleSource subset(SampleSource data, const at::Tensor& rows) {
  if (!data.get) throw ConfigError("subset: the data set is null");
  const at::Tensor chosen = detail::checked_rows("subset", rows, data.size).clone();  // the caller may change its own
  return {.size = chosen.numel(), .get = [get = std::move(data.get), chosen](std::int64_t index, RandomStream random) {
            return get(chosen.const_data_ptr<std::int64_t>()[index], random);
          }};
}

at::Tensor column(const Batch& data, const std::string& name) { return data.at(name); }

at::Tensor column(const SampleSource&, const std::string& name) {
  throw ConfigError("\"", name, "\" is a name, and the samples of this data are read by index; give a tensor with a ",
                    "value for each sample instead");
}

Batch concat(const std::vector<Batch>& parts) {
  if (parts.empty()) throw DataError("concat: there are no parts");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    num_rows(parts[i]);  // throws unless all tensors have the same number
    check_fits(parts.front(), parts[i], i);
  }
  Batch whole;
  for (const auto& [name, tensor] : parts.front()) {
    std::vector<at::Tensor> pieces;
    pieces.reserve(parts.size());
    for (const Batch& part : parts) pieces.push_back(part.at(name));
    whole.set(name, at::cat(pieces));
  }
  return whole;
}

SampleSource concat(std::vector<SampleSource> parts) {
  std::vector<std::int64_t> ends;
  for (const SampleSource& part : parts) {
    if (!part.get) throw ConfigError("concat: data set ", ends.size(), " is null");
    ends.push_back((ends.empty() ? 0 : ends.back()) + part.size);
  }
  if (parts.empty()) throw DataError("concat: there are no parts");
  const std::int64_t size = ends.back();
  return {.size = size,
          .get = [parts = std::move(parts), ends = std::move(ends)](std::int64_t index, RandomStream random) {
            const auto number = static_cast<std::size_t>(std::ranges::upper_bound(ends, index) - ends.begin());
            return parts[number].get(number == 0 ? index : index - ends[number - 1], random);
          }};
}

}  // namespace composer::data
