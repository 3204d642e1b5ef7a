#pragma once
#include <cstdint>
#include <optional>

namespace composer::dist {

// When the gradients of microbatches are averaged over ranks.
enum class SyncStrategy : std::uint8_t {
  SINGLE_AUTO_SYNC,  // during the backward pass of the last microbatch
  MULTI_AUTO_SYNC,   // during the backward pass of every microbatch
  FORCED_SYNC        // after the last microbatch, all at once
};

// How a trainer trains together with the trainers of other processes.
struct DistributedOptions {
  // True: a loader's batch is the batch of all ranks, and each rank takes its slice. False: loaders give each rank its
  // own samples; the number of batches in an epoch, and their sizes, may differ by rank.
  bool split_batches = true;
  // When gradients are averaged: in the backward pass of the last microbatch, in that of every one (MULTI_AUTO_SYNC),
  // or all at once after the last one (FORCED_SYNC).
  SyncStrategy ddp_sync_strategy = SyncStrategy::SINGLE_AUTO_SYNC;
  // Whether each step looks for parameters without a gradient before its backward pass. False: such a parameter is an
  // error. Unset: false until a step leaves one out, then true.
  std::optional<bool> find_unused_parameters = {};
  bool broadcast_buffers = true;    // before each batch, all ranks get rank 0's batch-norm statistics
  std::int64_t bucket_cap_mb = 25;  // MiB; gradients are sent in pieces of about this size
  bool gradients_in_bf16 = false;   // round gradients to bf16 for sending, which halves the bytes
  // A power of two; 0: off. Each batch is trained in so many parts, and their gradients are added in a fixed order, so
  // that 1, 2, 4 ... ranks compute equal bits on a CPU.
  std::int64_t virtual_shards = 0;
  // Stage of ZeRO. 0: every rank keeps everything. 1: each rank keeps the optimizer's state of its own parameters and
  // updates these. 2: after the last backward pass it keeps only their gradients, too.
  std::int64_t zero_stage = 0;
  // With zero_stage 1 or 2: each rank writes its part of the optimizer's state into the checkpoint. False: rank 0
  // writes all.
  bool sharded_checkpoints = false;
};

}  // namespace composer::dist
