#include "composer/trainer/trainer_run.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/core/exchange_watcher.h"
#include "composer/core/model_access.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/step/train_step.h"
#include "composer/step/weights_in_use.h"
#include "composer/trainer/calls.h"
#include "composer/trainer/checkpoints.h"
#include "composer/trainer/evaluation_loop.h"
#include "composer/trainer/fit.h"
#include "composer/trainer/loading.h"
#include "composer/trainer/replicas.h"
#include "composer/trainer/run_state.h"
#include "composer/trainer/signals.h"
#include "composer/trainer/stopping.h"
#include "composer/trainer/training_time.h"
#include "composer/util/own_random.h"

namespace composer {

// The part that copies of the state share.
class TrainerRun::Shared final : public Run, public ExchangeWatcher {
 public:
  Shared(const Needs& needs, Seconds grace_period)
      : needs_(needs), signals_(needs.stopping.signals()), grace_period_(grace_period) {}
  void close() {
    needs_.reset();
    signals_->end();
  }
  void load_first() const { trainer().loader.load_first(); }

  StateDict snapshot(bool weights_only) const override {
    trainer().calls.require_own_weights("state.run->snapshot", saved().engine);
    trainer().replicas.note_saved();
    return saved().snapshot(weights_only);
  }
  void with_model(WeightsUse use, std::uint64_t seed, const std::function<void(Model& model)>& act) const override {
    State& state = saved().state;
    const WeightsInUse::Scope weights(saved().weights_in_use, use);
    const OwnRandom random(state.device, seed);
    const RandomScope drawing(random);
    const at::NoGradGuard no_grad;
    const EvaluationMode evaluating(as_module(*state.model));
    const WeightsInUse::Forward passing(saved().weights_in_use);
    act(*state.model);
  }
  std::uint64_t weights_version() const override { return saved().weights_in_use.version(); }
  void exchange(const std::function<void()>& apply) override {
    const WeightsInUse::Unchanged trusted(saved().weights_in_use);
    apply();
  }
  bool interrupted() const override { return needs_ && needs_->stopping.interrupted(); }
  bool pauses() const override { return needs_ && needs_->stopping.pauses(); }
  bool is_resumable() const override { return needs_ && saved().checkpoints.identity().is_resumable(); }
  bool begins_again() const override { return needs_ && saved().checkpoints.identity().begins_again(); }
  std::string identity() const override { return needs_ ? saved().checkpoints.identity().text() : std::string(); }
  std::string claim_checkpoints(const void* by, const char* who, const std::string& folder, const std::string& filename,
                                bool whole) const override {
    return saved().checkpoints.identity().claim(by, who, folder, filename, whole);
  }
  void load(const LoadOptions& options) override { trainer().loader.load(options); }

  void keep_random() const override { saved().train_step.keep_random(); }
  void repeat_microbatch(bool backward) const override { saved().train_step.repeat(backward); }
  std::vector<std::int64_t> sample_indices() const override {
    if (!saved().fit || trainer().evaluation_loop.is_evaluating() || trainer().evaluation_loop.is_predicting())
      return {};
    return saved().train_step.microbatches().sample_indices(saved().fit->source.feed());
  }

  // Also called by background threads that write.
  std::optional<Seconds> time_left() const override {
    const std::optional<Seconds> since = signals_->since();
    return since ? std::optional(grace_period_ - *since) : std::nullopt;
  }

  // After a signal, every batch, epoch or iteration is saved as soon as it is counted, because there may be no later
  // one.
  IntervalMoment moment(Event event) const override {
    IntervalMoment moment = trainer().time.progress().moment_of(event, saved().state.dataloader_len);
    moment.last = interrupted();
    return moment;
  }

 private:
  const Needs& trainer() const {
    if (!needs_) throw Error("state.run: the trainer of this state is closed, so there is no run to save or to load");
    return *needs_;
  }

  const RunState& saved() const { return trainer().loader.run_state; }

  std::optional<Needs> needs_;
  std::shared_ptr<SignalWatch> signals_;
  Seconds grace_period_;
};

TrainerRun::TrainerRun(const Needs& needs, Seconds grace_period)
    : shared_(std::make_shared<Shared>(needs, grace_period)) {
  needs.loader.state.run = std::shared_ptr<Run>(shared_);
}

void TrainerRun::load_first() { shared_->load_first(); }
void TrainerRun::close() { shared_->close(); }

}  // namespace composer
