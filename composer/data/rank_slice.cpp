#include "composer/data/rank_slice.h"

#include <algorithm>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"

namespace composer::data {
namespace {

std::int64_t count(const Batch& batch, const DataSpec& spec) {
  return spec.get_num_samples_in_batch ? spec.get_num_samples_in_batch(batch) : get_num_samples_in_batch(batch);
}

Batch rows(Batch batch, RankSlice slice) {
  for (auto& [name, tensor] : batch)
    if (tensor.dim() > 0) tensor = tensor.slice(0, slice.begin, slice.end);
  return batch;
}

// Returns part `number` of what the spec's split_batch returns for this size.
Batch split_part(const Batch& batch, const DataSpec& spec, std::int64_t size, std::size_t number,
                 std::int64_t expected) {
  std::vector<Batch> parts = spec.split_batch(batch, size);
  if (parts.size() <= number)
    throw DataError("split_batch of the DataSpec gave ", parts.size(), " parts of at most ", size,
                    " samples; the slices of ranks need at least ", number + 1);
  if (const std::int64_t got = count(parts[number], spec); got != expected)
    throw DataError("split_batch of the DataSpec with a size of ", size, ": part ", number, " has ", got,
                    " samples instead of ", expected, "; all parts but the last must have the requested size");
  return std::move(parts[number]);
}

}  // namespace

RankSlice rank_slice(std::int64_t samples, std::int64_t rank, std::int64_t world_size, std::int64_t shards) {
  if (world_size < 1) throw ConfigError("rank_slice: world_size must be >= 1, got ", world_size);
  if (rank < 0 || rank >= world_size)
    throw ConfigError("rank_slice: rank must be from 0 to ", world_size - 1, ", got ", rank);
  if (samples < 0) throw DataError("rank_slice: the number of samples must be >= 0, got ", samples);
  if (shards != 0) {
    if (shards < 0 || shards % world_size != 0)
      throw ConfigError("rank_slice: shards must be a multiple of the number of ranks, ", world_size, ", got ", shards);
    const std::int64_t of_rank = shards / world_size;
    return {rank_slice(samples, rank * of_rank, shards).begin,
            rank_slice(samples, (rank + 1) * of_rank - 1, shards).end};
  }
  const std::int64_t least = samples / world_size, longer = samples % world_size;
  const std::int64_t begin = rank * least + std::min(rank, longer);
  return {begin, begin + least + (rank < longer ? 1 : 0)};
}

Batch slice_batch(const Batch& batch, const DataSpec& spec, std::int64_t rank, std::int64_t world_size,
                  std::int64_t shards) {
  const std::int64_t samples = count(batch, spec);
  const RankSlice slice = rank_slice(samples, rank, world_size, shards);
  if (slice.size() == samples) return batch;
  if (slice.size() == 0) return rows(batch, {});
  if (shards != 0 && spec.split_batch)
    throw ConfigError("virtual_shards: need batches whose rows are samples; this DataSpec has a split_batch");
  if (!spec.split_batch) {
    get_num_samples_in_batch(batch);  // throws unless all tensors have the same number of rows
    return rows(batch, slice);
  }
  if (slice.begin == 0) return split_part(batch, spec, slice.end, 0, slice.end);
  // Larger slices come first, so the slice ends before 2 * begin: it is at the beginning of the second part of size
  // `begin`.
  const Batch rest = split_part(batch, spec, slice.begin, 1, std::min(slice.begin, samples - slice.begin));
  return count(rest, spec) == slice.size() ? rest : split_part(rest, spec, slice.size(), 0, slice.size());
}

}  // namespace composer::data
