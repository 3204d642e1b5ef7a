#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "composer/core/stop.h"
#include "composer/data/data_spec.h"
#include "composer/dist/options.h"
#include "composer/step/feed.h"

namespace composer {

namespace dist {
class World;
}  // namespace dist

// The ranks that train together, as a trainer sees them. With one rank nothing is exchanged.
class Ranks {
 public:
  // A null `world` means that of the process. Throws ConfigError for invalid options, and if the options of ranks
  // differ.
  Ranks(std::shared_ptr<dist::World> world, const dist::DistributedOptions& options);

  bool alone() const { return size_ == 1; }
  bool first() const { return rank_ == 0; }  // the rank that logs and saves
  int rank() const { return rank_; }
  int size() const { return size_; }
  dist::World* world() const { return alone() ? nullptr : world_.get(); }
  const std::shared_ptr<dist::World>& shared_world() const { return world_; }
  const dist::DistributedOptions& options() const { return options_; }

  // Runs a function without collectives on every rank. If it throws on some ranks, all ranks throw: the others throw a
  // ConfigError with the first such rank and its error.
  template <class F>
  auto together(F&& run) const;
  // Rethrows the exception that is being handled. Before that, it sends the error to the other ranks, which cannot
  // continue without this one, unless all ranks have thrown it. If the cause is the loss of another rank, the error
  // becomes a PeerLost.
  [[noreturn]] void rethrow_to_all() const;
  // Throws ConfigError on all ranks, with the first difference, unless the lines of all ranks are equal.
  void check_same(const std::string& who, const std::vector<std::string>& lines) const;
  // Runs a function on rank 0 that may take longer than a collective's timeout; all ranks return when it has ended. The
  // function may not call collectives.
  void while_first(const std::function<void()>& run) const;
  bool any(bool own) const;
  // The largest value of all ranks; unset if it is unset on any rank.
  std::optional<std::int64_t> longest(const std::optional<std::int64_t>& own) const;
  // The value of rank 0.
  std::uint64_t same(std::uint64_t value) const;
  std::string same(const std::string& text) const;

  // The batches of this rank, if each loader gives the batches of all ranks.
  Feed feed(const AnyDataSpec& spec, const std::string& label, std::int64_t subset) const;
  bool has_shards() const { return options_.virtual_shards > 0; }
  // The ZeRO stage; 0 for one rank, which keeps everything.
  std::int64_t zero_stage() const { return alone() ? 0 : options_.zero_stage; }
  // Whether each rank writes a part of each checkpoint.
  bool shards_checkpoints() const { return zero_stage() > 0 && options_.sharded_checkpoints; }
  bool splits() const { return !alone() && options_.split_batches; }
  bool have_own_loaders() const { return !alone() && !splits(); }

  struct Notices {
    bool stop = false;
    int signal = 0;
    bool saved = false;
  };
  // Whether any rank was asked to stop, has noted a signal, or has saved. If any rank was asked to stop, `stop` is
  // asked with the reason of the first such rank.
  Notices exchange_notices(const Stop& stop, int signal, bool saved) const;

  struct EvalCounts {
    std::int64_t samples = 0, tokens = 0;
    int signal = 0;
  };
  // The counts of all ranks for one batch of an evaluation or prediction, of which each rank has a slice, and the
  // signal that any of them has noted.
  EvalCounts sum(const EvalCounts& own) const;

 private:
  void settle(std::exception_ptr error) const;

  std::shared_ptr<dist::World> world_;
  dist::DistributedOptions options_;
  int rank_, size_;
  mutable std::exception_ptr common_error_;  // the last error that all ranks have thrown together
};

template <class F>
auto Ranks::together(F&& run) const {
  using Result = std::invoke_result_t<F>;
  constexpr bool kIsVoid = std::is_void_v<Result>;
  if (alone()) return std::forward<F>(run)();
  std::optional<std::conditional_t<kIsVoid, std::monostate, Result>> result;
  std::exception_ptr error;
  try {
    if constexpr (kIsVoid)
      std::forward<F>(run)();
    else
      result.emplace(std::forward<F>(run)());
  } catch (...) {
    error = std::current_exception();
  }
  settle(error);
  if constexpr (!kIsVoid) return std::move(*result);
}

}  // namespace composer
