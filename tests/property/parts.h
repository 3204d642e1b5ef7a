#pragma once
// What a trainer is made of here: each part tells a Hook where the program is, and the Hook does what is planned there.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "composer/core/algorithm.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/data/loader.h"
#include "composer/step/metric_set.h"
#include "tests/property/reference.h"

namespace composer::property {

struct Injected : std::runtime_error {
  Injected() : std::runtime_error("injected") {}
};
struct Endless : std::runtime_error {
  Endless() : std::runtime_error("more batches than any of these runs has") {}
};

// Does what is planned when that site is reached for the nth time.
class Hook {
 public:
  using Act = std::function<void(Action, Site)>;
  explicit Hook(Act act) : act_(std::move(act)) {}
  void arm(const Plan& plan) { plan_ = plan, seen_ = 0, fired_ = false; }
  void disarm() { plan_.action = Action::NONE; }
  void reach(Site site);
  bool fired() const { return fired_; }

 private:
  Act act_;
  Plan plan_;
  int seen_ = 0;
  bool fired_ = false;
};
using HookPtr = std::shared_ptr<Hook>;

// What is open between a *_START and its *_END, and how often each event was seen in this operation.
class Spans {
 public:
  void see(Event event);
  void reset();
  int count(Event event) const { return counts_.at(static_cast<std::size_t>(event)); }
  // Of what is wrong with them; empty: nothing. All of them must be closed.
  std::string wrong() const;

 private:
  std::array<int, kEventCount> counts_{};
  std::vector<Event> open_;
  std::string wrong_;
};

class TinyModel final : public Model {
 public:
  TinyModel(const Setup& setup, HookPtr hook);
  Outputs forward(const Batch& batch) override;
  Losses loss(const Outputs& outputs, const Batch& batch) override;
  Metrics get_metrics(bool is_train) const override;
  Weights weights() const;
  static Weights weights_of(const at::Tensor& count, const at::Tensor& order, const at::Tensor& noise);

 private:
  Setup setup_;
  HookPtr hook_;
  at::Tensor count_, order_, noise_;
};

// Watches as callbacks do. At each BATCH_END it notes what was trained on.
class Watch final : public Callback {
 public:
  explicit Watch(HookPtr hook) : hook_(std::move(hook)) {}
  void run_event(Event event, const State& state, Logger& logger) override;
  void close(const State&, Logger&) override { ++closed; }
  Spans spans;
  std::vector<std::pair<std::int64_t, Ids>> batches;  // in this operation: how many were counted, and which it was
  int batches_begun = 0, closed = 0;

 private:
  HookPtr hook_;
};

class WatchingAlgorithm final : public Algorithm {
 public:
  EventSet events() const override { return EventSet::all(); }
  void apply(Event event, State&, Logger&) override { spans.see(event); }
  Spans spans;
};

// Evaluates with other weights, as those that average them do.
class Swap final : public Algorithm {
 public:
  EventSet events() const override { return {Event::EVAL_START, Event::EVAL_END}; }
  void apply(Event event, State& state, Logger&) override;
};

// Takes a snapshot of the run when it is closed.
class Closer final : public Callback {
 public:
  void close(const State& state, Logger& logger) override;
  bool whole = false;
};

class FailingLogger final : public LoggerDestination {
 public:
  explicit FailingLogger(HookPtr hook) : hook_(std::move(hook)) {}
  void log_metrics(std::span<const LogEntry>, std::int64_t, const State&) override { hook_->reach(Site::LOG); }

 private:
  HookPtr hook_;
};

// Tells its hook before it reads; may hide its length.
class TrainLoader final : public Loader {
 public:
  explicit TrainLoader(const Setup& setup) : inner_(make_loader(setup)), unknown_(setup.unknown_length != 0) {}
  void seek(std::int64_t epoch, std::int64_t batch) override { inner_->seek(epoch, batch); }
  std::optional<Batch> next() override;
  std::optional<std::int64_t> num_batches() const override;
  std::optional<std::int64_t> batch_size() const override { return inner_->batch_size(); }
  HookPtr hook;  // of whoever works now

 private:
  std::shared_ptr<Loader> inner_;
  bool unknown_;
};

}  // namespace composer::property
