#include "composer/callbacks/direction.h"

#include <algorithm>
#include <cctype>

#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"

namespace composer::callbacks {

Better direction(std::optional<Better> given, const State& state, const std::string& monitor) {
  if (given) return *given;
  if (state.model) {
    for (const bool is_train : {false, true})
      for (const auto& metric : metrics_of(*state.model, is_train))
        if (metric->name() == monitor) return metric->better();
  }
  std::string lower = monitor;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* word : {"loss", "error", "perplexity", "entropy"})
    if (lower.find(word) != std::string::npos) return Better::LOWER;
  return Better::HIGHER;
}

void check_monitor(const char* who, const std::string& label, const std::string& monitor, const FitOutline& fit,
                   const State& state) {
  if (!fit.check_metric(who, label, monitor, state))
    warn(join(who, ": nothing in this fit is evaluated as \"", label,
              "\", so it judges only what eval() is given under that label; there are: ", fit.labels()));
}

}  // namespace composer::callbacks
