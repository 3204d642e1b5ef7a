#pragma once
#include <cstdint>
#include <optional>

namespace composer::dist {

// When the gradients of microbatches are averaged over ranks.
enum class SyncStrategy : std::uint8_t {
  SINGLE_AUTO_SYNC,  // during the backward pass of the last microbatch
  MULTI_AUTO_SYNC,   // during that of every microbatch
  FORCED_SYNC        // after the last microbatch, whole
};

// How a trainer trains together with those of other processes.
struct DistributedOptions {
  // A loader's batch is that of all ranks, and each takes its slice of it. False: loaders give each rank its own
  // samples; the batches of an epoch, and their sizes, may differ by rank.
  bool split_batches = true;
  SyncStrategy ddp_sync_strategy = SyncStrategy::SINGLE_AUTO_SYNC;
  // Whether parameters may get no gradient in a step. False: a step that leaves one out is an error. Unset: true as
  // soon as a step has left one out.
  std::optional<bool> find_unused_parameters = {};
  bool broadcast_buffers = true;    // batch-norm statistics are rank 0's at the start of each batch
  std::int64_t bucket_cap_mb = 25;  // MiB; gradients travel in pieces of about this size
  bool gradients_in_bf16 = false;   // half of the bytes on the network, gradients rounded to bf16
  // A power of two: that many parts of a batch are trained one by one, and their gradients are added in an order that
  // does not depend on the number of ranks, so that 1, 2, 4 ... ranks give equal bits on a CPU. 0: off.
  std::int64_t virtual_shards = 0;
  // Stages of ZeRO. 1: each rank keeps the optimizer's state of some parameters and updates these. 2: it also keeps
  // their gradients alone, from the end of the last backward pass on. 0: every rank keeps and updates all.
  std::int64_t zero_stage = 0;
  // With zero_stage: each rank writes its part of the optimizer's state into the checkpoint, instead of rank 0 all.
  bool sharded_checkpoints = false;
};

}  // namespace composer::dist
