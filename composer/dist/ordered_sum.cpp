#include "composer/dist/ordered_sum.h"

#include <bit>
#include <cstddef>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"

namespace composer::dist {

// The place of a tensor in a buffer. A buffer has one flat tensor for each dtype.
struct PlaceInBuffer {
  std::size_t flat;
  std::int64_t offset;
};

struct PartialSum {
  std::vector<at::Tensor> flats;
  std::int64_t shards = 0;  // number of shards in the sum
};

namespace {

constexpr const char* kOrderedSum = "ordered sum";

// Sums over ranks in place, by a binary tree in the order of ranks. Each rank adds up one part of the tensor.
void add_over_ranks(World& world, const at::Tensor& flat) {
  const std::int64_t ranks = world.size();
  if (ranks == 1 || flat.numel() == 0) return;
  const at::Tensor received = at::empty_like(flat);
  world.exchange(received, flat);
  const at::Tensor parts = received.view({ranks, -1});
  for (std::int64_t distance = 1; distance < ranks; distance *= 2)
    for (std::int64_t rank = 0; rank + distance < ranks; rank += 2 * distance)
      parts.select(0, rank).add_(parts.select(0, rank + distance));
  world.all_gather_into(flat, parts.select(0, 0));
}

}  // namespace

struct OrderedSum::Impl {
  std::shared_ptr<World> world;
  std::int64_t per_rank = 0;
  std::vector<at::Tensor> like;  // without memory: shapes, strides and dtypes only
  std::vector<PlaceInBuffer> places;
  std::vector<at::TensorOptions> options;  // of the flat tensors
  std::vector<std::int64_t> lengths;       // of the flat tensors, multiples of the number of ranks
  at::Tensor present;                      // for each tensor: whether a shard of this rank had it
  // Like the digits of a binary counter: each is a sum of fewer shards than the one before.
  std::vector<PartialSum> partials;
  std::vector<std::vector<at::Tensor>> spare;
  std::int64_t added = 0;

  at::Tensor view(const std::vector<at::Tensor>& flats, std::size_t i) const {
    const at::Tensor& flat = flats[places[i].flat];
    return flat.as_strided(like[i].sizes(), like[i].strides(), places[i].offset);
  }

  std::vector<at::Tensor> take_buffer() {
    if (!spare.empty()) {
      std::vector<at::Tensor> flats = std::move(spare.back());
      spare.pop_back();
      return flats;
    }
    std::vector<at::Tensor> flats;
    flats.reserve(options.size());
    for (std::size_t f = 0; f < options.size(); ++f) flats.push_back(at::empty({lengths[f]}, options[f]));
    return flats;
  }

  void check(const std::vector<at::Tensor>& tensors) const {
    if (tensors.size() != like.size())
      throw ConfigError(kOrderedSum, ": got ", tensors.size(), " tensors, must get ", like.size());
    if (added == per_rank) throw ConfigError(kOrderedSum, ": this rank has ", per_rank, " shards, and got one more");
    for (std::size_t i = 0; i < like.size(); ++i)
      if (tensors[i].defined() &&
          (tensors[i].sizes() != like[i].sizes() || tensors[i].scalar_type() != like[i].scalar_type()))
        throw ConfigError(kOrderedSum, ": tensor ", i, " is ", tensors[i].scalar_type(), ' ', tensors[i].sizes(),
                          ", must be ", like[i].scalar_type(), ' ', like[i].sizes());
  }

  void copy(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& flats) const {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor to = view(flats, i);
      if (tensors[i].defined())
        to.copy_(tensors[i]);
      else
        to.zero_();
    }
  }

  // Adds zeros for an undefined tensor. They must be added: -0 + 0 is 0, but -0 alone would stay -0.
  void add_to(const std::vector<at::Tensor>& flats, const std::vector<at::Tensor>& tensors) const {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor to = view(flats, i);
      if (tensors[i].defined())
        to.add_(tensors[i]);
      else
        to.add_(0);
    }
  }

  // Adds up neighbours that are sums of equally many shards.
  void carry() {
    while (partials.size() > 1 && partials[partials.size() - 2].shards == partials.back().shards) {
      PartialSum last = std::move(partials.back());
      partials.pop_back();
      PartialSum& before = partials.back();
      for (std::size_t f = 0; f < before.flats.size(); ++f) before.flats[f].add_(last.flats[f]);
      before.shards += last.shards;
      spare.push_back(std::move(last.flats));
    }
  }
};

OrderedSum::OrderedSum(std::shared_ptr<World> world, std::int64_t shards, const std::vector<at::Tensor>& like)
    : impl_(std::make_unique<Impl>()) {
  Impl& m = *impl_;
  m.world = std::move(world);
  const std::int64_t ranks = m.world->size();
  if (shards < 1 || !std::has_single_bit(static_cast<std::uint64_t>(shards)))
    throw ConfigError(kOrderedSum, ": the number of shards must be a power of two, got ", shards);
  if (shards % ranks != 0)
    throw ConfigError(kOrderedSum, ": cannot divide ", shards, " shards equally among ", ranks, " ranks");
  m.per_rank = shards / ranks;

  std::map<at::ScalarType, std::size_t> flats;
  for (const at::Tensor& tensor : like) {
    const auto [found, is_new] = flats.emplace(tensor.scalar_type(), m.lengths.size());
    if (is_new) {
      m.lengths.push_back(0);
      m.options.push_back(at::TensorOptions().dtype(tensor.scalar_type()).device(tensor.device()));
    }
    m.places.push_back({found->second, m.lengths[found->second]});
    m.lengths[found->second] += tensor.numel();
    const auto no_memory = at::TensorOptions().dtype(tensor.scalar_type()).device(at::kMeta);
    m.like.push_back(tensor.is_non_overlapping_and_dense()
                         ? at::empty_strided(tensor.sizes(), tensor.strides(), no_memory)
                         : at::empty(tensor.sizes(), no_memory));
  }
  for (std::int64_t& length : m.lengths) length = (length + ranks - 1) / ranks * ranks;
  reset();
}

OrderedSum::~OrderedSum() = default;

std::int64_t OrderedSum::first_shard() const { return impl_->world->rank() * impl_->per_rank; }
std::int64_t OrderedSum::shard_count() const { return impl_->per_rank; }

void OrderedSum::add(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  Impl& m = *impl_;
  m.check(tensors);
  auto* present = m.present.mutable_data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].defined()) present[i] = 1;
  if (m.added++ % 2 == 0) {
    m.partials.push_back({m.take_buffer(), 1});
    m.copy(tensors, m.partials.back().flats);
    return;
  }
  // The second shard of a pair needs no buffer of its own.
  m.add_to(m.partials.back().flats, tensors);
  m.partials.back().shards = 2;
  m.carry();
}

std::vector<at::Tensor> OrderedSum::finish() {
  const at::NoGradGuard no_grad;
  Impl& m = *impl_;
  if (m.added != m.per_rank)
    throw ConfigError(kOrderedSum, ": this rank has ", m.per_rank, " shards, and got only ", m.added);
  // The buffer becomes the result and is not reused, because the caller may keep it.
  const std::vector<at::Tensor> flats = std::move(m.partials.back().flats);
  m.partials.clear();
  for (const at::Tensor& flat : flats) add_over_ranks(*m.world, flat);
  if (!m.world->is_alone()) m.world->max(m.present);

  std::vector<at::Tensor> sums(m.like.size());
  const auto* present = m.present.const_data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (present[i] != 0) sums[i] = m.view(flats, i);
  reset();
  return sums;
}

void OrderedSum::reset() {
  Impl& m = *impl_;
  for (PartialSum& partial : m.partials) m.spare.push_back(std::move(partial.flats));
  m.partials.clear();
  m.present = at::zeros({static_cast<std::int64_t>(m.like.size())}, at::kByte);
  m.added = 0;
}

}  // namespace composer::dist
