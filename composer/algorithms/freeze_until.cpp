#include "composer/algorithms/freeze_until.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/util/wildcard.h"

namespace composer::algorithms {

// Parameters that one FreezeUntil of a trainer has frozen, and no other may thaw.
struct FreezeUntil::Claim {
  const State* trainer;
  std::vector<at::Tensor> parameters;

  static void note(const std::shared_ptr<const Claim>& claim) {
    const std::lock_guard lock(mutex());
    std::erase_if(all(), [](const auto& one) { return one.expired(); });
    all().push_back(claim);
  }
  static bool has(const State& trainer, const at::Tensor& parameter) {
    const std::lock_guard lock(mutex());
    return std::ranges::any_of(all(), [&](const auto& one) {
      const auto claim = one.lock();
      const auto is_it = [&](const at::Tensor& other) { return other.is_same(parameter); };
      return claim && claim->trainer == &trainer && std::ranges::any_of(claim->parameters, is_it);
    });
  }

 private:
  static std::vector<std::weak_ptr<const Claim>>& all() {
    static std::vector<std::weak_ptr<const Claim>> claims;
    return claims;
  }
  static std::mutex& mutex() {
    static std::mutex guards_claims;
    return guards_claims;
  }
};

namespace {

std::vector<Option<FreezeUntilOptions>> freeze_until_options() {
  using O = FreezeUntilOptions;
  return all_options(option("parameters", &O::parameters).example("*.bias"), option("except", &O::except),
                     option("until", &O::until)
                         .above(0)
                         .in({TimeUnit::EPOCH, TimeUnit::BATCH, TimeUnit::SAMPLE, TimeUnit::TOKEN, TimeUnit::DURATION}),
                     option("keep_statistics", &O::keep_statistics));
}

// The patterns of an option, and what they fitted.
class Patterns {
 public:
  Patterns(const char* option, const std::vector<std::string>& patterns)
      : option_(option), patterns_(patterns), fitted_(patterns.size()) {}
  bool fit(const std::string& name) {
    return each(name, [](Fitted& one) { one.any = true; });
  }
  // Of a name that is to be frozen: whether another algorithm has done so.
  void note(const std::string& name, bool is_taken) {
    each(name, [=](Fitted& one) { (is_taken ? one.taken : one.own) = true; });
  }
  void check(const std::string& example) const {
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (!fitted_[i].any)
        throw ConfigError("FreezeUntil: ", option_, ": \"", patterns_[i],
                          "\" fits no parameter of the model; its first one is \"", example, "\"");
      if (fitted_[i].taken && !fitted_[i].own)
        throw ConfigError("FreezeUntil: ", option_, ": all that \"", patterns_[i],
                          "\" fits is frozen by another FreezeUntil, which stands before it and thaws it; name it in "
                          "one of them, or put the one that freezes fewer parameters first");
    }
  }

 private:
  struct Fitted {
    bool any = false, taken = false, own = false;
  };
  template <class F>
  bool each(const std::string& name, const F& act) {
    bool any = false;
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (!fits_wildcard(patterns_[i], name)) continue;
      act(fitted_[i]);
      any = true;
    }
    return any;
  }
  const char* option_;
  const std::vector<std::string>& patterns_;
  std::vector<Fitted> fitted_;
};

}  // namespace

FreezeUntil::FreezeUntil(FreezeUntilOptions options)
    : options_(checked("FreezeUntil", options, freeze_until_options())) {
  if (options_.parameters == std::vector<std::string>{"*"} && options_.except.empty())
    throw ConfigError(
        "FreezeUntil: would freeze all parameters; name some in .parameters, or those to train in .except");
}

StateDict FreezeUntil::local_hparams() const { return describe(options_, freeze_until_options()); }

void FreezeUntil::find_in(State& state) {
  const torch::nn::Module& model = as_module(*state.model);
  claim_.reset();
  batch_norms_.clear();
  std::vector<at::Tensor> parameters;
  Patterns frozen("parameters", options_.parameters), trained("except", options_.except);
  const auto fit = [&](const std::string& name) {
    const bool is_trained = trained.fit(name);  // asked first, so that both patterns know what they fit
    return frozen.fit(name) && !is_trained;
  };
  const NamedTensorList all = named_parameters(model);
  for (const auto& [name, parameter] : all) {
    if (!fit(name)) continue;
    frozen.note(name, Claim::has(state, parameter));
    if (parameter.requires_grad()) parameters.push_back(parameter);
  }
  if (!all.empty()) frozen.check(all.front().first), trained.check(all.front().first);
  claim_ = std::make_shared<const Claim>(Claim{&state, std::move(parameters)});
  Claim::note(claim_);
  if (!options_.keep_statistics) return;
  for (const auto& [name, module] : named_modules_below(model))
    for (const auto& [buffer, tensor] : named_buffers(*module, /*recurse=*/false))
      // One that is in evaluation mode while the model is not was frozen by the program.
      if (buffer == "running_mean" && fit(join(name, '.', buffer)) && (is_training(*module) || !is_training(model)))
        batch_norms_.push_back(module);
}

void FreezeUntil::freeze(bool frozen) {
  if (!claim_) return;  // there was no INIT
  for (const at::Tensor& parameter : claim_->parameters) {
    parameter.set_requires_grad(!frozen);
    if (frozen) parameter.mutable_grad().reset();  // clipping would count it
  }
  for (const ModulePointer& module : batch_norms_) set_training(*module, !frozen);
  frozen_ = frozen;
}

// What has been frozen since the thaw, by whom ever, is among the settings of the model, which a run that resumes
// restores after FIT_START: there is nothing to thaw in it.
void FreezeUntil::visit_state(StateVisitor& visit) {
  std::optional<bool> frozen = frozen_;
  visit("frozen", frozen);
  if (visit.is_loading() && visit.is_of_this_run()) frozen_ = frozen.value_or(frozen_);
}

bool FreezeUntil::match(Event event, const State&) const { return event != Event::BATCH_START || frozen_; }

void FreezeUntil::apply(Event event, State& state, Logger&) {
  if (event == Event::INIT) {
    find_in(state);
    return freeze(true);
  }
  const auto reached = [&](Time until) {
    return until.unit() == TimeUnit::DURATION ? state.elapsed_duration() >= until.as_double()
                                              : state.timestamp.reached(until);
  };
  const bool over = options_.until && reached(*options_.until);
  if (over ? frozen_ : event == Event::FIT_START) freeze(!over);
}

namespace entries {

Entry<Algorithms> freeze_until() {
  return entry<FreezeUntil>("freeze_until", "Trains a part of the network only after a time: fine-tuning",
                            freeze_until_options());
}

}  // namespace entries
}  // namespace composer::algorithms
