#include "composer/tuning/tuner.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/plugins.h"
#include "composer/device/device_support.h"
#include "composer/kernels/gemm.h"
#include "composer/step/batch_undo.h"
#include "composer/step/model_settings.h"
#include "composer/tuning/product_race.h"
#include "composer/util/autocast.h"
#include "composer/util/environment.h"
#include "composer/util/random.h"
#include "composer/util/threads_here.h"

namespace composer {
namespace {

constexpr int kTuneMostRounds = 25, kTuneLeastRounds = 3;
constexpr double kTuneSeconds = 1;           // for all ways, once the fewest rounds are done
constexpr double kTunePatience = 20;         // seconds for which disturbed trials are repeated
constexpr double kThreadsPatience = 5;       // seconds, for trials of the number of threads alone
constexpr double kTuneTrialSeconds = 0.005;  // a single short step would measure the clock rather than the model
constexpr int kMostSteps = 50;               // in a trial
constexpr double kRaceSteps = 6;  // steps' worth of time, enough for three trials of each product by both kernels

struct Stopped : std::exception {};

// Saves what a step changes besides gradients, and restores it at the end of the scope. Gradients are made undefined.
class RestoreStep {
 public:
  explicit RestoreStep(State& state)
      : state_(state),
        undo_(state),
        batch_(state.batch),
        outputs_(state.outputs),
        loss_(state.loss),
        batch_loss_(state.batch_loss),
        modes_(as_module(*state.model)) {
    train_unfrozen(as_module(*state.model));
  }
  ~RestoreStep() {
    try {
      undo_.restore();
    } catch (...) {
      warn(join("tune: a buffer of the model is not as it was before the trial steps: ",
                describe(std::current_exception())));
    }
    for (const at::Tensor& parameter : parameters(as_module(*state_.model))) parameter.mutable_grad().reset();
    modes_.restore();
    state_.batch = std::move(batch_);
    state_.outputs = std::move(outputs_);
    state_.loss = std::move(loss_);
    state_.batch_loss = std::move(batch_loss_);
  }
  RestoreStep(const RestoreStep&) = delete;
  RestoreStep& operator=(const RestoreStep&) = delete;

 private:
  State& state_;
  BatchUndo undo_;
  Batch batch_;
  Outputs outputs_;
  Losses loss_, batch_loss_;
  ModuleModes modes_;
};

// Restores precision, threads, products and the layout of weights if an error leaves the scope.
class RestoreOnError {
 public:
  RestoreOnError(State& state, kernels::ProductTable* products) : state_(state), products_(products) {
    for (const at::Tensor& parameter : parameters(as_module(*state.model)))
      if (parameter.dim() == 4) layouts_.emplace_back(parameter, parameter.suggest_memory_format());
  }
  ~RestoreOnError() {
    if (std::uncaught_exceptions() <= exceptions_) return;
    state_.precision = precision_;
    if (products_) *products_ = {};
    kernels::ProductScope::table_has_changed();
    if (at::get_num_threads() != threads_) use_threads_here(threads_);
    const at::NoGradGuard no_grad;
    for (const auto& [parameter, format] : layouts_) try {
        if (!parameter.is_contiguous(format)) parameter.set_data(parameter.contiguous(format));
      } catch (const c10::Error&) {  // out of memory: the other layout trains as well
        return;
      }
  }
  RestoreOnError(const RestoreOnError&) = delete;
  RestoreOnError& operator=(const RestoreOnError&) = delete;

 private:
  State& state_;
  kernels::ProductTable* products_;
  std::vector<std::pair<at::Tensor, at::MemoryFormat>> layouts_;
  Precision precision_ = state_.precision;
  int threads_ = at::get_num_threads();
  int exceptions_ = std::uncaught_exceptions();
};

// What decides the speed of products beside the processor's name, which means little on virtual machines.
std::string of_products() {
  std::string text = join(", ", kernels::gemm_instructions());
  if (autocast_type(at::kCPU)) text += ", within autocast";
  for (const char* name : {"MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "OMP_WAIT_POLICY"})
    if (const auto value = environment_if_set(name)) text += join(", ", name, '=', *value);
  return text;
}

std::string milliseconds(double seconds) { return join(std::round(seconds * 1e5) / 100, " ms"); }

}  // namespace

TuningResult Tuner::run(Batch batch, const std::filesystem::path& cache_file, std::optional<Tuned>& chosen) {
  allowed_ = state_.precision;
  patience_ = kTunePatience;
  layouts_ = ways_ && has_convolutions();
  if (!state_.device.is_cpu() || !kernels::has_gemm()) products_ = nullptr;
  if (chosen && products_) kept_products_ = chosen->products.value_or(kernels::ProductTable().text());
  if (chosen && fits(*chosen)) {
    use(*chosen);
    return std::move(result_);
  }
  try {
    chosen = find_or_measure(std::move(batch), TuneCache(cache_file), chosen.has_value());
  } catch (const Stopped&) {
    result_ = {};
  }
  step_.forget_batch();
  return std::move(result_);
}

TuningResult Tuner::run_threads(Batch batch, int other, Tuned& chosen) {
  patience_ = kThreadsPatience;
  const std::vector<Way> ways = {{.threads = chosen.threads}, {.threads = other}};
  try {
    const RestoreOnError restore_on_error(state_, nullptr);
    const RestoreStep restore_step(state_);
    state_.batch = std::move(batch);
    step_.start(feed_);
    const Verdict verdict = fastest(ways, [](const Way& way) { use_threads_here(way.threads); });
    use_threads_here(ways[verdict.way].threads);
    say(ways, verdict);
    chosen.threads = ways[verdict.way].threads;
    chosen.seconds = verdict.seconds[verdict.way];
  } catch (const Stopped&) {
    result_ = {};
  }
  step_.forget_batch();
  return std::move(result_);
}

bool Tuner::fits(const Tuned& tuned) const {
  return !ways_ || (tuned.threads >= 1 && tuned.threads <= at::get_num_threads());
}

// A choice from a checkpoint is not a measurement of this machine, so it is not put into the cache.
Tuned Tuner::find_or_measure(Batch batch, const TuneCache& cache, bool resumes) {
  const RestoreOnError restore_on_error(state_, products_);
  const RestoreStep restore_step(state_);
  const std::string start = key(batch);
  state_.batch = std::move(batch);
  if (products_ && !kept_products_) look_at_step();
  result_.key = join(start, shapes_key());
  if (auto found = resumes ? std::nullopt : cache.find(result_.key);
      found && fits(*found) && (!products_ || found->products)) {
    use(*found);
    return *found;
  }
  if (!shapes_) look_at_step();
  const Tuned best = measure();
  if (!kept_products_ && !result_.disturbed) cache.put(result_.key, best);
  return best;
}

Tuned Tuner::measure() {
  if (kept_products_)
    set_products(kernels::ProductTable::from_text(*kept_products_).value_or(kernels::ProductTable()));
  else if (products_)
    race(all_ways());
  const std::vector<Way> ways = all_ways();
  const Verdict verdict = ways.size() == 1 ? Verdict() : fastest(ways, [this](const Way& way) { use(way); });
  const Way& way = ways[verdict.way];
  use(way);
  say(ways, verdict);
  Tuned best{.channels_last = way.channels_last, .autocast = way.autocast, .threads = way.threads};
  if (products_) best.products = kept_products_.value_or(products_->text());
  if (!verdict.seconds.empty()) best.seconds = verdict.seconds[verdict.way];
  return best;
}

// Choices depend on each other, so there is a way for each combination.
std::vector<Tuner::Way> Tuner::all_ways() const {
  const bool autocast = allowed_ != Precision::FP32;
  const int threads = at::get_num_threads();
  std::vector<bool> layouts{false}, precisions{autocast};
  std::vector<int> numbers{threads};
  if (layouts_) layouts.push_back(true);
  if (ways_ && autocast) precisions.push_back(false);
  if (ways_ && state_.device.is_cpu() && threads > 1) numbers.push_back(1);
  std::vector<Way> ways;
  for (const bool channels_last : layouts)
    for (const bool cast : precisions)
      for (const int number : numbers)
        for (const bool own : {false, true})
          if (const auto table = tables_.find(number); !own || (table != tables_.end() && !table->second.empty()))
            ways.push_back({.channels_last = channels_last, .autocast = cast, .threads = number, .own_products = own});
  return ways;
}

// Races the products of all ways, with each number of threads.
void Tuner::race(const std::vector<Way>& ways) {
  const Way in_use = ways.front();
  set_products({});
  Shapes shapes;
  for (const bool channels_last : {false, true}) {
    if (channels_last && !layouts_) continue;
    if (layouts_) set_channels_last(channels_last);
    for (const auto& shape : shapes_of_step()) shapes.insert(shape);
  }
  use(in_use);
  shapes_ = shapes;
  if (shapes.empty()) return;
  std::map<int, kernels::ProductTable> tables;
  for (const Way& way : ways) {
    if (tables.contains(way.threads)) continue;
    use_threads_here(way.threads);
    ProductRace raced = race_products(
        shapes, kRaceSteps * time_steps(1), [this] { go_on_unless_stopped(); }, patience_);
    tables[way.threads] = std::move(raced.table);
    result_.disturbed = result_.disturbed || raced.disturbed;
  }
  use(in_use);
  tables_ = std::move(tables);
}

Verdict Tuner::fastest(const std::vector<Way>& ways, const std::function<void(const Way&)>& use_way) {
  int steps = 1;
  Contest contest{.time = [&](std::size_t way) {
    use_way(ways[way]);
    if (steps > 1) step();  // the first step after a change is slower
    return time_steps(steps);
  }};
  const Way& first = ways.front();
  for (const Way& way : ways)
    contest.changes.push_back((way.channels_last != first.channels_last) + (way.autocast != first.autocast) +
                              (way.threads != first.threads) + (way.own_products != first.own_products));
  for (std::size_t way = ways.size(); way-- > 0;) contest.time(way);  // the first step with new shapes prepares kernels
  steps = static_cast<int>(std::clamp(kTuneTrialSeconds / contest.time(0), 1.0, static_cast<double>(kMostSteps)));
  Verdict verdict = fastest_of(contest, {kTuneLeastRounds, kTuneMostRounds, kTuneSeconds}, patience_);
  result_.disturbed = result_.disturbed || verdict.disturbed;
  return verdict;
}

// Adds a TuningChoice for each setting: what was chosen, and the time of a step with the other choice. All other
// settings are then equal, except products.
void Tuner::say(const std::vector<Way>& ways, const Verdict& verdict) {
  const Way& chosen = ways[verdict.way];
  const auto say_of = [&](const char* setting, const auto& member, const auto& name_of) {
    const Way* other = nullptr;
    double seconds = 0;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      Way same = ways[i];
      same.own_products = chosen.own_products;
      same.*member = chosen.*member;
      if (ways[i].*member == chosen.*member || same != chosen || (other && verdict.seconds[i] >= seconds)) continue;
      other = &ways[i];
      seconds = verdict.seconds[i];
    }
    if (!other) return false;
    result_.choices.push_back({.setting = setting,
                               .chosen = name_of(chosen),
                               .reason = join(milliseconds(verdict.seconds[verdict.way]), " a step (", name_of(*other),
                                              ": ", milliseconds(seconds), ')')});
    return true;
  };
  say_of("weights", &Way::channels_last,
         [](const Way& way) { return std::string(way.channels_last ? "channels last" : "as they are"); });
  say_of("precision", &Way::autocast,
         [&](const Way& way) { return std::string(to_string(way.autocast ? allowed_ : Precision::FP32)); });
  say_of("threads", &Way::threads, [](const Way& way) { return join(way.threads); });
  const bool had_own = say_of("products", &Way::own_products, [&](const Way& way) {
    return way.own_products
               ? join("own kernels for ", tables_.at(way.threads).own_shapes(), " of ", shapes_->size(), " shapes")
               : std::string("libtorch's");
  });
  if (!had_own && shapes_ && !shapes_->empty() && !tables_.empty())
    result_.choices.push_back(
        {.setting = "products",
         .chosen = "libtorch's",
         .reason = join("which are as fast as our own kernels for each of ", shapes_->size(), " shapes")});
  if (result_.disturbed)
    result_.choices.push_back({.setting = "kept",
                               .chosen = "no",
                               .reason = "other programs used the processors while this was measured, so it is used "
                                         "in this run, and the next one measures again"});
}

void Tuner::go_on_unless_stopped() const {
  if (stops_()) throw Stopped();
}

// Finds the products of a step. If forward or loss changes the model's parameters, restores them, and stops: trial
// steps would train the model.
void Tuner::look_at_step() {
  std::vector<at::Tensor> before;
  for (const at::Tensor& parameter : parameters(as_module(*state_.model))) before.push_back(parameter.detach().clone());
  step_.start(feed_);
  shapes_ = shapes_of_step();
  const at::NoGradGuard no_grad;
  bool changed = false;
  for (std::size_t i = 0; const at::Tensor& parameter : parameters(as_module(*state_.model))) {
    const at::Tensor& value = before[i++];
    if (parameter.equal(value)) continue;
    parameter.copy_(value);
    changed = true;
  }
  if (!changed) return;
  warn("tune: nothing was tried, because forward or loss of this model changes its parameters");
  throw Stopped();
}

// The key has no addresses or random parts: it is the same in every run of the same program on the same machine.
std::string Tuner::key(const Batch& batch) const {
  std::uint64_t shapes = 0;
  const auto mix = [&shapes](const at::Tensor& tensor) {
    shapes = hash64(shapes, static_cast<std::uint64_t>(tensor.scalar_type()), tensor.is_contiguous());
    for (const std::int64_t size : tensor.sizes()) shapes = hash64(shapes, static_cast<std::uint64_t>(size));
  };
  for (const at::Tensor& parameter : parameters(as_module(*state_.model))) mix(parameter);
  for (const at::Tensor& parameter : parameters(as_module(*state_.model)))
    shapes = hash64(shapes, parameter.requires_grad());
  for (const auto& [name, tensor] : batch) mix(tensor);
  const Model& model = *state_.model;
  return join(class_name_of(model), " ", std::hex, shapes, std::dec, ", microbatches of ",
              state_.device_train_microbatch_size, ", ", to_string(allowed_), ", ", at::get_num_threads(), " threads, ",
              device_support(state_.device.type()).name_of(state_.device),
              products_ ? of_products() : std::string(", libtorch's products"), ways_ ? "" : ", nothing else",
              ", libtorch ", TORCH_VERSION, ", libcomposer ", COMPOSER_VERSION);
}

// Heads, strides and the loss also decide which products there are, and no name or parameter shows them.
std::string Tuner::shapes_key() const {
  if (!products_ || !shapes_) return "";
  std::uint64_t all = 0;
  for (const auto& [s, count] : *shapes_)
    all = hash64(all, s.batch, s.m, s.n, s.k, static_cast<std::uint64_t>(s.a), static_cast<std::uint64_t>(s.b), s.adds,
                 static_cast<std::uint64_t>(s.type));
  return join(", products ", std::hex, all);
}

void Tuner::use(const Tuned& tuned) {
  const auto say_found = [this](const char* what, auto chosen_before) {
    result_.choices.push_back({.setting = what, .chosen = join(chosen_before), .reason = "as was found before"});
  };
  if (layouts_) {
    say_found("weights", tuned.channels_last ? "channels last" : "as they are");
    if (tuned.channels_last) set_channels_last(true);
  }
  if (ways_ && allowed_ != Precision::FP32) {
    set_autocast(tuned.autocast);
    say_found("precision", to_string(state_.precision));
  }
  if (ways_ && state_.device.is_cpu() && at::get_num_threads() > 1) {
    use_threads_here(tuned.threads);
    say_found("threads", tuned.threads);
  }
  if (!products_) return;
  set_products(kernels::ProductTable::from_text(tuned.products.value_or("")).value_or(kernels::ProductTable()));
  say_found("products", products_->empty() ? "libtorch's" : "own kernels");
}

void Tuner::use(const Way& way) {
  if (layouts_) set_channels_last(way.channels_last);
  if (ways_) set_autocast(way.autocast);
  if (way.threads != at::get_num_threads()) use_threads_here(way.threads);
  if (!products_ || kept_products_) return;
  const auto table = tables_.find(way.threads);
  set_products(way.own_products && table != tables_.end() ? table->second : kernels::ProductTable());
}

bool Tuner::has_convolutions() const {
  return std::ranges::any_of(parameters(as_module(*state_.model)), [](const at::Tensor& parameter) {
    return parameter.dim() == 4 && parameter.is_contiguous() &&
           !parameter.is_contiguous(at::MemoryFormat::ChannelsLast);
  });
}

void Tuner::set_channels_last(bool on) {
  const auto format = on ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : parameters(as_module(*state_.model))) {
    if (parameter.dim() != 4 || parameter.is_contiguous(format)) continue;
    parameter.set_data(parameter.contiguous(format));
    parameter.mutable_grad().reset();  // the old gradient has the other layout
  }
}

void Tuner::set_autocast(bool on) { state_.precision = on ? allowed_ : Precision::FP32; }

void Tuner::set_products(const kernels::ProductTable& table) {
  *products_ = table;
  kernels::ProductScope::table_has_changed();
}

// The products of a step in fp32, and those in bf16 if the allowed precision has them.
Tuner::Shapes Tuner::shapes_of_step() {
  const auto recorded = [this](Precision precision) {
    const Precision before = std::exchange(state_.precision, precision);
    const kernels::ProductRecorder recorder;
    step();
    state_.precision = before;
    return recorder.shapes();
  };
  Shapes shapes = recorded(Precision::FP32);
  if (allowed_ == Precision::FP32) return shapes;
  for (const auto& [shape, count] : recorded(allowed_))
    if (shape.type == at::kBFloat16) shapes.insert({shape, count});
  return shapes;
}

void Tuner::step() {
  go_on_unless_stopped();
  step_.zero_gradients();
  step_.enter(feed_, 0);
  result_.elements = elements_of(state_.batch);
  step_.forward();
  step_.loss();
  step_.backward();
}

double Tuner::time_steps(int steps) {
  const c10::impl::VirtualGuardImpl device(state_.device.type());
  const WorkClock clock;
  for (int i = 0; i < steps; ++i) step();
  if (!state_.device.is_cpu()) device.synchronizeDevice(state_.device.index());
  return clock.seconds(state_.device.is_cpu() && at::get_num_threads() == 1) / steps;
}

std::int64_t elements_of(const Batch& batch) {
  std::int64_t all = 0;
  for (const auto& [name, tensor] : batch) all += tensor.numel();
  return all;
}

std::string to_string(const TuningChoice& choice) {
  return join(choice.setting, ": ", choice.chosen, ", ", choice.reason);
}

}  // namespace composer
