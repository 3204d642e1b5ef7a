// Combines the optimizer state of all ranks.
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

constexpr std::int64_t kPiece = std::int64_t{64} << 20;  // bytes

// Writes what another rank must know to receive a tensor, as text fields that end in a zero byte.
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

std::string describe_list(const std::vector<StateTensor>& list) {
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

// Describes a tensor of another rank, without its memory.
struct Described {
  std::string parameter, key;
  at::ScalarType dtype;
  bool on_host;
  std::vector<std::int64_t> sizes;

  std::int64_t bytes() const {
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
    for (const std::int64_t size : sizes) bytes *= size;
    return bytes;
  }
  StateTensor empty(at::Device device) const {
    return {parameter, key, at::empty(sizes, at::TensorOptions(dtype).device(on_host ? at::Device(at::kCPU) : device))};
  }
};

std::vector<Described> parse(const std::string& description) {
  std::vector<Described> list;
  for (Reader reader(description); !reader.at_end();) {
    Described& one = list.emplace_back();
    one.parameter = reader.field();
    one.key = reader.field();
    one.dtype = static_cast<at::ScalarType>(reader.number());
    one.on_host = reader.number() == 1;
    one.sizes.resize(static_cast<std::size_t>(reader.number()));
    for (std::int64_t& size : one.sizes) size = reader.number();
  }
  return list;
}

// The end of the piece that begins at `begin` and has about kPiece bytes.
std::size_t end_of_piece(const std::vector<Described>& list, std::size_t begin) {
  std::int64_t bytes = list[begin].bytes();
  std::size_t end = begin + 1;
  while (end < list.size() && bytes + list[end].bytes() <= kPiece) bytes += list[end++].bytes();
  return end;
}

}  // namespace

std::vector<StateTensor> Sharded::gather(const std::vector<StateTensor>& own, int root) const {
  const at::NoGradGuard no_grad;
  std::vector<StateTensor> all;
  const std::vector<std::string> descriptions = world_->all_gather(describe_list(own));
  for (int rank = 0; rank < world_->size(); ++rank) {
    const bool is_mine = rank == world_->rank(), is_root = root == world_->rank();
    if (rank == root) {  // the root does not send its own tensors
      if (is_root) all.insert(all.end(), own.begin(), own.end());
      continue;
    }
    const std::vector<Described> list = parse(descriptions[static_cast<std::size_t>(rank)]);
    for (std::size_t begin = 0, end = 0; begin < list.size(); begin = end) {
      end = end_of_piece(list, begin);
      std::vector<at::Tensor> piece;
      for (std::size_t i = begin; i < end; ++i) {
        StateTensor one = is_mine ? own[i] : list[i].empty(parameters_.front().second.device());
        piece.push_back(one.tensor.detach());
        if (is_root) all.push_back(std::move(one));
      }
      world_->broadcast(piece, rank);
      if (!is_root) continue;
      for (std::size_t i = all.size() - piece.size(); i < all.size(); ++i) all[i].tensor = all[i].tensor.cpu();
    }
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
