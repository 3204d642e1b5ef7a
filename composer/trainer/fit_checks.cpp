#include "composer/trainer/fit_checks.h"

#include <algorithm>
#include <set>
#include <typeinfo>

#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/formats/weights.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"
#include "composer/optim/optimizer_state.h"
#include "composer/step/feed.h"

namespace composer {
namespace {

constexpr std::size_t kNamed = 3;  // number of names in a message, out of a list that may be long

std::string some_of(const std::vector<std::string>& names) { return listed(names, {}, kNamed); }

bool is_tokens(Time time) { return time.unit() == TimeUnit::TOKEN && time.count() > 0; }

[[noreturn]] void throw_without_tokens(Time time, const char* option) {
  throw ConfigError(option, ": is ", time, ", and the batches of the train loader count no tokens; set ",
                    "DataSpec::get_num_tokens_in_batch, or count in another unit");
}

}  // namespace

void check_limit(Time limit, const char* option, const OptionalTime& iteration_length) {
  if (limit.unit() == TimeUnit::DURATION)
    throw ConfigError(option, ": must be in ep, ba, sp, tok, iter or sec, got ", limit);
  if (limit.count() < 0) throw ConfigError(option, ": must be >= 0, got ", limit);
  if (limit.unit() == TimeUnit::ITERATION && !iteration_length)
    throw ConfigError(option, ": is ", limit, ", and no iteration ends without an iteration_length");
}

OptionalTime scaled_limit(const OptionalTime& limit, double ratio, bool has_schedulers, const char* where) {
  if (ratio == 1) return limit;
  if (!has_schedulers) throw ConfigError("scale_schedule_ratio: ", ratio, " has no effect without schedulers", where);
  if (!limit) return limit;
  const Time shorter = *limit * ratio;
  if (shorter.count() == 0)
    throw ConfigError("scale_schedule_ratio: ", ratio, " makes a max_duration of ", *limit, " nothing");
  return shorter;
}

bool is_chosen(const Interval& eval_interval) {
  if (eval_interval.function()) return true;
  return eval_interval.time().as_double() != 0 && to_string(eval_interval) != "1ep";
}

void check_has_optimizer(const State& state, bool given, const char* caller) {
  if (state.optimizer) return;
  if (!given) throw ConfigError("optimizer: is required to ", caller, ", e.g. .optimizer = optim::adamw({.lr = 1e-3})");
  std::vector<std::string> modules;
  for (const auto& [name, child] : named_children(as_module(*state.model))) modules.push_back(name);
  if (modules.empty())
    throw ConfigError("model: has no parameters to train, and no module is registered in it; call ",
                      "register_module(\"name\", module) for each in its constructor");
  throw ConfigError("model: has no parameters to train; the modules that are registered in it have none: ",
                    some_of(modules));
}

void check_trains_all(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer) {
  std::set<const void*> known;
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params()) known.insert(parameter.unsafeGetTensorImpl());
  std::vector<std::string> unknown;
  std::size_t trainable = 0, ours = 0;
  for (const auto& [name, parameter] : optim::parameters_of(model)) {
    const bool has_it = known.contains(parameter.unsafeGetTensorImpl());
    ours += has_it ? 1 : 0;
    if (!parameter.requires_grad()) continue;
    ++trainable;
    if (!has_it) unknown.push_back(name);
  }
  if (unknown.empty()) return;
  const std::string others =
      ours > 0 ? "" : join(" (none of the ", known.size(), " that it has is in the model: is it another model's?)");
  throw ConfigError("optimizer: ", unknown.size(), " of ", trainable,
                    " trainable parameters are in no group, among them ", unknown.front(), others,
                    ". The optimizer gets the parameters of modules that are replaced at INIT. Later, call its "
                    "replace_parameter(before, now) or add_param_group(). For what is not to be trained, set ",
                    "requires_grad to false");
}

void check_step_in_backward(const torch::optim::Optimizer& optimizer, const Engine& engine, StepsOtherwise how) {
  const auto* ours = dynamic_cast<const optim::NamedOptimizer*>(&optimizer);
  if (!ours || !ours->steps_in_backward()) return;
  const char* option = nullptr;
  if (!how.whole_batches) option = "device_train_microbatch_size";
  if (how.scales_losses) option = "a grad_scaler, which amp_fp16 has";
  if (how.tunes) option = "tune";
  if (how.several_ranks) option = "several processes";
  if (option) throw ConfigError("optimizer: step_in_backward does not go with ", option);
  for (const auto& algorithm : engine.algorithms())
    if (algorithm.events.contains(Event::AFTER_TRAIN_BATCH))
      throw ConfigError("optimizer: step_in_backward leaves no gradients for ", algorithm.name,
                        ", which runs at AFTER_TRAIN_BATCH");
}

void check_can_be_sharded(const torch::optim::Optimizer& optimizer, std::int64_t zero_stage) {
  if (zero_stage == 0 || can_be_sharded(optimizer)) return;
  throw ConfigError("distributed.zero_stage: ", c10::demangle(typeid(optimizer).name()),
                    " may keep state of parameters that have no gradient, so its state cannot be divided among ranks; ",
                    "use an optimizer of composer/optim, or torch::optim's SGD, Adam, AdamW or RMSprop");
}

void check_labels(const std::string& train_label, const std::vector<std::string>& eval_labels) {
  if (std::ranges::find(eval_labels, train_label) == eval_labels.end()) return;
  throw ConfigError("Evaluator: one has the label of the training loader, \"", train_label,
                    "\", and would overwrite its metrics; give it another");
}

void check_position(Feed feed, std::uint64_t seed, std::int64_t epoch, std::int64_t batch) {
  try {
    feed.set_default_seed(seed);
    feed.seek(epoch, batch);
  } catch (const ConfigError& error) {
    throw ConfigError("train_dataloader: training stands after batch ", batch, " of an epoch, and ", error.what(),
                      "; give a loader whose epochs are as long, or reset_time");
  }
}

void check_epochs_end(Time limit, const OptionalTime& iteration_length, const Feed& feed) {
  const TimeUnit unit = limit.unit() == TimeUnit::ITERATION ? iteration_length.value().unit() : limit.unit();
  if (feed || unit != TimeUnit::EPOCH) return;
  throw ConfigError("max_duration: is ", limit, ", and no epoch ends without a train_dataloader; give it in ba, sp or ",
                    "tok, or leave it out and end the fit yourself");
}

void check_share(const Interval& interval, const char* option, const Feed& feed) {
  const bool is_share = interval.time().unit() == TimeUnit::DURATION || interval.epochs() > 0;
  if (interval.function() || !is_share || feed.num_batches()) return;
  throw ConfigError(option, ": ", to_string(interval), " needs a training loader whose length is known; give it ",
                    "in ba, sp or tok, or set train_subset_num_batches");
}

void check_without_tokens(const OptionalTime& time, const char* option) {
  if (time && is_tokens(*time)) throw_without_tokens(*time, option);
}

void check_without_tokens(const Interval& interval, const char* option) {
  if (!interval.function() && is_tokens(interval.time())) throw_without_tokens(interval.time(), option);
}

namespace {

[[noreturn]] void throw_other_epoch(const Timestamp& from, const std::string& has, const std::string& with,
                                    const char* may_change) {
  throw ConfigError("train_dataloader: its ", has, ", and the run was saved after batch ", from.batch_in_epoch,
                    " of epoch ", from.epoch, " with ", with,
                    ", so it would repeat or leave out samples; resume it with ", with, " (another ", may_change,
                    " may begin with an epoch), or start a new run from its weights with ",
                    "load_path and load_weights_only");
}

}  // namespace

void check_same_batches(const StateDict& saved, const Timestamp& from, const Feed& feed) {
  if (!feed || from.batch_in_epoch == 0) return;
  const auto check = [&](const char* name, std::optional<std::int64_t> now, const char* what, const char* of_what) {
    const StateValue* before = saved.find(name);
    const auto* then = before ? std::get_if<std::int64_t>(before) : nullptr;
    if (!then || !now || *now == *then) return;
    throw_other_epoch(from, join(what, ' ', *now, " samples"), join(of_what, " of ", *then), "size");
  };
  check("train_batch_size", feed.batch_size(), "batches have", "batches");
  check("train_samples", feed.num_samples(), "data has", "data");
}

void check_same_length(std::int64_t batches, const Timestamp& from, Feed feed, std::uint64_t seed, std::int64_t epoch) {
  check_position(feed, seed, epoch,
                 from.batch_in_epoch);  // the number may differ by epoch, so the loader is moved there
  const std::optional<std::int64_t> now = feed.loader()->num_batches();
  if (now && *now != batches)
    throw_other_epoch(from, join("epoch has ", *now, " batches"), join("an epoch of ", batches), "length");
}

void check_can_split(std::int64_t samples, const Feed& feed) {
  const std::optional<std::int64_t> batch = feed ? feed.batch_size() : std::nullopt;
  if (batch && samples > *batch)
    warn(join("device_train_microbatch_size: is ", samples, ", and a batch of the ", feed.label(), " loader has ",
              *batch, " samples, so batches are not split"));
}

void check_loaded(const WeightsReport& report, const std::string& from) {
  if (!report.missing.empty())
    warn(join(from, ": ", report.missing.size(), " of ", report.missing.size() + report.loaded.size(),
              " tensors of the model are not in it and stay as they were: ", some_of(report.missing)));
}

}  // namespace composer
