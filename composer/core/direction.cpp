#include "composer/core/direction.h"

#include <algorithm>
#include <array>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/util/letters.h"

namespace composer {
namespace {

bool is_named_like_a_loss(std::string_view name) {
  const std::string lower = util::lower(name);
  constexpr std::array<std::string_view, 4> kWords = {"loss", "error", "perplexity", "entropy"};
  return std::ranges::any_of(kWords, [&](std::string_view word) { return lower.find(word) != std::string::npos; });
}

}  // namespace

Better direction(std::string_view who, std::optional<Better> given, const State& state, std::string_view label,
                 std::string_view name) {
  if (given) return *given;
  if (const std::optional<Better> declared = state.metrics.better(label, name)) return *declared;
  if (state.model) {
    for (const bool is_train : {false, true})
      for (const auto& metric : metrics_of(*state.model, is_train))
        if (metric->name() == name) return metric->better();
  }
  const bool lower = is_named_like_a_loss(name);
  if (state.rank == 0)
    warn(join(who, ": nobody declares whether more or less of the metric \"", label, '/', name, "\" is better, so ",
              lower ? "LOWER" : "HIGHER",
              " is taken because of its name; set better, or say it in state.metrics.set()"));
  return lower ? Better::LOWER : Better::HIGHER;
}

}  // namespace composer
