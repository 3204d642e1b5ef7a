#include "composer/algorithms/freeze_until.h"

#include <algorithm>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/util/wildcard.h"

namespace composer::algorithms {
namespace {

std::vector<Option<FreezeUntilOptions>> freeze_until_options() {
  using O = FreezeUntilOptions;
  return all_options(option("parameters", &O::parameters).example("*.bias"), option("except", &O::except),
                     option("until", &O::until)
                         .example("2ba")
                         .above(0)
                         .in({TimeUnit::EPOCH, TimeUnit::BATCH, TimeUnit::SAMPLE, TimeUnit::TOKEN, TimeUnit::DURATION}),
                     option("keep_statistics", &O::keep_statistics));
}

// The patterns of an option, and which of them fitted something.
class Patterns {
 public:
  Patterns(const char* option, const std::vector<std::string>& patterns)
      : option_(option), patterns_(patterns), used_(patterns.size()) {}
  bool fit(const std::string& name) {
    bool any = false;
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (!fits_wildcard(patterns_[i], name)) continue;
      used_[i] = any = true;
    }
    return any;
  }
  void check(const std::string& example) const {
    const auto unused = std::ranges::find(used_, false);
    if (unused != used_.end())
      throw ConfigError("FreezeUntil: ", option_, ": \"", patterns_[static_cast<std::size_t>(unused - used_.begin())],
                        "\" fits no parameter of the model; its first one is \"", example, "\"");
  }

 private:
  const char* option_;
  const std::vector<std::string>& patterns_;
  std::vector<bool> used_;
};

// Calls f(module, name of its running mean) for each module below that has running statistics.
template <class F>
void for_each_batch_norm(const torch::nn::Module& module, const std::string& prefix, const F& f) {
  for (const auto& [name, child] : named_children(module)) {
    for (const auto& [buffer, tensor] : named_buffers(*child, /*recurse=*/false))
      if (buffer == "running_mean") f(child, join(prefix, name, '.', buffer));
    for_each_batch_norm(*child, join(prefix, name, '.'), f);
  }
}

}  // namespace

FreezeUntil::FreezeUntil(FreezeUntilOptions options)
    : options_(checked("FreezeUntil", options, freeze_until_options())) {}

StateDict FreezeUntil::local_hparams() const { return describe(options_, freeze_until_options()); }

void FreezeUntil::find_in(torch::nn::Module& model) {
  parameters_.clear();
  batch_norms_.clear();
  Patterns frozen("parameters", options_.parameters), trained("except", options_.except);
  const auto fit = [&](const std::string& name) {
    const bool is_trained = trained.fit(name);  // asked first, so that both patterns know what they fit
    return frozen.fit(name) && !is_trained;
  };
  const NamedTensorList all = named_parameters(model);
  for (const auto& [name, parameter] : all)
    if (fit(name) && parameter.requires_grad()) parameters_.push_back(parameter);
  if (!all.empty()) frozen.check(all.front().first), trained.check(all.front().first);
  if (!options_.keep_statistics) return;
  for_each_batch_norm(model, "", [&](const ModulePointer& module, const std::string& name) {
    if (fit(name)) batch_norms_.push_back(module);
  });
}

void FreezeUntil::freeze(bool frozen) {
  for (const at::Tensor& parameter : parameters_) {
    parameter.set_requires_grad(!frozen);
    if (frozen) parameter.mutable_grad().reset();  // clipping would count it
  }
  for (const ModulePointer& module : batch_norms_) set_training(*module, !frozen);
  frozen_ = frozen;
}

bool FreezeUntil::match(Event event, const State&) const { return event != Event::BATCH_START || frozen_; }

void FreezeUntil::apply(Event event, State& state, Logger&) {
  if (event == Event::INIT) {
    find_in(as_module(*state.model));
    return freeze(true);
  }
  const auto reached = [&](Time until) {
    return until.unit() == TimeUnit::DURATION ? state.elapsed_duration() >= until.as_double()
                                              : state.timestamp.reached(until);
  };
  const bool over = options_.until && reached(*options_.until);
  if (event == Event::FIT_START || over) freeze(!over);
}

namespace entries {

Entry<Algorithms> freeze_until() {
  return entry<FreezeUntil>("freeze_until", "Trains a part of the network only after a time: fine-tuning",
                            freeze_until_options());
}

}  // namespace entries
}  // namespace composer::algorithms
