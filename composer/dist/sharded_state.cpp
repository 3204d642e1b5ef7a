// The optimizer state of all ranks as one.
#include <algorithm>
#include <charconv>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "composer/core/error.h"
#include "composer/dist/sharded.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

using StateTensor = Sharded::StateTensor;

// What another rank must know to receive a tensor, as text fields that end in a zero byte.
class Writer {
 public:
  void add(std::string_view field) { text_.append(field).push_back('\0'); }
  void add(std::int64_t number) { add(std::to_string(number)); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}
  bool at_end() const { return left_.empty(); }
  std::string field() {
    const std::size_t end = left_.find('\0');
    std::string field(left_.substr(0, end));
    left_.remove_prefix(end + 1);
    return field;
  }
  std::int64_t number() {
    const std::string text = field();
    std::int64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
  }

 private:
  std::string_view left_;
};

std::string describe(const std::vector<StateTensor>& list) {
  Writer writer;
  for (const auto& [parameter, key, tensor] : list) {
    writer.add(parameter);
    writer.add(key);
    writer.add(static_cast<std::int64_t>(tensor.scalar_type()));
    writer.add(tensor.is_cpu() ? 1 : 0);
    writer.add(tensor.dim());
    for (const std::int64_t size : tensor.sizes()) writer.add(size);
  }
  return writer.text();
}

// Tensors to receive what was described. Those that were on a device are on `device`.
std::vector<StateTensor> empty_like(const std::string& description, at::Device device) {
  std::vector<StateTensor> list;
  for (Reader reader(description); !reader.at_end();) {
    StateTensor& one = list.emplace_back();
    one.parameter = reader.field();
    one.key = reader.field();
    const auto dtype = static_cast<at::ScalarType>(reader.number());
    const bool on_host = reader.number() == 1;
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(reader.number()));
    for (std::int64_t& size : sizes) size = reader.number();
    one.tensor = at::empty(sizes, at::TensorOptions(dtype).device(on_host ? at::Device(at::kCPU) : device));
  }
  return list;
}

std::vector<at::Tensor> tensors_of(const std::vector<StateTensor>& list) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(list.size());
  for (const StateTensor& one : list) tensors.push_back(one.tensor.detach());
  return tensors;
}

}  // namespace

std::vector<StateTensor> Sharded::gather(const std::vector<StateTensor>& own, int root) const {
  const at::NoGradGuard no_grad;
  std::vector<StateTensor> all;
  const std::vector<std::string> descriptions = world_->all_gather(describe(own));
  for (int rank = 0; rank < world_->size(); ++rank) {
    const bool is_mine = rank == world_->rank();
    const std::string& description = descriptions[static_cast<std::size_t>(rank)];
    const std::vector<StateTensor> part = is_mine ? own : empty_like(description, parameters_.front().second.device());
    if (rank != root && !part.empty()) world_->broadcast(tensors_of(part), rank);
    if (world_->rank() == root) all.insert(all.end(), part.begin(), part.end());
  }
  std::ranges::stable_sort(
      all, [&](const StateTensor& a, const StateTensor& b) { return index_of(a.parameter) < index_of(b.parameter); });
  return all;
}

std::vector<StateTensor> Sharded::own_part(const std::vector<StateTensor>& all) const {
  std::vector<StateTensor> own;
  for (const StateTensor& one : all)
    if (owners_[index_of(one.parameter)] == world_->rank()) own.push_back(one);
  return own;
}

}  // namespace composer::dist
