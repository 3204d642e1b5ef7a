#include "composer/trainer/trainer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <random>
#include <string_view>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/trainer/impl.h"

namespace composer {
namespace {

std::string name_of_run(const std::string& given) {
  if (!given.empty()) return given;
  for (const char* variable : {"COMPOSER_RUN_NAME", "RUN_NAME"})
    if (const char* value = std::getenv(variable); value && *value) return value;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "run-%Y%m%d-%H%M%S-", &utc);
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string name = text.data();
  std::random_device random;  // two runs may begin in the same second
  for (int i = 0; i < 6; ++i) name += kDigits[random() % kDigits.size()];
  return name;
}

std::uint64_t current_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.current_seed() & std::numeric_limits<std::int64_t>::max();  // logged as a signed number
}

State make_state(const TrainerOptions& options, const std::optional<saving::Found>& resumed) {
  if (!options.model) throw ConfigError("model: is required");
  const at::Device device = options.device.value_or(at::hasCUDA() ? at::Device(at::kCUDA) : at::Device(at::kCPU));
  check_options(options, device);
  State state;
  state.run_name = resumed ? resumed->manifest.run_name : name_of_run(options.run_name);
  state.resumes = resumed.has_value();
  state.seed = options.seed.value_or(current_seed());
  state.model = options.model;
  state.device = device;
  state.precision = options.precision;
  state.iteration_length = options.iteration_length;
  return state;
}

ProcessSettings settings_of(const TrainerOptions& options, at::Device device) {
  ProcessSettings settings{.tunes_threads = options.tune};
  if (device.is_cuda()) settings.allow_tf32 = options.allow_tf32;
  if (options.deterministic_mode) settings.deterministic = true;
  return settings;
}

std::vector<LoggerDestination*> destinations(const Loggers& loggers) {
  std::vector<LoggerDestination*> list;
  for (const auto& plugin : loggers.list()) list.push_back(plugin.object.get());
  return list;
}

}  // namespace

Trainer::Impl::Impl(TrainerOptions given)
    : options(std::move(given)),
      resumed(checkpoint_to_resume(options)),
      state(make_state(options, resumed)),
      random(state.device, options.seed),
      process(settings_of(options, state.device)),
      logger(state, destinations(options.loggers)),
      engine(state, logger, options.algorithms, options.callbacks, options.loggers, options.algorithm_passes),
      train_step(state, logger, options.accumulate_train_batch_on_tokens),
      aside_plan(options.inference_mode, options.fold_batch_norms || options.tune) {
  train_step.set_microbatch_size(options.device_train_microbatch_size, options.microbatch_memory);
  const RandomScope draws(random);
  state.model->to(state.device);
  optim::NamedParameters parameters = optim::parameters_of(*state.model);
  if (options.optimizer && !parameters.empty()) {
    state.optimizer = options.optimizer.make(std::move(parameters));
    base_lr = optim::learning_rates(*state.optimizer);
  }
  state.run = as_run();
  open_checkpoints();
  construct();
  // What hooks of the construction drew does not change what training draws.
  if (options.seed) random.seed(*options.seed);
}

Trainer::Trainer(TrainerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

const std::vector<std::string>& Trainer::tuning() const { return impl_->tuning; }

void Trainer::fit(FitOptions options) {
  impl_->start_fit(options, /*needs_loader=*/true);
  impl_->training([&] {
    impl_->tune();
    impl_->begin();
    while (impl_->step()) {
    }
    impl_->end();
  });
  impl_->finish_fit();
}

void Trainer::begin(FitOptions options) {
  impl_->start_fit(options, /*needs_loader=*/false);
  impl_->training([&] {
    impl_->tune();
    impl_->begin();
  });
}

bool Trainer::step() {
  if (!impl_->fitting) throw ConfigError("Trainer: step() before begin()");
  return impl_->training([&] { return impl_->step(); });
}

bool Trainer::step(Batch batch) {
  if (batch.empty()) throw DataError("Trainer::step: the batch is empty");
  impl_->given_batch = std::move(batch);
  const bool trained = step();
  impl_->given_batch.reset();  // not taken if training is over
  return trained;
}

void Trainer::end() {
  if (!impl_->fitting) throw ConfigError("Trainer: end() before begin()");
  impl_->training([&] { impl_->end(); });
  impl_->finish_fit();
}

void Trainer::eval(EvalOptions options) {
  if (impl_->engine.closed()) throw Error("Trainer: eval() after close(); make a new Trainer");
  std::vector<EvalRun> given = impl_->make_runs(options.eval_dataloader, "1ep", options.subset_num_batches);
  std::vector<EvalRun>& runs = given.empty() ? impl_->evaluators : given;
  if (runs.empty())
    throw ConfigError("eval_dataloader: is required to eval; give it to the Trainer's options or to eval()");
  for (const EvalRun& run : given)
    if (std::ranges::any_of(impl_->evaluators,
                            [&](const EvalRun& other) { return other.feed.label() == run.feed.label(); }))
      warn(join("eval: the trainer has an evaluator with the label \"", run.feed.label(),
                "\"; its metrics are overwritten"));
  impl_->located([&] { impl_->eval(runs, given.empty() ? options.subset_num_batches : -1); });
}

std::vector<Outputs> Trainer::predict(const AnyDataSpec& dataloader, PredictOptions options) {
  if (impl_->engine.closed()) throw Error("Trainer: predict() after close(); make a new Trainer");
  if (!dataloader) throw ConfigError("predict: a dataloader is required");
  Feed feed(dataloader, "predict", options.subset_num_batches);
  return impl_->located([&] { return impl_->predict(std::move(feed), options.return_outputs); });
}

void Trainer::close() {
  const RandomScope draws(impl_->random);
  impl_->engine.close();
}
State& Trainer::state() { return impl_->state; }
const State& Trainer::state() const { return impl_->state; }
Engine& Trainer::engine() { return impl_->engine; }
Logger& Trainer::logger() { return impl_->logger; }
int Trainer::interrupted_by() const { return impl_->interrupted_by; }

}  // namespace composer
