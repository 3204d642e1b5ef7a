#include "tests/property/player.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ATen.h>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/data/in_memory.h"
#include "composer/optim/sgd.h"

namespace composer::property {
namespace {

const std::vector<Ids> kEvaluated[] = {{{0, 1}, {2, 3}, {4}}, {{3, 4, 5}, {6}}};

std::shared_ptr<Loader> loader_of(const Setup& setup, const std::vector<Ids>& batches) {
  Ids all;
  for (const Ids& ids : batches) all.insert(all.end(), ids.begin(), ids.end());
  return data::in_memory(make_batch(setup, all),
                         {.batch_size = static_cast<std::int64_t>(batches.front().size()), .shuffle = false});
}

bool close_to(double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(b)); }

}  // namespace

Player::Player(const Setup& setup, int index, std::shared_ptr<TrainLoader> loader, std::filesystem::path folder,
               Hook::Act act)
    : hook(std::make_shared<Hook>(std::move(act))),
      setup_(setup),
      index_(index),
      loader_(std::move(loader)),
      folder_(std::move(folder)),
      places_(setup) {}

OptionalTime Player::first_limit() const {
  if (setup_.epochs) return Time(setup_.epochs, TimeUnit::EPOCH);
  if (setup_.batches) return Time(setup_.batches, TimeUnit::BATCH);
  return {};
}

std::vector<std::vector<Ids>> Player::evaluated_on() {
  std::vector<std::vector<Ids>> all(kEvaluated, kEvaluated + setup_.evaluators);
  if (setup_.evaluators && setup_.eval_trains) {
    all.front().clear();
    for (int i = 0; i < places_.per_epoch(); ++i) all.front().push_back(places_.at(i));
  }
  return all;
}

TrainerOptions Player::options() {
  TrainerOptions options{.model = model_};
  DataSpec spec{.dataloader = loader_};
  if (setup_.masked) {
    spec.get_num_tokens_in_batch = [](const Batch& batch) {
      return TokenCount(0, static_cast<std::int64_t>(batch["mask"].sum().item<double>()));
    };
    options.accumulate_train_batch_on_tokens = true;
  }
  if (loader_) options.train_dataloader = spec;
  options.optimizer = optim::sgd({.lr = kLr, .momentum = setup_.momentum ? 0.5 : 0.0});
  options.max_duration = first_limit();
  options.device_train_microbatch_size = setup_.microbatch;
  std::vector<Evaluator> evaluators;
  for (int i = 0; i < setup_.evaluators; ++i) {
    const bool trains = i == 0 && setup_.eval_trains;
    evaluators.push_back({.label = join("eval", i), .dataloader = predicted_on(trains)});
    if (!trains) evaluators.back().dataloader = loader_of(setup_, kEvaluated[i]);
  }
  options.eval_dataloader = evaluators;
  options.eval_interval = setup_.eval_batches ? Time(setup_.eval_batches, TimeUnit::BATCH) : Time(1, TimeUnit::EPOCH);
  if (setup_.evaluators && setup_.swaps) options.algorithms.add(Swap());
  options.algorithms.add(algorithm);
  if (closer_) options.callbacks.add(closer_);
  options.callbacks.add(watch);
  if (setup_.logs) options.loggers.add(FailingLogger(hook));
  options.run_name = std::string(1, name());
  options.device = at::Device(at::kCPU);
  options.seed = kSeed;
  options.handle_signals = handles_signals();
  if (!setup_.save) return options;
  options.save_folder = folder_.string();
  options.save_interval = setup_.save_batches ? Time(setup_.save_batches, TimeUnit::BATCH) : Time(1, TimeUnit::EPOCH);
  options.save_num_checkpoints_to_keep = setup_.keep ? setup_.keep : -1;
  options.save_async = setup_.save_async != 0;
  return options;
}

void Player::build() {
  std::int64_t expected = 0, fits = 0;
  if (setup_.save)
    if (const auto found = saving::find_latest(folder_, "latest")) {
      expected = found->manifest.time.batch;
      fits = found->manifest.fit.value_or(0);
    }
  if (expected < newest_)
    fail("retention", name(), ": the newest checkpoint is of batch ", expected, ", and there was one of ", newest_);
  if (expected > static_cast<std::int64_t>(history_.size()))
    while (static_cast<std::int64_t>(history_.size()) < expected)  // trained by a process that was killed
      history_.push_back({places_.at(static_cast<std::int64_t>(history_.size()))});
  history_.resize(static_cast<std::size_t>(expected));
  model_ = std::make_shared<TinyModel>(setup_, hook);
  watch = std::make_shared<Watch>(hook);
  owed_ = {};
  owes = false;
  algorithm = std::make_shared<WatchingAlgorithm>();
  closer_ = setup_.closer ? std::make_shared<Closer>() : nullptr;
  in_fit = false, limit = first_limit(), limit_is_known = true, resumed = expected > 0;
  stopped_at.reset(), offered.reset(), signal = 0;
  trainer_ = std::make_unique<Trainer>(options());
  if (batch() != expected)
    fail("resume", name(), ": the run goes on at batch ", batch(), ", and its newest checkpoint is of ", expected);
  call_again(fits);
}

// The fits of the process before that had ended.
void Player::call_again(std::int64_t fits) {
  for (std::int64_t i = 0; i < fits; ++i) {
    trainer_->begin();
    if (!trainer_->done()) fail("fits", name(), ": fit ", i, " had ended, and is trained again");
    trainer_->end();
  }
  if (watch->spans.count(Event::FIT_START) != 0) fail("fits", name(), ": a fit that had ended is begun again");
}

void Player::destroy() {
  if (!trainer_) return;
  trainer_.reset();
  if (watch->closed != 1) fail("close", name(), ": a callback was closed ", watch->closed, " times");
  if (closer_ && !closer_->whole) fail("close", name(), ": a callback's close() could not take a snapshot of the run");
}

void Player::begin_op(const Plan& plan) {
  watch->spans.reset();
  algorithm->spans.reset();
  watch->batches.clear();
  watch->batches_begun = 0;
  hook->arm(plan);
  if (loader_) loader_->hook = hook;
}

// What has been counted: the batch that was given, if there is one, or those that the loader has next.
void Player::count_batches() {
  const auto counted = static_cast<std::size_t>(batch());
  if (counted < history_.size())
    fail("counts", name(), ": ", counted, " batches are counted, and there were ", history_.size());
  if (offered && counted > history_.size()) {
    history_.push_back({*offered, true});
    offered.reset();
  }
  auto place =
      static_cast<std::int64_t>(std::ranges::count_if(history_, [](const Trained& trained) { return !trained.given; }));
  while (history_.size() < counted) {
    if (!loader_) fail("counts", name(), ": batch ", history_.size(), " is counted, and nobody has given it");
    history_.push_back({places_.at(place++)});
  }
}

std::string Player::where(std::int64_t batch) const { return join(name(), ": batch ", batch); }

namespace {

// In an operation that comes to its end the second is as often as the first, or once more to make up for an error that
// came between them in an operation before.
constexpr std::array<std::pair<Event, Event>, Player::kPairCount> kPairs = {
    {{Event::BATCH_START, Event::BATCH_END},
     {Event::BATCH_END, Event::BATCH_CHECKPOINT},
     {Event::BEFORE_TRAIN_BATCH, Event::AFTER_TRAIN_BATCH},
     {Event::BEFORE_FORWARD, Event::AFTER_FORWARD},
     {Event::BEFORE_LOSS, Event::AFTER_LOSS},
     {Event::BEFORE_BACKWARD, Event::AFTER_BACKWARD},
     {Event::EPOCH_END, Event::EPOCH_CHECKPOINT},
     {Event::EVAL_BATCH_START, Event::EVAL_BATCH_END},
     {Event::EVAL_BEFORE_FORWARD, Event::EVAL_AFTER_FORWARD},
     {Event::PREDICT_BATCH_START, Event::PREDICT_BATCH_END},
     {Event::PREDICT_BEFORE_FORWARD, Event::PREDICT_AFTER_FORWARD}}};

// Only what follows a count is made up.
constexpr bool is_made_up(Event after) {
  return after == Event::BATCH_END || after == Event::BATCH_CHECKPOINT || after == Event::EPOCH_CHECKPOINT;
}

}  // namespace

void Player::end_op(bool whole) {
  hook->disarm();
  count_batches();
  check_trained();
  if (const std::string wrong = algorithm->spans.wrong(); !wrong.empty())
    fail("spans", name(), ": ", wrong, ", to algorithms");
  if (whole)
    if (const std::string wrong = watch->spans.wrong(); !wrong.empty())
      fail("spans", name(), ": ", wrong, ", to callbacks");
  for (std::size_t i = 0; i < kPairs.size(); ++i) {
    const auto& [before, after] = kPairs[i];
    const int opened = watch->spans.count(before), closed = watch->spans.count(after);
    if (whole && (closed < opened || closed - opened > owed_[i]))
      fail("spans", name(), ": ", opened, " times ", composer::to_string(before), ", and ", closed, " times ",
           composer::to_string(after), owed_[i] > 0 ? ", of which one may make up for an error" : "");
    owed_[i] = is_made_up(after) ? std::max(0, owed_[i] + opened - closed) : 0;
  }
}

// Between two operations: the weights are those of the batches that are counted, each once and in their order.
void Player::check_trained() {
  const Timestamp& now = trainer_->state().timestamp;
  for (const auto& [counted, ids] : watch->batches) {
    if (counted < 1 || counted > static_cast<std::int64_t>(history_.size()))
      fail("counts", where(counted), " ended, and ", history_.size(), " are counted");
    const Ids& should = history_[static_cast<std::size_t>(counted - 1)].ids;
    if (ids != should)
      fail("order", where(counted), " were samples ", to_string(ids), ", and ", to_string(should), " were next");
  }
  if (const std::string text = difference(model_->weights(), train(setup_, history_)); !text.empty())
    fail("weights", name(), ": the weights are not those of the ", history_.size(),
         " batches that are counted: ", text.substr(0, 200));
  std::int64_t samples = 0, given = 0;
  for (const Trained& trained : history_)
    samples += static_cast<std::int64_t>(trained.ids.size()), given += trained.given;
  if (now.sample != samples) fail("counts", name(), ": ", now.sample, " samples are counted, and there were ", samples);
  if (given == 0 && now.batch != now.epoch * places_.per_epoch() + now.batch_in_epoch)
    fail("counts", name(), ": batch ", now.batch, " is batch ", now.batch_in_epoch, " of epoch ", now.epoch);
}

void Player::check_saved() {
  if (!setup_.save || batch() == 0) return;
  const auto found = saving::find_latest(folder_, "latest");
  if (!found) fail("saved", name(), ": ", batch(), " batches are trained, and there is no checkpoint");
  newest_ = found->manifest.time.batch;
  if (newest_ != batch())
    fail("saved", name(), ": ", batch(), " batches are trained, and the newest checkpoint is of ", newest_);
  const auto paths = trainer_->saved_checkpoints();
  if (paths.empty() || !std::filesystem::exists(paths.back()))
    fail("retention", name(), ": the last of saved_checkpoints() is not there");
  const StateDict all = saving::load(*found);
  const auto& weights = std::get<StateDict>(*all.find("model"));
  const auto tensor = [&](const char* key) { return std::get<at::Tensor>(*weights.find(key)); };
  const Weights saved = TinyModel::weights_of(tensor("count"), tensor("order"), tensor("noise"));
  if (const std::string text = difference(saved, train(setup_, history_)); !text.empty())
    fail("saved", name(), ": the checkpoint's weights are not the trained ones: ", text.substr(0, 200));
}

// The metrics are those of all its batches with the weights of now.
void Player::check_evaluated(std::int64_t subset) {
  const Weights weights = train(setup_, history_);
  const auto all = evaluated_on();
  for (std::size_t i = 0; i < all.size(); ++i) {
    Ids ids;
    for (std::size_t k = 0; k < all[i].size() && (subset < 0 || static_cast<std::int64_t>(k) < subset); ++k)
      ids.insert(ids.end(), all[i][k].begin(), all[i][k].end());
    const std::string label = join("eval", i);
    const MetricValues& metrics = trainer_->state().metrics;
    const at::Tensor* seen = metrics.find(label, "Seen");
    if (!seen) fail("evaluated", name(), ": ", label, " has reported no metrics");
    if (!close_to(seen->item<double>(), static_cast<double>(ids.size())))
      fail("evaluated", name(), ": ", label, " has measured ", seen->item<double>(), " samples of ", ids.size());
    const double mean = metrics.at(label, "Mean"), should = weights.mean_output(ids, setup_.swaps ? kSwapped : 1);
    if (!close_to(mean, should))
      fail("evaluated", name(), ": the mean output on ", label, " is ", mean, ", and should be ", should);
  }
}

// What is reported is of whole evaluations, whenever they were; of those that were interrupted nothing is.
void Player::check_not_partly_evaluated() {
  const auto all = evaluated_on();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const at::Tensor* seen = trainer_->state().metrics.find(join("eval", i), "Seen");
    if (!seen) continue;
    const auto samples = static_cast<std::size_t>(seen->item<double>());
    std::size_t whole = 0;
    for (const Ids& ids : all[i]) whole += ids.size();
    if (samples != whole && samples != all[i].front().size())  // that of eval() with a subset of one
      fail("evaluated", name(), ": metrics of ", samples, " samples are reported for eval", i, ", which has ", whole);
  }
}

AnyDataSpec Player::predicted_on(bool train_loader) const {
  if (train_loader && loader_) return loader_;
  return loader_of(setup_, kEvaluated[0]);
}

void Player::check_predicted(const std::vector<Outputs>& outputs, bool of_train_loader) {
  std::vector<Ids> batches = kEvaluated[0];
  if (of_train_loader && loader_) {
    batches.clear();
    for (int i = 0; i < places_.per_epoch(); ++i) batches.push_back(places_.at(i));
  }
  if (outputs.size() != batches.size())
    fail("predicted", name(), ": ", outputs.size(), " batches are predicted of ", batches.size());
  const Weights weights = train(setup_, history_);
  for (std::size_t i = 0; i < batches.size(); ++i)
    for (std::size_t k = 0; k < batches[i].size(); ++k)
      if (!close_to(outputs[i].only()[static_cast<std::int64_t>(k)].item<double>(), weights.output(batches[i][k])))
        fail("predicted", name(), ": sample ", batches[i][k], " is predicted with other weights");
}

Batch Player::next_given() {
  offered = Ids();
  for (int i = 0; i < 2; ++i) offered->push_back(kGivenIds + given_++ % kGivenIds);
  return make_batch(setup_, *offered);
}

}  // namespace composer::property
