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

// What the trainers of all ranks agree on. With one rank, nothing is asked and nothing changes.
class Ranks {
 public:
  // `world` null: that of the process. Throws ConfigError for invalid options, and if ranks have different ones.
  Ranks(std::shared_ptr<dist::World> world, const dist::DistributedOptions& options);

  bool alone() const { return size_ == 1; }
  bool first() const { return rank_ == 0; }  // the rank that logs and saves
  int rank() const { return rank_; }
  int size() const { return size_; }
  dist::World* world() const { return alone() ? nullptr : world_.get(); }
  const std::shared_ptr<dist::World>& shared_world() const { return world_; }
  const dist::DistributedOptions& options() const { return options_; }

  // Runs what makes no collective, on every rank. If it throws on some, it does so on all: on the others a ConfigError
  // that names the first such rank and its error.
  template <class F>
  auto together(F&& run) const;
  // Throws the error that is being handled, after telling it to the other ranks, which cannot go on without this one;
  // not if all ranks have it. If it comes of the loss of another rank, that is a PeerLost.
  [[noreturn]] void rethrow_to_all() const;
  // Throws ConfigError on all ranks, with the first difference, unless all have the same lines.
  void check_same(const std::string& who, const std::vector<std::string>& lines) const;
  // Runs on rank 0 what may take longer than a collective waits; all return when it has ended. It makes no collective.
  void while_first(const std::function<void()>& run) const;
  bool any(bool own) const;
  // The largest of what ranks have; unset if it is so on some rank.
  std::optional<std::int64_t> longest(const std::optional<std::int64_t>& own) const;
  // What rank 0 has.
  std::uint64_t same(std::uint64_t value) const;
  std::string same(const std::string& text) const;

  // The batches of this rank, if loaders give those of all.
  Feed feed(const AnyDataSpec& spec, const std::string& label, std::int64_t subset) const;
  bool has_shards() const { return options_.virtual_shards > 0; }
  // Of ZeRO: 0 for one rank, which keeps everything.
  std::int64_t zero_stage() const { return alone() ? 0 : options_.zero_stage; }
  // Each rank writes a part of each checkpoint.
  bool shards_checkpoints() const { return zero_stage() > 0 && options_.sharded_checkpoints; }
  bool splits() const { return !alone() && options_.split_batches; }
  bool have_own_loaders() const { return !alone() && !splits(); }

  struct Heard {
    bool stop = false;
    int signal = 0;
    bool saved = false;
  };
  // Whether any rank was asked to stop, got a signal, or has saved. `stop` is asked as that of the first such rank.
  Heard hear(const Stop& stop, int signal, bool saved) const;

  struct EvalCounts {
    std::int64_t samples = 0, tokens = 0;
    int signal = 0;
  };
  // What all ranks have counted of a batch of an evaluation or prediction, of which each has its slice; and whether one
  // of them got a signal.
  EvalCounts sum(const EvalCounts& own) const;

 private:
  void settle(std::exception_ptr error) const;

  std::shared_ptr<dist::World> world_;
  dist::DistributedOptions options_;
  int rank_, size_;
  mutable std::exception_ptr of_all_;  // the last error that all ranks have thrown together
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
