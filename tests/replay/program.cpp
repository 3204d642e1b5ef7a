#include "tests/replay/program.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/state.h"
#include "composer/models/classifier.h"
#include "tests/replay/algorithms.h"

namespace composer::replay {
namespace {

class ToyLoader final : public Loader {
 public:
  explicit ToyLoader(const Json& recorded)
      : size_(recorded.at("size")),
        batch_size_(recorded.at("batch_size")),
        drop_last_(recorded.value("drop_last", false)),
        sized_(recorded.value("sized", true)) {}

  void seek(std::int64_t, std::int64_t batch) override { next_ = batch * batch_size_; }

  std::optional<Batch> next() override {
    const std::int64_t count = std::min(batch_size_, size_ - next_);
    if (count <= 0 || (drop_last_ && count < batch_size_)) return std::nullopt;
    next_ += count;
    return Batch{{"input", at::ones({count, 4})}, {"target", at::zeros({count}, at::kLong)}};
  }

  std::optional<std::int64_t> num_batches() const override {
    if (!sized_) return std::nullopt;
    return drop_last_ ? size_ / batch_size_ : (size_ + batch_size_ - 1) / batch_size_;
  }
  std::optional<std::int64_t> batch_size() const override { return batch_size_; }

 private:
  std::int64_t size_, batch_size_, next_ = 0;
  bool drop_last_, sized_;
};

// Where and when checkpoints are saved and loaded, with Composer's defaults; ours have no rank and no ending.
void set_saving(TrainerOptions& options, const Json& arguments) {
  options.save_filename = arguments.value("save_filename", "ep{epoch}-ba{batch}-rank{rank}.pt");
  const Json latest = arguments.value("save_latest_filename", Json("latest-rank{rank}.pt"));
  options.save_latest_filename = latest.is_null() ? "" : latest.get<std::string>();
  options.save_folder = arguments.value("save_folder", "");
  if (arguments.contains("save_interval")) options.save_interval = interval_of(arguments["save_interval"]);
  options.save_num_checkpoints_to_keep = arguments.value("save_num_checkpoints_to_keep", -1);
  options.save_weights_only = arguments.value("save_weights_only", false);
  options.save_overwrite = arguments.value("save_overwrite", false);
  options.save_ignore_keys = arguments.value("save_ignore_keys", std::vector<std::string>());
  options.autoresume = arguments.value("autoresume", false);
  options.load_path = arguments.value("load_path", "");
  options.load_weights_only = arguments.value("load_weights_only", false);
  options.load_strict_model_weights = arguments.value("load_strict_model_weights", true);
  options.load_ignore_keys = arguments.value("load_ignore_keys", std::vector<std::string>());
}

TimeUnit unit_of(const std::string& text) { return Time::parse("1" + text).unit(); }

}  // namespace

Time time_of(const Json& recorded) {
  if (recorded.is_string()) return Time::parse(recorded.get<std::string>());
  if (recorded.is_number_float()) return Time::from(recorded.get<double>(), TimeUnit::EPOCH);
  return Time(recorded.get<std::int64_t>(), TimeUnit::EPOCH);
}

Interval interval_of(const Json& recorded) {
  if (!recorded.is_object()) return time_of(recorded);
  if (recorded.at("callable") != "event_every") throw Unsupported{"interval " + recorded.dump()};
  return [event = parse_event(recorded.at("event").get<std::string>()), unit = unit_of(recorded.at("unit")),
          every = recorded.at("every").get<std::int64_t>()](Event now, const State& state) {
    return now == event && state.timestamp.get(unit).count() % every == 0;
  };
}

AnyDataSpec toy_data(const Json& recorded) {
  DataSpec spec{.dataloader = std::make_shared<ToyLoader>(recorded)};
  if (const std::int64_t tokens = recorded.value("tokens_per_sample", 0); tokens > 0)
    spec.get_num_tokens_in_batch = [tokens](const Batch& batch) { return TokenCount(batch.front().size(0) * tokens); };
  return spec;
}

Evaluators evaluators_of(const Json& recorded) {
  if (recorded.is_null()) return {};
  if (recorded.is_object()) return toy_data(recorded);
  std::vector<Evaluator> list;
  for (const Json& one : recorded) {
    Evaluator evaluator{.label = one.at("label"), .dataloader = toy_data(one.at("data"))};
    if (one.contains("eval_interval")) evaluator.eval_interval = interval_of(one["eval_interval"]);
    if (one.contains("subset_num_batches")) evaluator.subset_num_batches = one["subset_num_batches"];
    if (one.contains("device_eval_microbatch_size"))
      evaluator.device_eval_microbatch_size = one["device_eval_microbatch_size"].get<std::int64_t>();
    if (one.contains("metric_names")) evaluator.metric_names = one["metric_names"];
    list.push_back(evaluator);
  }
  return list;
}

std::shared_ptr<Model> toy_model() {
  return std::make_shared<models::Classifier>(torch::nn::Linear(4, 3), models::ClassifierOptions{.num_classes = 3});
}

TrainerOptions trainer_options(const Json& arguments) {
  require_known(arguments, "argument",
                {"max_duration", "scale_schedule_ratio", "schedulers", "device_train_microbatch_size", "eval_interval",
                 "eval_subset_num_batches", "train_subset_num_batches", "step_schedulers_every_batch",
                 "accumulate_train_batch_on_tokens", "train_dataloader_label", "seed", "save_filename",
                 "save_latest_filename", "save_folder", "save_interval", "save_num_checkpoints_to_keep",
                 "save_weights_only", "save_overwrite", "save_ignore_keys", "save_metrics", "autoresume", "load_path",
                 "load_weights_only", "load_strict_model_weights", "load_ignore_keys", "algorithms",
                 // nothing is read to come to where a run goes on
                 "spin_dataloaders"});
  TrainerOptions options{.model = toy_model(), .run_name = "replay"};
  options.nan = OnNaN::WARN;         // as Composer, which trains on
  options.auto_log_hparams = false;  // as by default in Composer
  // Made before the trainer, as in Python: so it is there at INIT.
  options.optimizer = std::make_shared<optim::SGD>(optim::parameters_of(*options.model), optim::SgdOptions{.lr = 0.1});
  options.device = at::Device(at::kCPU);
  if (arguments.contains("max_duration")) options.max_duration = time_of(arguments["max_duration"]);
  if (arguments.contains("schedulers")) options.schedulers = schedulers_of(arguments["schedulers"]);
  if (arguments.contains("eval_interval")) options.eval_interval = interval_of(arguments["eval_interval"]);
  if (arguments.contains("seed")) options.seed = arguments["seed"].get<std::uint64_t>();
  options.scale_schedule_ratio = arguments.value("scale_schedule_ratio", 1.0);
  options.device_train_microbatch_size = arguments.value("device_train_microbatch_size", 0);
  options.eval_subset_num_batches = arguments.value("eval_subset_num_batches", -1);
  options.train_subset_num_batches = arguments.value("train_subset_num_batches", -1);
  options.step_schedulers_every_batch = arguments.value("step_schedulers_every_batch", true);
  options.accumulate_train_batch_on_tokens = arguments.value("accumulate_train_batch_on_tokens", false);
  options.train_dataloader_label = arguments.value("train_dataloader_label", "train");
  for (const Json& one : arguments.value("algorithms", Json::array()))
    options.algorithms.add(make_algorithm(one.at("class"), settings_of(one)));
  set_saving(options, arguments);
  return options;
}

FitOptions fit_options(const Json& arguments) {
  require_known(arguments, "argument",
                {"fn", "duration", "reset_time", "train_dataloader", "train_subset_num_batches", "eval_dataloader",
                 "eval_interval", "eval_subset_num_batches", "device_train_microbatch_size", "schedulers",
                 "scale_schedule_ratio", "step_schedulers_every_batch", "train_dataloader_label"});
  FitOptions options;
  if (arguments.contains("duration")) options.duration = time_of(arguments["duration"]);
  if (arguments.contains("train_dataloader")) options.train_dataloader = toy_data(arguments["train_dataloader"]);
  if (arguments.contains("train_subset_num_batches"))
    options.train_subset_num_batches = arguments["train_subset_num_batches"].get<std::int64_t>();
  if (arguments.contains("eval_dataloader")) options.eval_dataloader = evaluators_of(arguments["eval_dataloader"]);
  if (arguments.contains("eval_interval")) options.eval_interval = interval_of(arguments["eval_interval"]);
  if (arguments.contains("device_train_microbatch_size"))
    options.device_train_microbatch_size = arguments["device_train_microbatch_size"].get<std::int64_t>();
  if (arguments.contains("schedulers")) options.schedulers = schedulers_of(arguments["schedulers"]);
  if (arguments.contains("step_schedulers_every_batch"))
    options.step_schedulers_every_batch = arguments["step_schedulers_every_batch"].get<bool>();
  options.reset_time = arguments.value("reset_time", false);
  options.scale_schedule_ratio = arguments.value("scale_schedule_ratio", 1.0);
  options.eval_subset_num_batches = arguments.value("eval_subset_num_batches", -1);
  options.train_dataloader_label = arguments.value("train_dataloader_label", "train");
  return options;
}

}  // namespace composer::replay
