#pragma once
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace composer::data::detail {

struct StreamOrderSetup {
  std::vector<std::int64_t> shard_samples;
  std::int64_t batch_size = 1;
  bool shuffle = false;
  std::int64_t block_size = 1;  // samples that are shuffled with each other
  std::int64_t nodes = 1;       // canonical nodes; divides batch_size
};

// The order of a sharded data set's samples in an epoch, as a function of (seed, epoch) alone. Each canonical node has
// its share of the shards in all epochs, and gives the same part of each batch. Its shards are in a new order in each
// epoch; this sequence is cut into blocks, and the samples of a block are shuffled. So a place is found without the
// places before it, from the order of the shards and one block. Thread-safe.
class StreamOrder {
 public:
  explicit StreamOrder(StreamOrderSetup setup);

  std::int64_t samples() const { return samples_; }
  // The samples at places [from, from + count) of an epoch.
  std::vector<std::int64_t> part(std::uint64_t seed, std::int64_t epoch, std::int64_t from, std::int64_t count) const;
  // The shards that are needed for these places and for `ahead` more of each node that has one of them, in the order of
  // need.
  std::vector<std::size_t> shards(std::uint64_t seed, std::int64_t epoch, std::int64_t from, std::int64_t count,
                                  std::int64_t ahead) const;

  struct Place {
    std::size_t shard;
    std::int64_t sample;  // in the shard
  };
  Place place(std::int64_t sample) const;

 private:
  struct Span {  // consecutive samples of a shard
    std::size_t shard;
    std::int64_t first, count, at;  // at: place of the first in the node's sequence
  };
  struct Node {
    std::vector<Span> spans;
    std::vector<std::int64_t> blocks;  // where blocks begin, and the end
  };
  struct Epoch {
    std::uint64_t seed;
    std::int64_t epoch;
    std::vector<Node> nodes;
  };
  struct Block {
    std::uint64_t seed;
    std::int64_t epoch;
    std::size_t node, block;
    std::shared_ptr<const std::vector<std::int64_t>> samples;
  };
  struct OfNode {
    std::size_t node;
    std::int64_t at;  // in the node's sequence
  };

  OfNode of_node(std::int64_t place) const;
  std::shared_ptr<const Epoch> epoch_of(std::uint64_t seed, std::int64_t epoch) const;
  std::shared_ptr<const Epoch> made(std::uint64_t seed, std::int64_t epoch) const;
  std::vector<std::int64_t> block_ends(std::uint64_t seed, std::int64_t epoch, std::size_t node,
                                       std::int64_t count) const;
  std::shared_ptr<const std::vector<std::int64_t>> block_of(const Epoch& epoch, std::size_t node,
                                                            std::size_t block) const;

  StreamOrderSetup setup_;
  std::vector<std::int64_t> starts_;  // first sample of each shard, and the end
  std::int64_t samples_ = 0;
  mutable std::mutex mutex_;  // guards the members below
  mutable std::list<std::shared_ptr<const Epoch>> epochs_;
  mutable std::list<Block> blocks_;
};

}  // namespace composer::data::detail
