#include "composer/trainer/tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
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
#include "composer/kernels/gemm.h"
#include "composer/step/batch_undo.h"
#include "composer/trainer/product_race.h"
#include "composer/trainer/trials.h"
#include "composer/util/autocast.h"
#include "composer/util/random.h"
#include "composer/util/threads_here.h"

namespace composer {
namespace {

constexpr const char* kProducts = "products";
constexpr const char* kBf16Products = "products_bf16";
constexpr int kTuneMostRounds = 25, kTuneLeastRounds = 3;
constexpr double kTuneSeconds = 1;           // for one choice, once there are the least rounds
constexpr double kTuneTrialSeconds = 0.005;  // one short step tells more of the clock than of the model
constexpr int kMostSteps = 50;               // of a trial
constexpr double kRaceSteps = 6;             // time enough for three trials of each product by each of both

struct Stopped : std::exception {};

// What a step changes besides gradients, put back at the end of the scope.
class Untouched {
 public:
  explicit Untouched(State& state)
      : state_(state),
        undo_(state),
        batch_(state.batch),
        outputs_(state.outputs),
        loss_(state.loss),
        batch_loss_(state.batch_loss),
        modes_(as_module(*state.model)) {
    set_training(as_module(*state.model), true);
  }
  ~Untouched() {
    try {
      undo_.restore();
    } catch (const std::exception& error) {
      warn(join("tune: a buffer of the model is not as it was before the trial steps: ", describe(error)));
    }
    for (const at::Tensor& parameter : parameters(as_module(*state_.model))) parameter.mutable_grad().reset();
    modes_.restore();
    state_.batch = std::move(batch_);
    state_.outputs = std::move(outputs_);
    state_.loss = std::move(loss_);
    state_.batch_loss = std::move(batch_loss_);
  }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

 private:
  State& state_;
  BatchUndo undo_;
  Batch batch_;
  Outputs outputs_;
  Losses loss_, batch_loss_;
  ModuleModes modes_;
};

// Precision, threads, products and the layout of weights, put back if the scope is left by an error.
class UnlessDecided {
 public:
  UnlessDecided(State& state, kernels::ProductTable* products) : state_(state), products_(products) {
    for (const at::Tensor& parameter : parameters(as_module(*state.model)))
      if (parameter.dim() == 4) layouts_.emplace_back(parameter, parameter.suggest_memory_format());
  }
  ~UnlessDecided() {
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
  UnlessDecided(const UnlessDecided&) = delete;
  UnlessDecided& operator=(const UnlessDecided&) = delete;

 private:
  State& state_;
  kernels::ProductTable* products_;
  std::vector<std::pair<at::Tensor, at::MemoryFormat>> layouts_;
  Precision precision_ = state_.precision;
  int threads_ = at::get_num_threads();
  int exceptions_ = std::uncaught_exceptions();
};

// What decides how fast products are, beside the processor's name, which on virtual machines says little.
std::string of_products() {
  std::string text = join(", ", kernels::gemm_instructions());
  if (autocast_type(at::kCPU)) text += ", within autocast";
  for (const char* name : {"MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "OMP_WAIT_POLICY"})
    if (const char* value = std::getenv(name)) text += join(", ", name, '=', value);
  return text;
}

bool is_of_products(const TuningChoice& choice) {
  return choice.setting == kProducts || choice.setting == kBf16Products;
}

std::string milliseconds(double seconds) { return join(std::round(seconds * 1e5) / 100, " ms"); }

}  // namespace

std::vector<TuningChoice> Tuner::run(Batch batch, const std::filesystem::path& cache_file,
                                     std::optional<Tuned>& chosen) {
  allowed_ = state_.precision;
  if (!state_.device.is_cpu() || !kernels::has_gemm()) products_ = nullptr;
  if (chosen && products_) kept_products_ = chosen->products.value_or(kernels::ProductTable().text());
  if (chosen && fits(*chosen)) {
    use(*chosen);
    return choices();
  }
  try {
    chosen = find_or_measure(std::move(batch), TuneCache(cache_file), chosen.has_value());
  } catch (const Stopped&) {
    choices_.clear();
  }
  step_.forget_batch();
  return choices();
}

bool Tuner::fits(const Tuned& tuned) const {
  return !ways_ || (tuned.threads >= 1 && tuned.threads <= at::get_num_threads());
}

// What a checkpoint has chosen elsewhere is no measurement of this machine, so it is not put in the cache.
Tuned Tuner::find_or_measure(Batch batch, const TuneCache& cache, bool resumes) {
  const UnlessDecided unless_decided(state_, products_);
  const Untouched untouched(state_);
  const std::string start = key(batch);
  state_.batch = std::move(batch);
  if (products_ && !kept_products_) look_at_step();
  const std::string id = join(start, shapes_key());
  if (const auto found = resumes ? std::nullopt : cache.find(id);
      found && fits(*found) && (!products_ || found->products)) {
    use(*found);
    return *found;
  }
  if (!shapes_) look_at_step();
  Tuned best{.autocast = allowed_ != Precision::FP32, .threads = at::get_num_threads()};
  measure(best);
  if (!kept_products_) cache.put(id, best);
  return best;
}

void Tuner::measure(Tuned& best) {
  if (ways_ && has_convolutions())
    best.channels_last = choose("weights", {"as they are", [this] { set_channels_last(false); }},
                                {"channels last", [this] { set_channels_last(true); }});
  best.products = choose_products();
  if (ways_ && best.autocast)
    best.autocast = !choose("precision", {std::string(to_string(allowed_)), [this] { set_autocast(true); }},
                            {"fp32", [this] { set_autocast(false); }});
  if (ways_ && state_.device.is_cpu() && best.threads > 1 &&
      choose("threads", {join(best.threads), [&best] { use_threads_here(best.threads); }},
             {"1", [] { use_threads_here(1); }})) {
    best.threads = 1;
    best.products = choose_products();
  }
}

void Tuner::go_on_unless_stopped() const {
  if (stops_()) throw Stopped();
}

// Its products. A model whose forward writes its own weights would be trained by the trial steps.
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

std::vector<TuningChoice> Tuner::choices() {
  std::ranges::stable_partition(choices_, [](const TuningChoice& choice) { return !is_of_products(choice); });
  return std::move(choices_);
}

// Without addresses or chance: the same in every run of the same program on the same machine.
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
              state_.device.is_cpu() ? name_of_processor() : state_.device.str(),
              products_ ? of_products() : std::string(", libtorch's products"), ways_ ? "" : ", nothing else",
              ", libtorch ", TORCH_VERSION, ", libcomposer ", COMPOSER_VERSION);
}

// Heads, strides and the loss decide which products there are, too, and no name or parameter tells of them.
std::string Tuner::shapes_key() const {
  if (!products_ || !shapes_) return "";
  std::uint64_t all = 0;
  for (const auto& [s, count] : *shapes_)
    all = hash64(all, s.batch, s.m, s.n, s.k, static_cast<std::uint64_t>(s.a), static_cast<std::uint64_t>(s.b), s.adds,
                 static_cast<std::uint64_t>(s.type));
  return join(", products ", std::hex, all);
}

void Tuner::use(const Tuned& tuned) {
  const auto say = [this](const char* what, auto chosen_before) {
    choices_.push_back({.setting = what, .chosen = join(chosen_before), .reason = "as was found before"});
  };
  if (products_) {
    set_products(kernels::ProductTable::from_text(tuned.products.value_or("")).value_or(kernels::ProductTable()));
    say(kProducts, products_->empty() ? "libtorch's" : "own kernels");
  }
  if (!ways_) return;
  if (has_convolutions()) {
    say("weights", tuned.channels_last ? "channels last" : "as they are");
    if (tuned.channels_last) set_channels_last(true);
  }
  if (allowed_ != Precision::FP32) {
    set_autocast(tuned.autocast);
    say("precision", to_string(state_.precision));
  }
  if (state_.device.is_cpu() && at::get_num_threads() > 1) {
    use_threads_here(tuned.threads);
    say("threads", tuned.threads);
  }
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
    parameter.mutable_grad().reset();  // of the other layout
  }
}

void Tuner::set_autocast(bool on) { state_.precision = on ? allowed_ : Precision::FP32; }

void Tuner::set_products(const kernels::ProductTable& table) {
  *products_ = table;
  kernels::ProductScope::table_has_changed();
}

// In each precision apart: the precision is chosen with the products that each would have. The last call counts.
std::optional<std::string> Tuner::choose_products() {
  if (!products_) return {};
  if (kept_products_) {
    set_products(kernels::ProductTable::from_text(*kept_products_).value_or(kernels::ProductTable()));
    return kept_products_;
  }
  std::erase_if(choices_, is_of_products);
  set_products({});
  const Shapes shapes = shapes_of_step();
  kernels::ProductTable table = choose_products(kProducts, shapes, at::kFloat, Precision::FP32);
  const kernels::ProductTable bf16 = choose_products(kBf16Products, shapes, at::kBFloat16, allowed_);
  for (const auto& [shape, count] : shapes)
    if (const auto own = bf16.find(shape)) table.set(shape, *own);
  set_products(table);
  return table.text();
}

// Those of one type, by steps in the precision that has them.
kernels::ProductTable Tuner::choose_products(const char* setting, const Shapes& of_step, at::ScalarType type,
                                             Precision precision) {
  Shapes shapes = of_step;
  std::erase_if(shapes, [type](const auto& shape) { return shape.first.type != type; });
  if (shapes.empty()) return {};
  set_products({});
  const Precision before = std::exchange(state_.precision, precision);
  kernels::ProductTable table = race_products(shapes, kRaceSteps * time_steps(1), [this] { go_on_unless_stopped(); });
  const std::size_t all = shapes.size();
  if (table.empty())
    choices_.push_back({.setting = setting,
                        .chosen = "libtorch's",
                        .reason = join("which are as fast as our own kernels for each of ", all, " shapes")});
  else if (!choose(setting, {"libtorch's", [this] { set_products({}); }},
                   {join("own kernels for ", table.own_shapes(), " of ", all, " shapes"),
                    [this, &table] { set_products(table); }}))
    table = {};
  state_.precision = before;
  return table;
}

// In fp32, and those in bf16 of the precision that is allowed.
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
  step_.forward();
  step_.loss();
  step_.backward();
}

double Tuner::time_steps(int steps) {
  const c10::impl::VirtualGuardImpl device(state_.device.type());
  const auto from = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) step();
  if (!state_.device.is_cpu()) device.synchronizeDevice(state_.device.index());
  return seconds_since(from) / steps;
}

bool Tuner::choose(const std::string& setting, const Way& now, const Way& other) {
  const auto timed = [this](const Way& way, int steps) {
    way.use();
    if (steps > 1) step();  // the first one after a change is slower
    return time_steps(steps);
  };
  const auto from = std::chrono::steady_clock::now();
  for (const Way* way : {&other, &now}) timed(*way, 1);  // the first step with new shapes prepares kernels
  const int steps =
      static_cast<int>(std::clamp(kTuneTrialSeconds / timed(now, 1), 1.0, static_cast<double>(kMostSteps)));
  const Trials trials = time_in_pairs(
      {kTuneLeastRounds, kTuneMostRounds, kTuneSeconds, from}, [&] { return timed(now, steps); },
      [&] { return timed(other, steps); });
  const bool change = other_is_faster(trials);
  const Way& chosen = change ? other : now;
  chosen.use();
  const std::string of_now = milliseconds(median(trials.now)), of_other = milliseconds(median(trials.other));
  choices_.push_back({.setting = setting,
                      .chosen = chosen.name,
                      .reason = join(change ? of_other : of_now, " a step (", (change ? now : other).name, ": ",
                                     change ? of_now : of_other, ')')});
  return change;
}

std::string to_string(const TuningChoice& choice) {
  return join(choice.setting, ": ", choice.chosen, ", ", choice.reason);
}

}  // namespace composer
