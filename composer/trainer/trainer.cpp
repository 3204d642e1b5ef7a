#include "composer/trainer/trainer.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/for_all_ranks.h"
#include "composer/core/model_access.h"
#include "composer/core/rank_seed.h"
#include "composer/data/seekable_loader.h"
#include "composer/device/device_support.h"
#include "composer/device/side_stream.h"
#include "composer/kernels/gemm.h"
#include "composer/optim/refit.h"
#include "composer/trainer/eval_runs.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/impl.h"
#include "composer/trainer/joined_outputs.h"
#include "composer/trainer/rank_options.h"
#include "composer/trainer/trainer_options.h"
#include "composer/util/environment.h"
#include "composer/util/random_text.h"

namespace composer {
namespace {

bool has_own_order(const AnyDataSpec& dataloader) {
  const auto* loader = dynamic_cast<const data::detail::SeekableLoader*>(dataloader.dataloader.get());
  return loader && !loader->in_order();
}

std::string name_of_run(const std::string& given) {
  if (!given.empty()) return given;
  for (const char* variable : {"COMPOSER_RUN_NAME", "RUN_NAME"})
    if (const std::string value = environment(variable); !value.empty()) return value;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "run-%Y%m%d-%H%M%S-", &utc);
  // Two runs may begin in the same second.
  return text.data() + util::random_text(6, "0123456789abcdefghijklmnopqrstuvwxyz");
}

std::uint64_t current_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.current_seed() & std::numeric_limits<std::int64_t>::max();  // it is logged as a signed number
}

at::Device device_of(const TrainerOptions& options) {
  const at::Device device = options.device ? *options.device : available_accelerator().value_or(at::kCPU);
  const dist::World& world = *options.world;
  return world.is_alone() ? device : device_support(device.type()).of_rank(device, world.environment().local_rank);
}

// The loggers of rank 0; on other ranks, those that run on every rank.
Loggers loggers_of(const Loggers& given, const Ranks& ranks) {
  if (ranks.first()) return given;
  Loggers kept;
  for (const auto& plugin : given.list())
    if (const auto* each = plugin.interfaces.for_all_ranks; each && each->is_for_all_ranks()) kept.add(plugin.object);
  return kept;
}

// Replaces the options with those of this rank.
Ranks of_rank(TrainerOptions& options) {
  Ranks ranks(options.world, options.distributed);
  options.world = ranks.shared_world();
  options.loggers = loggers_of(options.loggers, ranks);
  add_loader(options.train_dataloader, options.callbacks);
  if (!options.tune_cache.empty()) options.tune_cache = std::filesystem::absolute(options.tune_cache);
  return ranks;
}

State make_state(const TrainerOptions& options, const std::optional<saving::Found>& resumed) {
  if (!options.model) throw ConfigError("model: is required");
  const at::Device device = device_of(options);
  check_options(options, device);
  State state;
  state.run_name = resumed ? resumed->manifest.run_name : name_of_run(options.run_name);
  state.resumes = resumed.has_value();
  state.seed = options.seed.value_or(current_seed());
  state.rank = options.world->rank();
  state.world_size = options.world->size();
  state.model = options.model;
  state.device = with_index(device);
  state.precision = options.precision;
  state.iteration_length = options.iteration_length;

  move_to(as_module(*state.model), state.device);
  if (!parameters(as_module(*state.model)).empty()) state.optimizer = options.optimizer.made();
  return state;
}

ProcessSettings settings_of(const TrainerOptions& options, at::Device device) {
  ProcessSettings settings{.tunes_threads = options.tune};
  if (device_support(device.type()).tf32_backend()) settings.allow_tf32 = options.allow_tf32;
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
      ranks(of_rank(options)),
      resumption{checkpoint_to_resume(options, ranks)},
      state(ranks.together([&] { return make_state(options, resumption.found); })),
      process{.random = OwnRandom(state.device, options.seed), .settings = settings_of(options, state.device)},
      logger(state, destinations(options.loggers)),
      train_step(state, logger, options.accumulate_train_batch_on_tokens),
      run(std::in_place, needs_of_run(), options.grace_period),
      checkpoints(
          options, ranks, state, replicas, resumption,
          {.whole_optimizer =
               [this] { return train_step.ranks().optimizer_shards()->gather(own_optimizer(state, train_step)); },
           .own_part = [this] { return own_part(state, train_step, engine, options.save_ignore_keys); }}),
      engine(state, logger, options.algorithms, options.callbacks, options.loggers, options.algorithm_passes) {
  if (!ranks.alone() || ranks.has_shards()) join_ranks();
  train_step.set_microbatch_size(options.device_train_microbatch_size, options.microbatch_memory);
  train_step.set_on_nan(options.nan);
  process.products.set_others(options.products == Products::OWN);
  if (options.products == Products::OWN && state.device.is_cpu() && !kernels::has_gemm())
    warn("products: libtorch's are used, because this processor has neither AVX-512 nor AVX2 with FMA");
  const RandomScope draws(process.random);
  std::optional<kernels::ProductScope> multiplies;
  if (tuning.decides_products()) multiplies.emplace(process.products);
  try {
    construct();
  } catch (...) {
    ranks.rethrow_to_all();
  }
  // Numbers that hooks drew during construction do not change those that training draws.
  if (options.seed) process.random.seed(rank_seed(state));
}

TrainerRun::Needs Trainer::Impl::needs_of_run() {
  RunState saved{.ranks = ranks,
                 .state = state,
                 .process = process,
                 .engine = engine,
                 .weights_in_use = weights_in_use,
                 .settings = settings,
                 .train_step = train_step,
                 .rates = rates,
                 .evaluators = evaluators,
                 .tuning = tuning,
                 .hyperparameters = hyperparameters,
                 .fits = fits,
                 .fit = fit,
                 .checkpoints = checkpoints,
                 .resumption = resumption};
  RunLoader loader{.options = options,
                   .ranks = ranks,
                   .state = state,
                   .engine = engine,
                   .weights_in_use = weights_in_use,
                   .resumption = resumption,
                   .run_state = saved};
  return {.loader = loader,
          .calls = calls,
          .replicas = replicas,
          .evaluation_loop = evaluation_loop,
          .time = time,
          .stopping = stopping};
}

void Trainer::Impl::join_ranks() {
  ranks.together([this] {
    if (ranks.has_shards() && options.device_train_microbatch_size.samples() != 0)
      throw ConfigError(
          "distributed.virtual_shards: each shard is a microbatch; leave device_train_microbatch_size at 0");
    if (options.cuda_graph)
      throw ConfigError("cuda_graph: is for one process; several reduce gradients while they train");
  });
  check_same_options(ranks, options, {state, data.feed(), rates.made()});
  ranks.shared_world()->use_device(state.device);
  state.seed = ranks.same(state.seed);
  state.run_name = ranks.same(state.run_name);
  if (!ranks.first()) process.random.seed(rank_seed(state));
  train_step.ranks().join(state, ranks.shared_world(), ranks.options());
}

// Called after INIT, where algorithms may have replaced parts of the model.
void Trainer::Impl::make_optimizer(optim::NamedParameters before_init) {
  move_to(as_module(*state.model), state.device);
  optim::NamedParameters parameters = optim::parameters_of(as_module(*state.model));
  if (state.optimizer)
    optim::refit(*state.optimizer, before_init, parameters);
  else if (options.optimizer && !parameters.empty())
    state.optimizer = options.optimizer.make(std::move(parameters));
  if (state.optimizer) rates.begin(*state.optimizer);
}

// Ends a fit that is still open, because training cannot continue after close().
void Trainer::Impl::close() {
  calls.require_idle("close()");
  release();
}

Trainer::Impl::~Impl() {
  try {
    release();
  } catch (...) {
    warn(join("the end of a trainer: ", describe(std::current_exception())));
  }
}

// A second call does nothing. An optimizer that the program made gets back its original learning rates, with which
// another trainer can start.
void Trainer::Impl::release() {
  const RandomScope draws(process.random);
  const bool well = fits.end_well() && !fit;  // a run whose open fit is dropped is to be begun again
  engine.close();
  if (!run) return;  // a trial owns nothing
  if (fit && !fit->skipped) checkpoints.warn_of_unsaved();
  run->close();
  if (fit) finish_fit();
  if (state.optimizer && options.optimizer.made()) rates.schedules().withdraw(*state.optimizer);
  run.reset();
  checkpoints.end_run(well);
}

Trainer::Impl& Trainer::impl() const {
  if (!impl_) throw Error("Trainer: this one has been moved from; use the one that it was moved to");
  return *impl_;
}

Trainer::Trainer(TrainerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

const std::vector<std::string>& Trainer::tuning() const { return impl().tuning.lines(); }

void Trainer::fit(FitOptions options) {
  Impl& trainer = impl();
  trainer.start_fit(options, /*needs_loader=*/true);
  if (trainer.fit->skipped) return trainer.finish_fit();
  trainer.guard.train([&] {
    trainer.begin();
    while (trainer.step()) {
    }
    trainer.end();
  });
  trainer.finish_fit();
}

void Trainer::begin(FitOptions options) {
  impl().start_fit(options, /*needs_loader=*/false);
  if (impl().fit->skipped) return;
  impl().guard.train([&] { impl().begin(); });
}

bool Trainer::step() {
  impl().guard.require_fit("step()");
  if (!impl().fit->source.has_loader())
    throw ConfigError("Trainer::step: there is no train_dataloader; call step(batch)");
  if (impl().fit->skipped) return false;
  return impl().guard.train([&] { return impl().step(); });
}

bool Trainer::step(Batch batch) {
  if (batch.empty()) throw DataError("Trainer::step: the batch is empty");
  impl().guard.require_fit("step()");
  BatchSource& source = impl().fit->source;
  if (source.has_loader())
    throw ConfigError("Trainer::step: this fit takes its batches from the ", source.feed().label(),
                      " loader; for batches of your own, make a Trainer without a train_dataloader");
  if (impl().fit->skipped) return false;
  source.give(std::move(batch));
  const bool trained = impl().guard.train([&] { return impl().step(); });
  source.take_back();  // step() has not used the batch if training is over
  return trained;
}

bool Trainer::done() const {
  const Impl& trainer = impl();
  trainer.guard.require_fit("done()");
  if (trainer.fit->skipped) return true;
  // A single rank must not leave a loop in which the others continue: the last step() has returned what all agree on.
  if (trainer.time.limit_reached()) return true;
  return trainer.ranks.alone() ? trainer.stopping.is_asked_here() : trainer.stopping.over();
}

void Trainer::end() {
  impl().guard.require_fit("end()");
  if (!impl().fit->skipped) impl().guard.train([&] { impl().end(); });
  impl().finish_fit();
}

void Trainer::eval(EvalOptions options) {
  Impl& trainer = impl();
  trainer.guard.require_open("eval()");
  if (trainer.evaluation_loop.is_evaluating()) throw ConfigError("Trainer: eval() inside of an evaluation");
  trainer.calls.require_no_trial("eval()");
  check_subset("eval", options.subset_num_batches);
  std::vector<EvalRun> given = eval_runs(options.eval_dataloader.cut_to(options.subset_num_batches), "1ep", -1,
                                         trainer.state, trainer.ranks, trainer.options.microbatch_memory);
  std::vector<EvalRun>& own = trainer.evaluators.runs();
  std::vector<EvalRun>& runs = given.empty() ? own : given;
  if (runs.empty())
    throw ConfigError("eval_dataloader: is required to eval; give it to the Trainer's options or to eval()");
  check_labels(trainer.data.feed() ? trainer.data.feed().label() : trainer.options.train_dataloader_label,
               labels_of(given));
  for (const EvalRun& run : given)
    if (std::ranges::any_of(own, [&](const EvalRun& other) { return other.feed.label() == run.feed.label(); }))
      warn(join("eval: the trainer has an evaluator with the label \"", run.feed.label(),
                "\"; its metrics are overwritten, and what is measured here chooses no checkpoint"));
  check_same_evaluation(trainer.ranks, runs, options.subset_num_batches);
  const bool was_asked = trainer.state.stop.pending();
  const bool by_program = !trainer.calls.busy();  // otherwise by a callback, in a fit that a signal is to end
  trainer.guard.run([&] {
    trainer.evaluation_loop.eval(runs, options.subset_num_batches, by_program);
    if (!trainer.fit) trainer.checkpoints.write_measured();
  });
  trainer.evaluators.keep_metrics(std::move(given));
  // A stopper that decides at an evaluation between two fits does not end the next fit.
  if (!trainer.fit && !was_asked) trainer.state.stop.answer();
}

const Metric& Trainer::found_metric(std::string_view label, std::string_view name) const {
  return impl().evaluators.metric(label, name);
}

std::vector<Outputs> Trainer::predict(const AnyDataSpec& dataloader, PredictOptions options) {
  if (options.return_outputs && has_own_order(dataloader))
    warn(
        "predict: the loader gives the samples in another order than that of the data, because of shuffle, lengths or "
        "num_canonical_nodes, and so are the outputs; predict_all() returns rows in the order of the data");
  std::vector<Outputs> outputs;
  for (PredictedBatch& batch : impl().predict(dataloader, options))
    if (!batch.outputs.empty()) outputs.push_back(std::move(batch.outputs));
  return outputs;
}

Outputs Trainer::predict_all(const AnyDataSpec& dataloader, std::int64_t subset_num_batches) {
  Impl& trainer = impl();
  std::vector<PredictedBatch> batches = trainer.predict(dataloader, {.subset_num_batches = subset_num_batches});
  JoinedOutputs joined = trainer.guard.run([&] { return joined_outputs(trainer.ranks, std::move(batches)); });
  if (!joined.in_data_order && has_own_order(dataloader))
    warn(
        "predict_all: the loader did not give each sample once, so the rows are in its order, which is another one "
        "than that of the data; set shuffle = false, without lengths or num_canonical_nodes");
  return std::move(joined.outputs);
}

std::vector<PredictedBatch> Trainer::Impl::predict(const AnyDataSpec& dataloader, PredictOptions options) {
  guard.require_open("predict()");
  if (evaluation_loop.is_predicting()) throw ConfigError("Trainer: predict() inside of a prediction");
  calls.require_no_trial("predict()");
  if (!dataloader) throw ConfigError("predict: a dataloader is required");
  Feed feed = ranks.feed(dataloader, "predict", options.subset_num_batches);
  check_same_prediction(ranks, feed);
  return guard.run([&] { return evaluation_loop.predict(std::move(feed), options.return_outputs); });
}

void Trainer::with_weights(WeightsUse use, const std::function<void(Model& model)>& act) {
  Impl& trainer = impl();
  const Flag in_call = trainer.calls.begin();
  const WeightsInUse::Scope weights(trainer.weights_in_use, use);
  act(*trainer.state.model);
}

std::string Trainer::save_checkpoint(const std::string& name) {
  Impl& trainer = impl();
  trainer.guard.require_open("save_checkpoint()");
  if (!trainer.ranks.any(!trainer.options.save_folder.empty()))
    throw ConfigError("save_checkpoint: there is no save_folder to write it to");
  if (trainer.calls.in_trial()) throw ConfigError("save_checkpoint: inside of find_lr(), whose steps are undone");
  trainer.calls.require_own_weights("save_checkpoint", trainer.engine);
  if (trainer.fit) trainer.calls.require_exact_place("save_checkpoint");
  trainer.checkpoints.check_name(name);
  return trainer.guard.run([&] {
    return trainer.checkpoints.save_by_hand(name, trainer.resumption, trainer.fits.number(), trainer.fit.has_value());
  });
}

std::vector<std::string> Trainer::saved_checkpoints() const { return impl().checkpoints.paths().all(); }
std::optional<std::string> Trainer::best_checkpoint() const { return impl().checkpoints.paths().best(); }
std::string Trainer::restore_best() {
  Impl& trainer = impl();
  trainer.guard.require_open("restore_best()");
  if (trainer.fit) throw ConfigError("restore_best: inside of a fit; call it after fit() or end()");
  const std::string path = trainer.ranks.same(best_checkpoint().value_or(""));
  if (path.empty())
    throw ConfigError("restore_best: there is no best checkpoint; set save_folder, save_best and an evaluator");
  for (const auto& algorithm : trainer.engine.algorithms())
    if (algorithm.object->weights_for(WeightsUse::EVALUATION))
      throw ConfigError("restore_best: ", algorithm.name,
                        " evaluates weights of its own, and the checkpoint's value is theirs: `composer convert ", path,
                        " best.safetensors --averages` writes them, and load_weights() reads them");
  const std::string loaded_from = trainer.resumption.loaded_from;
  trainer.state.run->load({.path = path, .weights_only = true});
  trainer.resumption.loaded_from = loaded_from;  // the run has not begun there
  return path;
}
const std::string& Trainer::resumed_from() const { return impl().resumption.loaded_from; }

void Trainer::close() { impl().close(); }

at::Generator Trainer::generator(at::Device device) const {
  if (const at::Generator* generator = impl().process.random.find(device)) return *generator;
  throw ConfigError("Trainer: generator(): this trainer draws nothing on ", device.str(), "; it trains on ",
                    impl().state.device.str());
}

State& Trainer::state() { return impl().state; }
const State& Trainer::state() const { return impl().state; }
Engine& Trainer::engine() { return impl().engine; }
Logger& Trainer::logger() { return impl().logger; }
int Trainer::interrupted_by() const { return impl().fits.interrupted_by; }

}  // namespace composer
