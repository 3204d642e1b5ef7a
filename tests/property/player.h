#pragma once
// A trainer of a program, what has been done with it, and what must hold of it between two operations.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/trainer/trainer.h"
#include "tests/property/parts.h"
#include "tests/property/reference.h"

namespace composer::property {

// A rule that did not hold.
struct Failure {
  std::string rule, text;
};

template <class... Parts>
[[noreturn]] void fail(const char* rule, const Parts&... parts) {
  throw Failure{rule, join(parts...)};
}

class Player {
 public:
  Player(const Setup& setup, int index, std::shared_ptr<TrainLoader> loader, std::filesystem::path folder,
         Hook::Act act);

  // From nothing, or from the newest checkpoint: exactly as after a kill.
  void build();
  void destroy();

  char name() const { return static_cast<char>('a' + index_); }
  Trainer& trainer() { return *trainer_; }
  bool is_built() const { return trainer_ != nullptr; }
  std::int64_t batch() const { return trainer_ ? trainer_->state().timestamp.batch : 0; }
  bool handles_signals() const { return index_ < setup_.signals; }
  bool has_reached(OptionalTime limit) const { return limit && trainer_->state().timestamp.reached(*limit); }

  // Before and after each operation, of whichever trainer it is. `whole`: it did not end by an error.
  void begin_op(const Plan& plan);
  void end_op(bool whole);
  void count_batches();

  void check_trained();
  void check_saved();
  void check_evaluated(std::int64_t subset);
  void check_not_partly_evaluated();
  void check_predicted(const std::vector<Outputs>& outputs, bool of_train_loader);
  AnyDataSpec predicted_on(bool train_loader) const;
  Batch next_given();

  HookPtr hook;
  std::shared_ptr<Watch> watch;
  std::shared_ptr<WatchingAlgorithm> algorithm;

  // What the model knows of the fit that is going on, or was the last.
  bool in_fit = false;
  OptionalTime limit;      // of fit() without a duration
  OptionalTime fit_limit;  // of this one; unset: as long as the caller goes on
  bool limit_is_known = true;
  bool resumed = false;  // and has not begun a fit since
  bool owes = false;     // an error or a signal has ended its last fit, so the next one may have work left
  std::optional<std::int64_t> stopped_at;  // the batch at which somebody asked it to stop, or signalled
  int signal = 0;
  bool may_be_interrupted = false;  // by a signal that another trainer has got before this one's fit
  std::optional<Ids> offered;       // to step(batch), and not counted yet
  std::int64_t begun_at = 0;

  static constexpr std::size_t kPairCount = 11;

  // What is as before if a fit is refused.
  struct FitMemory {
    bool in_fit, may_be_interrupted;
    OptionalTime fit_limit;
    std::optional<std::int64_t> stopped_at;
    int signal;
    std::int64_t begun_at, batch;
  };
  FitMemory memory() const { return {in_fit, may_be_interrupted, fit_limit, stopped_at, signal, begun_at, batch()}; }
  void remember(const FitMemory& before) {
    in_fit = before.in_fit, may_be_interrupted = before.may_be_interrupted, fit_limit = before.fit_limit;
    stopped_at = before.stopped_at, signal = before.signal, begun_at = before.begun_at;
  }

 private:
  TrainerOptions options();
  void call_again(std::int64_t fits);
  std::vector<std::vector<Ids>> evaluated_on();
  OptionalTime first_limit() const;
  std::string where(std::int64_t batch) const;

  Setup setup_;
  int index_;
  std::shared_ptr<TrainLoader> loader_;
  std::filesystem::path folder_;
  Places places_;
  std::shared_ptr<TinyModel> model_;
  std::shared_ptr<Closer> closer_;
  std::unique_ptr<Trainer> trainer_;
  History history_;
  std::int64_t newest_ = 0;             // checkpoint that was seen
  std::array<int, kPairCount> owed_{};  // of each pair of events: the second, after an error
  int given_ = 0;
};

}  // namespace composer::property
