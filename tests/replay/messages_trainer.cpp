// Misuse of the trainer and its engine.
#include <ATen/ATen.h>

#include "composer/loggers/console_logger.h"
#include "composer/loggers/progress_bar.h"
#include "composer/models/classifier.h"
#include "composer/optim/schedulers.h"
#include "tests/replay/messages.h"
#include "tests/replay/program.h"

namespace composer::replay {
namespace {

Json data(bool sized = true) { return {{"size", 8}, {"batch_size", 4}, {"sized", sized}}; }

TrainerOptions bare_options() {
  TrainerOptions options = trainer_options(Json::object());
  options.handle_signals = false;
  return options;
}

// Two batches of four samples.
TrainerOptions good_options() {
  TrainerOptions options = bare_options();
  options.train_dataloader = toy_data(data());
  options.max_duration = "1ep";
  return options;
}

using OptionChange = void (*)(TrainerOptions& options);

std::function<Json()> construct(OptionChange change) {
  return [change] {
    TrainerOptions options = good_options();
    change(options);
    const Trainer trainer(std::move(options));
    return Json();
  };
}

std::function<Json()> fit(OptionChange change, FitOptions fit_options = {}) {
  return [change, fit_options] {
    TrainerOptions options = good_options();
    change(options);
    Trainer(std::move(options)).fit(fit_options);
    return Json();
  };
}

// Does something with a good trainer.
std::function<Json()> with_trainer(Json (*use)(Trainer& trainer)) {
  return [use] {
    Trainer trainer(good_options());
    return use(trainer);
  };
}

// Gives the same batch twice an epoch, and knows nothing of batch sizes.
class PlainLoader final : public Loader {
 public:
  explicit PlainLoader(Batch batch) : batch_(std::move(batch)) {}
  void seek(std::int64_t, std::int64_t batch) override { next_ = batch; }
  std::optional<Batch> next() override { return next_++ < 2 ? std::optional(batch_) : std::nullopt; }
  std::optional<std::int64_t> num_batches() const override { return 2; }

 private:
  Batch batch_;
  std::int64_t next_ = 0;
};

std::shared_ptr<Loader> plain_loader(std::int64_t inputs, std::int64_t targets) {
  return std::make_shared<PlainLoader>(
      Batch{{"input", at::ones({inputs, 4})}, {"target", at::zeros({targets}, at::kLong)}});
}

class Listener final : public Callback {
 public:
  void run_event(Event, const State&, Logger&) override {}
};

struct Empty final : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};

Json fit_without_parameters() {
  TrainerOptions options = good_options();
  options.optimizer = {};
  options.model =
      std::make_shared<models::Classifier>(std::make_shared<Empty>(), models::ClassifierOptions{.num_classes = 4});
  Trainer(std::move(options)).fit();
  return {};
}

Json reuse_callback() {
  TrainerOptions first = good_options(), second = good_options();
  first.callbacks = second.callbacks = {std::make_shared<Listener>()};
  const Trainer open(std::move(first)), refused(std::move(second));
  return {};
}

// The loader is in the middle of an epoch.
Json fit_with_used_loader() {
  TrainerOptions options = good_options();
  options.train_dataloader.dataloader->next();
  Trainer trainer(std::move(options));
  trainer.fit();
  return trainer.state().timestamp.sample == 8 ? Json() : Json("it did not train on the whole epoch");
}

Json run_event_without_loader() {
  TrainerOptions options = good_options();
  options.train_dataloader = {};
  options.callbacks = {Listener()};
  Trainer(std::move(options)).engine().run_event(Event::BATCH_START);
  return {};
}

Json length_of_larger_subset(std::int64_t subset) {
  TrainerOptions options = good_options();
  options.train_subset_num_batches = subset;
  const Trainer trainer(std::move(options));
  return *trainer.state().dataloader_len;
}

}  // namespace

const Misuses& trainer_misuses() {
  using O = TrainerOptions;
  static const Misuses table = {
      {"trainer_no_max_duration", fit([](O& o) { o.max_duration = std::nullopt; })},
      {"trainer_no_train_dataloader", fit([](O& o) { o.train_dataloader = {}; })},
      {"trainer_bad_time_string", construct([](O& o) { o.max_duration = Time::parse("1foo"); })},
      {"trainer_float_epochs", construct([](O& o) { o.max_duration = Time::parse("1.5ep"); })},
      {"trainer_max_duration_dur", construct([](O& o) { o.max_duration = "0.5dur"; })},
      {"trainer_max_duration_zero", fit([](O& o) { o.max_duration = "0ep"; })},
      {"trainer_unknown_precision", construct([](O& o) { o.precision = parse_precision("fp7"); })},
      {"trainer_amp_bf16_cpu", fit([](O& o) { o.precision = Precision::AMP_BF16; })},
      {"trainer_unknown_device", construct([](O& o) { o.device = at::Device("quantum"); })},
      // the hundredth, so that it is missing wherever this runs
      {"trainer_device_gpu_missing", construct([](O& o) { o.device = at::Device(at::kCUDA, 100); })},
      {"trainer_auto_microbatch_cpu", fit([](O& o) { o.device_train_microbatch_size = "auto"; })},
      {"trainer_microbatch_string", construct([](O& o) { o.device_train_microbatch_size = "four"; })},
      {"trainer_microbatch_negative", fit([](O& o) { o.device_train_microbatch_size = -1; })},
      {"trainer_microbatch_zero", fit([](O& o) { o.device_train_microbatch_size = 0; })},
      {"trainer_eval_without_loader", with_trainer([](Trainer& t) { return t.eval(), Json(); })},
      {"trainer_eval_infinite", construct([](O& o) { o.eval_dataloader = toy_data(data(/*sized=*/false)); })},
      {"trainer_eval_interval_without_loader", construct([](O& o) { o.eval_interval = "2ba"; })},
      {"trainer_eval_subset_without_loader", construct([](O& o) { o.eval_subset_num_batches = 3; })},
      {"trainer_bad_eval_interval", construct([](O& o) { o.eval_interval = Time::parse("5foo"); })},
      {"trainer_no_optimizer", fit([](O& o) { o.optimizer = {}; })},
      {"trainer_no_parameters_fit_optimizer", fit_without_parameters},
      {"trainer_bad_seed", fit([](O& o) { o.seed = static_cast<std::uint64_t>(-1); })},
      {"trainer_ssr_without_schedulers", construct([](O& o) { o.scale_schedule_ratio = 0.5; })},
      {"trainer_ssr_function_scheduler", fit([](O& o) {
         o.schedulers = {[](const optim::ScheduleContext&) { return 1.0; }};
         o.scale_schedule_ratio = 0.5;
         o.max_duration = "2ep";
       })},
      {"trainer_ssr_zero", construct([](O& o) {
         o.schedulers = {optim::constant({})};
         o.scale_schedule_ratio = 0.1;
       })},
      {"trainer_fit_step_schedulers_without", fit([](O&) {}, {.step_schedulers_every_batch = true})},
      {"trainer_fit_twice", with_trainer([](Trainer& t) { return t.fit(), t.fit(), Json(); })},
      {"trainer_after_close", with_trainer([](Trainer& t) { return t.close(), t.fit(), Json(); })},
      {"trainer_eval_after_close",
       with_trainer([](Trainer& t) { return t.close(), t.eval({.eval_dataloader = toy_data(data())}), Json(); })},
      {"trainer_reuse_callback", reuse_callback},
      {"trainer_infinite_epochs", fit([](O& o) { o.train_dataloader = toy_data(data(/*sized=*/false)); })},
      {"trainer_subset_too_large", [] { return length_of_larger_subset(50), Json(); }},
      {"trainer_no_batch_size", fit([](O& o) { o.train_dataloader = plain_loader(4, 4); })},
      {"trainer_different_lengths", fit([](O& o) { o.train_dataloader = plain_loader(2, 3); })},
      {"trainer_progress_bar_and_console", construct([](O& o) {
         o.loggers = {loggers::ProgressBar(), loggers::ConsoleLogger()};
       })},
      {"trainer_eval_label_again",
       [] {
         TrainerOptions options = good_options();
         options.eval_dataloader = toy_data(data());
         Trainer(std::move(options)).eval({.eval_dataloader = toy_data(data())});
         return Json();
       }},
      {"trainer_load_missing", construct([](O& o) { o.load_path = "no/such/file.pt"; })},
      {"trainer_active_iterator", fit_with_used_loader},
      {"trainer_iteration_length_unit", fit([](O& o) { o.iteration_length = "5ba"; })},
      {"engine_unknown_event",
       with_trainer([](Trainer& t) { return t.engine().run_event(parse_event("foo")), Json(); })},
      {"engine_no_dataloader", run_event_without_loader},
      {"engine_closed",
       with_trainer([](Trainer& t) { return t.close(), t.engine().run_event(Event::EPOCH_START), Json(); })},
      {"state_loader_without_label", construct([](O& o) { o.train_dataloader_label = ""; })},
      {"state_len_without_loader",
       [] {
         Trainer trainer(bare_options());
         trainer.state().dataloader_len = 5;
         return Json();
       }},
      {"state_max_duration_dur", construct([](O& o) { o.max_duration = "1dur"; })},
      {"state_len_too_large", [] { return length_of_larger_subset(5); }},
      {"scheduler_zero_restart", fit([](O& o) {
         o.schedulers = {optim::cosine_annealing_warm_restarts({.t_0 = "1ba", .t_mult = 0})};
         o.max_duration = "4ep";
       })},
      {"scheduler_warmup_units",
       construct([](O& o) { o.schedulers = {optim::linear_with_warmup({.t_warmup = "10sp"})}; })},
  };
  return table;
}

}  // namespace composer::replay
