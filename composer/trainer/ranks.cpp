#include "composer/trainer/ranks.h"

#include <array>
#include <bit>
#include <chrono>
#include <exception>
#include <future>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include "composer/core/error.h"
#include "composer/data/for_rank.h"
#include "composer/dist/agreement.h"
#include "composer/dist/described_options.h"
#include "composer/dist/world.h"
#include "composer/trainer/votes.h"

namespace composer {
namespace {

constexpr std::chrono::seconds kPause{1};  // between two messages of ranks that wait for rank 0

// These options decide which messages follow: ranks that differ in them would wait for each other forever.
std::vector<std::string> lines_of(const dist::DistributedOptions& options) {
  std::vector<std::string> lines;
  for (const Option<dist::DistributedOptions>& option : dist::distributed_options()) {
    const StateValue value = option.value(options);
    const auto* yes = std::get_if<bool>(&value);
    lines.push_back(join(option.name, " = ", yes ? (*yes ? "1" : "0") : text_of(value)));
  }
  return lines;
}

}  // namespace

Ranks::Ranks(std::shared_ptr<dist::World> world, const dist::DistributedOptions& options)
    : world_(world ? std::move(world) : dist::World::of_process()),
      options_(options),
      rank_(world_->rank()),
      size_(world_->size()) {
  const std::int64_t shards = options_.virtual_shards, stage = options_.zero_stage;
  if (stage == 3)
    throw ConfigError("distributed.zero_stage: must be ", dist::kZeroStages, ", got 3; parameters cannot be sharded");
  check(options_, dist::distributed_options(), "distributed.");
  if (shards < 0 || (shards > 0 && (!std::has_single_bit(static_cast<std::uint64_t>(shards)) || shards % size_ != 0)))
    throw ConfigError("distributed.virtual_shards: must be a power of two that is a multiple of the number of ranks, ",
                      size_, ", or 0 for none, got ", shards);
  if (shards > 0 && !options_.split_batches)
    throw ConfigError("distributed.virtual_shards: needs split_batches, because shards are parts of one batch of all");
  if (stage == 2 && shards > 0)
    throw ConfigError("distributed.zero_stage: 2 does not go with virtual_shards, which add up gradients in an order ",
                      "of their own; set zero_stage = 1");
  if (stage == 2 && options_.gradients_in_bf16)
    throw ConfigError("distributed.zero_stage: 2 does not go with gradients_in_bf16; set zero_stage = 1");
  if (options_.sharded_checkpoints && stage == 0)
    throw ConfigError("distributed.sharded_checkpoints: has no effect without zero_stage, because rank 0 has all");
  check_same("distributed", lines_of(options_));
}

void Ranks::check_same(const std::string& who, const std::vector<std::string>& lines) const {
  if (alone()) return;
  try {
    dist::check_same_on_all_ranks(*world_, who, lines);
  } catch (const ConfigError&) {
    common_error_ = std::current_exception();
    throw;
  }
}

void Ranks::rethrow_to_all() const {
  if (alone() || std::current_exception() == common_error_) throw;
  try {
    world_->rethrow();
  } catch (const dist::PeerLost&) {
    throw;
  } catch (...) {
    world_->fail(describe(std::current_exception()));
    throw;
  }
}

void Ranks::settle(std::exception_ptr error) const {
  const std::vector<std::string> texts = world_->all_gather(error ? "!" + describe(error) : "");
  for (std::size_t rank = 0; !error && rank < texts.size(); ++rank)
    if (!texts[rank].empty()) error = std::make_exception_ptr(ConfigError("rank ", rank, ": ", texts[rank].substr(1)));
  if (!error) return;
  common_error_ = error;
  std::rethrow_exception(error);
}

void Ranks::while_first(const std::function<void()>& run) const {
  if (alone()) return run();
  std::future<void> running;
  if (first()) running = std::async(std::launch::async, run);
  const auto runs = [&] { return running.valid() && running.wait_for(kPause) == std::future_status::timeout; };
  while (any(runs())) {
  }
  if (running.valid()) running.get();
}

bool Ranks::any(bool own) const {
  if (alone()) return own;
  const at::Tensor vote = at::scalar_tensor(own ? 1 : 0, at::kLong);
  world_->max(vote);
  return vote.item<std::int64_t>() != 0;
}

std::optional<std::int64_t> Ranks::longest(const std::optional<std::int64_t>& own) const {
  if (alone()) return own;
  const at::Tensor votes = at::tensor({own.value_or(0), static_cast<std::int64_t>(!own)}, at::kLong);
  world_->max(votes);
  const std::int64_t* vote = votes.const_data_ptr<std::int64_t>();
  return vote[1] != 0 ? std::nullopt : std::optional(vote[0]);
}

std::uint64_t Ranks::same(std::uint64_t value) const {
  return alone() ? value : std::stoull(world_->broadcast(std::to_string(value)));
}

std::string Ranks::same(const std::string& text) const { return alone() ? text : world_->broadcast(text); }

Feed Ranks::feed(const AnyDataSpec& spec, const std::string& label, std::int64_t subset) const {
  if (!spec || !splits()) return Feed(spec, label, subset);
  Feed feed(data::for_rank(spec, rank_, size_, options_.virtual_shards), label, subset);
  feed.set_batch_size(spec.dataloader->batch_size());
  return feed;
}

Ranks::Notices Ranks::exchange_notices(const Stop& stop, int signal, bool saved) const {
  const bool asked = stop.asked();
  const Wish wish{.stop = asked, .kind = stop.kind(), .signal = signal};
  const Vote own = vote_of(wish, rank_, size_);
  std::array<std::int64_t, 4> votes{own[0], own[1], own[2], saved ? 1 : 0};
  world_->max(at::from_blob(votes.data(), static_cast<std::int64_t>(votes.size()), at::kLong));
  const Decision decision = decide({votes[0], votes[1], votes[2]}, size_);
  if (decision.asker >= 0) {
    const std::string why = world_->broadcast(asked ? stop.why() : "", decision.asker);
    if (!asked || wish.kind != decision.kind) stop.ask(why, decision.kind);
  }
  return {.stop = decision.asker >= 0, .signal = decision.signal, .saved = votes[3] != 0};
}

Ranks::EvalCounts Ranks::sum(const EvalCounts& own) const {
  const SignalVote vote = vote_of(own.signal);
  const at::Tensor sums = at::tensor({own.samples, own.tokens, vote[0], vote[1]}, at::kLong);
  world_->sum(sums);
  const std::int64_t* sum = sums.const_data_ptr<std::int64_t>();
  return {.samples = sum[0], .tokens = sum[1], .signal = signal_of({sum[2], sum[3]})};
}

}  // namespace composer
