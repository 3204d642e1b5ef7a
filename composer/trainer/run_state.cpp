// What checkpoints keep of a run beside the weights, by one function for saving and loading.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/run_lock.h"
#include "composer/core/error.h"
#include "composer/core/exchange_watcher.h"
#include "composer/core/model_access.h"
#include "composer/core/plugin_state.h"
#include "composer/formats/weights.h"
#include "composer/net/remote_store.h"
#include "composer/optim/optimizer_state.h"
#include "composer/remote/checkpoints.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/hyperparameters.h"
#include "composer/trainer/impl.h"
#include "composer/trainer/required_algorithms.h"
#include "composer/util/checksum.h"

namespace composer {
namespace {

void visit_values(StateVisitor visit, MetricValues& metrics) {
  for (const std::string& label : visit.names()) {
    StateVisitor inner = visit.scope(label);
    for (const std::string& name : inner.names()) {
      at::Tensor value;
      inner(name, value);
      metrics.set(label, name, value);
    }
  }
}

// Of each metric its value, whether that was measured on the saved weights, and which values are better. Earlier
// versions tell the first alone: then none is taken for one of these weights.
void visit_metrics(StateVisitor& visit, MetricValues& metrics) {
  std::map<std::string, std::map<std::string, at::Tensor>> values;
  std::map<std::string, std::vector<std::string>> current;
  std::map<std::string, std::map<std::string, Better>> directions;
  for (const auto& [label, by_name] : metrics.all())
    for (const auto& [name, reported] : by_name) {
      values[label][name] = reported.value;
      if (reported.is_current) current[label].push_back(name);
      if (reported.better) directions[label][name] = *reported.better;
    }
  if (!visit.is_loading()) {
    visit("metrics", values);
    visit("current_metrics", current);
    return visit("metric_directions", directions);
  }
  current.clear(), directions.clear();
  visit_values(visit.scope("metrics"), metrics);
  if (visit.has("current_metrics")) visit("current_metrics", current);
  if (visit.has("metric_directions")) visit("metric_directions", directions);
  metrics.weights_changed();
  for (const auto& [label, names] : current)
    for (const std::string& name : names)
      if (const at::Tensor* value = metrics.find(label, name)) metrics.set(label, name, at::Tensor(*value));
  for (const auto& [label, by_name] : directions)
    for (const auto& [name, better] : by_name) metrics.declare(label, name, better);
}

// A program that prints the loss of the last batch can do so, too, when there was nothing left to train.
void visit_losses(StateVisitor& visit, Losses& losses) {
  StateVisitor inner = visit.scope("batch_loss");
  if (!visit.is_loading()) {
    for (auto& [name, value] : losses) inner(name, value);
    return;
  }
  losses.clear();
  for (const std::string& name : inner.names()) {
    at::Tensor value;
    inner(name, value);
    losses.set(name, value);
  }
}

// Says of which file the error is.
template <class F>
void naming(const std::string& from, F&& load) {
  try {
    load();
  } catch (const CheckpointError& error) {
    constexpr std::string_view kWho = "checkpoint: ";
    const std::string text = error.what();
    if (!text.starts_with(kWho)) throw;
    throw CheckpointError(from, ": ", text.substr(kWho.size()));
  }
}

const StateDict* group_in(const StateDict& saved, const char* name) {
  const StateValue* found = saved.find(name);
  const auto* group = found ? std::get_if<StateDict>(found) : nullptr;
  if (found && !group) throw CheckpointError("checkpoint: ", name, " is a single value, where there should be several");
  return group;
}

// Now, because the generators are restored only once training begins.
void check_random(const StateDict& saved, at::Device device) {
  const OwnRandom other(device, /*seed=*/0);
  const StateDict own = other.state();
  if (std::ranges::all_of(own.entries(), [&](const auto& entry) { return saved.find(entry.first); }))
    other.restore(saved);
}

// Whether the callback that has finished the run, whose name its reason begins with, has other options now or is gone.
bool judges_anew(const std::string& finished, const StateDict& before, const StateDict& now) {
  const std::string name = finished.substr(0, finished.find(':')) + '/';
  const auto has_its_name = [&](const StateDict::Entry& entry) { return entry.first.starts_with(name); };
  const StateDict differing = changed(before, now), missing = changed(now, before);
  return std::ranges::any_of(differing.entries(), has_its_name) || std::ranges::any_of(missing.entries(), has_its_name);
}

}  // namespace

class Trainer::Impl::AsRun final : public Run, public ExchangeWatcher {
 public:
  explicit AsRun(Impl& trainer)
      : trainer_(&trainer), signals_(trainer.signals), grace_period_(trainer.options.grace_period) {}
  void cut() { trainer_ = nullptr; }

  StateDict snapshot(bool weights_only) const override {
    trainer().require_own_weights("state.run->snapshot");
    trainer().replicas.note_saved();
    return trainer().run_state(weights_only);
  }
  void with_model(WeightsUse use, std::uint64_t seed, const std::function<void(Model& model)>& act) const override {
    State& state = trainer().state;
    const WeightsInUse::Scope weights(trainer().weights_in_use, use);
    const OwnRandom random(state.device, seed);
    const RandomScope drawing(random);
    const at::NoGradGuard no_grad;
    const ModuleModes modes(as_module(*state.model));
    const auto restore = c10::make_scope_exit([&] { modes.restore(); });
    set_training(as_module(*state.model), false);
    const WeightsInUse::Forward passing(trainer().weights_in_use);
    act(*state.model);
  }
  std::uint64_t weights_version() const override { return trainer().weights_in_use.version(); }
  void exchange(const std::function<void()>& apply) override {
    const WeightsInUse::Unchanged trusted(trainer().weights_in_use);
    apply();
  }
  bool interrupted() const override { return trainer_ && trainer_->interrupted(); }
  bool pauses() const override { return trainer_ && trainer_->pauses(); }
  bool is_resumable() const override { return trainer_ && trainer_->is_resumable(); }
  bool begins_again() const override { return trainer_ && trainer_->resumption.begins_again; }
  std::string identity() const override {
    if (!is_resumable()) return {};
    const TrainerOptions& options = trainer_->options;
    std::string folder = saving::format_name(options.save_folder, trainer_->state.run_name);
    if (!net::is_uri(folder)) folder = std::filesystem::absolute(folder).lexically_normal();
    while (folder.ends_with('/')) folder.pop_back();
    return options.run_name + '\n' + folder;
  }
  std::string claim_checkpoints(const void* by, const char* who, const std::string& folder, const std::string& filename,
                                bool whole) const override {
    const saving::RunSaver* const saver = trainer().saver.get();
    const auto place_of = [](const std::filesystem::path& folder, const std::string& filename) {
      return (saving::canonical_folder(folder) / filename).lexically_normal().string();
    };
    const std::string place = place_of(folder, filename);
    const bool is_trainers =
        saver && (place == place_of(saver->options().folder, trainer().options.save_filename) ||
                  (whole && saving::canonical_folder(folder) == saving::canonical_folder(saver->options().folder)));
    if (is_trainers)
      throw ConfigError(who, folder, " is the trainer's save_folder, whose checkpoints would be taken for these, and ",
                        "these for the trainer's; set another folder", whole ? "" : ", or another filename");
    if (writers_.try_emplace(place, by).first->second != by)
      throw ConfigError(who, folder, " is where another one writes, with the names ", filename,
                        ", so that each would meet the other's; set another folder, or another filename");
    if (!is_resumable() || !saver) return {};
    util::Checksum sum;
    for (const std::string& text : {saver->options().run_id, filename}) sum.update(text.c_str(), text.size() + 1);
    const std::string text = sum.text();
    return text.substr(text.find(':') + 1);
  }
  void load(const LoadOptions& options) override { trainer().load(options); }

  void keep_random() const override { trainer().train_step.keep_random(); }
  void repeat_microbatch(bool backward) const override { trainer().train_step.repeat(backward); }
  std::vector<std::int64_t> sample_indices() const override {
    if (!trainer().fit || trainer().asides.evaluating || trainer().asides.predicting) return {};
    return trainer().train_step.sample_indices(trainer().fit->source.feed());
  }

  // Called by the threads that write, too.
  std::optional<Seconds> time_left() const override {
    const std::optional<Seconds> since = signals_->since();
    return since ? std::optional(grace_period_ - *since) : std::nullopt;
  }

  // After a signal every batch, epoch or iteration is saved as soon as it is counted: there may be no later.
  IntervalMoment moment(Event event) const override {
    IntervalMoment moment = trainer().progress().moment_of(event, trainer().state.dataloader_len);
    moment.last = interrupted();
    return moment;
  }

 private:
  Impl& trainer() const {
    if (!trainer_) throw Error("state.run: the trainer of this state is closed, so there is no run to save or to load");
    return *trainer_;
  }

  Impl* trainer_;
  std::shared_ptr<const SignalWatch> signals_;
  Seconds grace_period_;
  mutable std::map<std::string, const void*> writers_;  // of checkpoints, by folder and filename
};

Trainer::Impl::RunLink::RunLink(Impl& trainer) : run_(std::make_shared<AsRun>(trainer)), signals_(trainer.signals) {
  trainer.state.run = std::shared_ptr<Run>(run_);
}

void Trainer::Impl::RunLink::cut() {
  run_->cut();
  signals_->end();
}

// Of a rank without a saver as well.
bool Trainer::Impl::is_resumable() const {
  return !options.save_folder.empty() && options.autoresume && !options.save_weights_only &&
         options.save_num_checkpoints_to_keep != 0;
}

// Before INIT, where loggers and callbacks open their files: as long as the run has no checkpoint, the mark tells a
// later process whose they are.
void Trainer::Impl::mark_begun() {
  ranks.together([&] {  // on all ranks, whose options have not been compared yet
    if (!is_resumable() || !saver || engine.callbacks().empty()) return;
    const std::filesystem::path& folder = saver->options().folder;
    if (state.resumes) return saving::RunMark::end_left(folder, options.run_name);
    mark.emplace(folder, options.run_name, saver->options().run_id);
    if (mark->was_left() && !resumption.begins_again) saver->take_run_id(mark->run_id());
    resumption.begins_again = resumption.begins_again || mark->was_left();
  });
  resumption.begins_again = ranks.same(std::uint64_t{resumption.begins_again}) != 0;
}

// Once there is a checkpoint to resume from.
void Trainer::Impl::end_mark_if_saved() {
  if (!mark || saver->newest().empty()) return;
  mark->end();
  mark.reset();
}

// Empty: this rank has all.
optim::OwnsState Trainer::Impl::owns_state() {
  OptimizerShards* const shards = train_step.optimizer_shards();
  if (!shards) return {};
  return [shards](const at::Tensor& parameter) { return shards->is_own(parameter); };
}

// Metrics that are current, and evaluations that were due, are those of the weights that are saved with them.
void Trainer::Impl::visit_measured(StateVisitor& visit) {
  const auto is_there = [&](const char* name) { return !visit.is_loading() || visit.has(name); };
  const std::uint64_t weights = visit.is_loading() ? resumption.weights : weights_in_use.version();
  if (is_there("metrics")) visit_metrics(visit, state.metrics);
  if (visit.is_loading()) declare_metrics();
  if (is_there("batch_loss")) visit_losses(visit, state.batch_loss);
  if (is_there("evaluated")) evaluations.visit_evaluated(visit, weights);
}

// Earlier versions do not tell, and have logged them, unless the checkpoint was saved before the first fit.
void Trainer::Impl::visit_logged(StateVisitor& visit) {
  if (!visit.is_of_this_run()) return;
  if (!visit.is_loading() || visit.has("logged"))
    visit("logged", logged);
  else
    logged.algorithms = logged.options = true;
}

// What has been left out, when it was saved or by load_ignore_keys, stays as it is.
void Trainer::Impl::visit_state(StateVisitor& visit) {
  const auto is_there = [&](const char* name) { return !visit.is_loading() || visit.has(name); };
  const auto field = [&](const char* name, auto& value) {
    if (is_there(name)) visit(name, value);
  };
  field("timestamp", state.timestamp);
  field("previous_timestamp", state.previous_timestamp);
  field("eval_timestamp", state.eval_timestamp);
  field("predict_timestamp", state.predict_timestamp);
  field("seed", state.seed);
  std::string finished = visit.is_loading() ? "" : Resumption::reason_to_save(state.stop);
  field("stop", finished);
  if (visit.is_of_this_run()) visit("fit", fits.place);  // another run's fits are not ours
  settings.visit_state(visit, as_module(*state.model));
  visit_logged(visit);
  if (is_there("pending_evaluations")) evaluations.visit_pending(visit);
  if (!visit.is_loading()) visit_measured(visit);
  train_step.visit_state(visit);
  rates.schedules().visit_state(visit);
  visit("tuned", tuned);
  visit_required_algorithms(visit, engine);
  visit_plugins(visit, engine, /*warns=*/ranks.first());  // the others lack the loggers of rank 0
  // After the algorithms, which may give it the parameters that it had when it was saved.
  if (whole_optimizer && !visit.is_loading()) {
    visit("optimizer", *whole_optimizer);
  } else if (state.optimizer && is_there("optimizer")) {
    StateVisitor inner = visit.scope("optimizer");
    visit_optimizer(inner, *state.optimizer, as_module(*state.model), owns_state());
  }
  if (visit.is_loading()) {  // of all weights, also those that algorithms hand out
    weights_in_use.loaded();
    resumption.weights = weights_in_use.version();
    visit_measured(visit);
  }
  // What another run has saved is not this one's to count and delete.
  if (!saver) return;
  StateDict saved;
  if (!visit.is_loading()) {
    saver->save_state(saved, weights_in_use.version());
    visit("saver", saved);
  } else if (visit.is_of_this_run() && visit.has("saver")) {
    visit("saver", saved);
    saver->load_state(saved, state.timestamp.batch, state.timestamp, resumption.weights);
  }
}

// "model" and everything else, with the trained weights; of weights only, "model" as it is exported.
StateDict Trainer::Impl::run_state(bool weights_only) {
  StateDict all, weights;
  for (const auto& [name, tensor] : state_dict(as_module(*state.model))) weights[name] = tensor.detach();
  if (weights_only) {
    weights_in_use.put(weights, WeightsUse::EXPORT);
  } else {
    StateVisitor visit = StateVisitor::saving(all);
    visit_state(visit);
    all["hyperparameters"] =
        hyperparameters_of(options, state, logger, train, rates.made(), resumption.hyperparameters_before);
    all["rng"] = random.state();
    if (weights_in_use.version() != resumption.weights) resumption.waiting.drop({"evaluated"});  // of others
    resumption.waiting.put_into(all);
    weights_in_use.tell_handed_out(all);
  }
  all["model"] = std::move(weights);
  weights_in_use.put_trained(all);
  return all;
}

// Throws for what would be refused later, when the weights are loaded already.
void Trainer::Impl::check_run_state(const StateDict& saved, const std::string& from) const {
  RequiredAlgorithms required;
  naming(from, [&] {
    for (const char* name : {"hyperparameters", "algorithms", "callbacks"}) group_in(saved, name);
    if (const StateDict* const random = group_in(saved, "rng")) check_random(*random, state.device);
    const StateDict* const optimizer = group_in(saved, "optimizer");
    if (optimizer && state.optimizer) check_optimizer(*optimizer, *state.optimizer);
    required = compare_required_algorithms(saved, engine);
  });
  if (!required.missing.empty())
    throw CheckpointError(from, ": was trained with ", required.missing,
                          ", without which it cannot be loaded; give the trainer the same algorithms");
  // Of a run that goes on, all that differs is told.
  if (!required.differing.empty() && !resumption.found)
    warn(join(from, ": was trained with other options of algorithms that it requires: ", required.differing));
  check_plugins(saved, engine);
}

void Trainer::Impl::load_weights(const StateDict& saved, const std::string& from, bool strict) {
  const StateValue* found = saved.find("model");
  if (!found) return;
  const auto loaded = c10::make_scope_exit([this] { weights_in_use.loaded(); });
  formats::NamedTensors weights;
  for (const auto& [name, value] : std::get<StateDict>(*found).entries())
    weights.emplace_back(name, std::get<at::Tensor>(value));
  if (weights.empty() && !strict) return;  // all were ignored
  try {
    const WeightsReport report = composer::load_weights(as_module(*state.model), weights, from, {.strict = strict});
    if (!strict) check_loaded(report, from);
  } catch (const WeightsError& error) {
    const auto [missing, differing] = compare_required_algorithms(saved, engine);
    std::string why;
    if (!missing.empty()) why += "\nIt was trained with " + missing + ", which this trainer does not have.";
    if (!differing.empty()) why += "\nIt was trained with other options of algorithms: " + differing;
    if (why.empty()) throw;
    throw WeightsError(error.what() + why, error.report);
  }
}

void Trainer::Impl::load_run_state(const StateDict& saved, const std::string& from, StateVisitor::Of of) {
  const bool is_of_this_run = of == StateVisitor::Of::THIS_RUN;
  naming(from, [&] {
    StateVisitor visit = StateVisitor::loading(saved, "", of);
    visit_state(visit);
  });
  resumption.wait(saved);
  if (const StateDict* const random = group_in(saved, "rng"); random && random->empty())
    resumption.waiting.drop({"rng"});  // load_ignore_keys
  if (train_step.has_scaler())
    resumption.waiting.drop({"scaler"});  // it has been loaded
  else
    resumption.waiting.keep(saved, "scaler");
  if (const StateDict* const before = group_in(saved, "hyperparameters"); before && is_of_this_run)
    resumption.hyperparameters_before = *before;
  if (is_of_this_run && options.seed && state.seed != *options.seed && ranks.first())
    warn(join("checkpoint: the run goes on with its seed, ", state.seed, ", and not with .seed = ", *options.seed,
              "; for another seed begin another run"));
  if (fit) {
    fit->source.lose_place();
    restore_random();  // else when the next fit begins
  }
  fits.forget_owed();
  rates.schedules().apply(state);
  rates.leave(state);
}

// Once all is known that a fit sets and that the program logs when it begins. What differs is told. A callback that has
// finished the run, and has other options now, judges it anew.
void Trainer::Impl::compare_options() {
  const StateDict& before = resumption.hyperparameters_before;
  if (!resumption.found || before.empty()) return;
  const StateDict now = hyperparameters_of(options, state, logger, train, rates.made(), {});
  if (ranks.first()) warn_of_changes(before, now);
  const std::string finished = resumption.finished();
  if (finished.empty() || ranks.same(std::uint64_t{judges_anew(finished, before, now)}) == 0) return;
  if (ranks.first())
    warn(join("checkpoint: the run was complete (", finished, "), and goes on, because who has decided that has other ",
              "options now"));
  resumption.waiting.drop({"stop"});
}

// For schedules and evaluators that the program gives to fit(). They wait until the fit has begun: it may fail before.
void Trainer::Impl::restore_given() {
  naming(resumption.loaded_from, [&] {
    StateVisitor visit = resumption.waiting.visitor();
    rates.schedules().visit_state(visit);
    if (visit.has("evaluated")) evaluations.visit_evaluated(visit, resumption.weights);
  });
}

// For a scaler that a fit has made.
void Trainer::Impl::restore_scale() {
  if (!train_step.has_scaler()) return;
  StateVisitor visit = resumption.waiting.visitor();
  train_step.visit_state(visit);
  resumption.waiting.drop({"scaler"});
}

void Trainer::Impl::restore_settings() {
  StateVisitor visit = resumption.waiting.visitor();
  if (!visit.has("settings")) return;
  ModelSettings saved;
  visit("settings", saved);
  saved.set_in(as_module(*state.model));
}

// Only once training begins: hooks may have drawn random numbers meanwhile.
void Trainer::Impl::restore_random() {
  const StateValue* const saved = resumption.waiting.find("rng");
  if (!saved) return;
  random.restore(std::get<StateDict>(*saved));
  resumption.waiting.drop({"rng"});
}

}  // namespace composer
