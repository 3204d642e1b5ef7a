#include "composer/dist/described_options.h"

#include "composer/core/error.h"

namespace composer::dist {
namespace {

// The value as text, or "unset".
std::string tri_state(const std::optional<bool>& given) { return !given ? "unset" : *given ? "true" : "false"; }

}  // namespace

std::vector<Option<DistributedOptions>> distributed_options() {
  using O = DistributedOptions;
  constexpr const char* kSameUpToRounding = "the results are the same, up to rounding";
  const auto unlogged = [](auto field) { return std::move(field).unlogged(kSameUpToRounding); };
  return all_options(
      option("split_batches", &O::split_batches),
      unlogged(option("ddp_sync_strategy", &O::ddp_sync_strategy,
                      {{"single_auto_sync", SyncStrategy::SINGLE_AUTO_SYNC},
                       {"multi_auto_sync", SyncStrategy::MULTI_AUTO_SYNC},
                       {"forced_sync", SyncStrategy::FORCED_SYNC}})
                   .shown([](SyncStrategy strategy) { return static_cast<std::int64_t>(strategy); })),
      unlogged(option("find_unused_parameters", &O::find_unused_parameters).shown(tri_state)),
      option("broadcast_buffers", &O::broadcast_buffers),
      unlogged(option("bucket_cap_mb", &O::bucket_cap_mb).at_least(1, "MiB")),
      option("gradients_in_bf16", &O::gradients_in_bf16),  //
      option("virtual_shards", &O::virtual_shards),
      unlogged(option("zero_stage", &O::zero_stage)
                   .must(join("be ", kZeroStages), [](std::int64_t stage) { return stage >= 0 && stage <= 2; })),
      unlogged(option("sharded_checkpoints", &O::sharded_checkpoints)));
}

std::vector<Option<DataParallelOptions>> data_parallel_options() {
  using O = DataParallelOptions;
  const auto as_number = [](bool yes) { return std::int64_t{yes}; };
  return all_options(option("bucket_cap_mb", &O::bucket_cap_mb).at_least(1, "MiB"),
                     option("find_unused_parameters", &O::find_unused_parameters).shown(tri_state),
                     option("gradients_in_bf16", &O::gradients_in_bf16).shown(as_number),
                     option("broadcast_buffers", &O::broadcast_buffers).shown(as_number),
                     option("share_values", &O::share_values).shown(as_number));
}

}  // namespace composer::dist
