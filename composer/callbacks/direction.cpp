#include "composer/callbacks/direction.h"

#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/run.h"
#include "composer/core/state.h"

namespace composer::callbacks {

void check_monitor(const char* who, const std::string& label, const std::string& monitor, std::optional<Better> better,
                   const FitOutline& fit, const State& state) {
  fit.check_better(who, better, label, monitor);
  if (!fit.check_metric(who, label, monitor, state))
    warn(join(who, ": nothing in this fit is evaluated as \"", label,
              "\", so it judges only what eval() is given under that label; there are: ", fit.labels()));
}

bool is_judged(const State& state) { return !state.run || !(state.run->interrupted() || state.run->pauses()); }

bool is_judged(const State& state, const std::string& label, const std::string& monitor) {
  const bool is_known = state.metrics.find(label, monitor) != nullptr;  // otherwise the callback itself reports that
  return is_judged(state) && (!is_known || state.metrics.is_current(label, monitor));
}

}  // namespace composer::callbacks
