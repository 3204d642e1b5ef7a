#include "composer/callbacks/direction.h"

#include <algorithm>
#include <cctype>

#include "composer/core/model.h"
#include "composer/core/state.h"

namespace composer::callbacks {

Better direction(std::optional<Better> given, const State& state, const std::string& monitor) {
  if (given) return *given;
  if (state.model) {
    for (const bool is_train : {false, true})
      for (const auto& metric : state.model->get_metrics(is_train))
        if (metric->name() == monitor) return metric->better();
  }
  std::string lower = monitor;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* word : {"loss", "error", "perplexity", "entropy"})
    if (lower.find(word) != std::string::npos) return Better::LOWER;
  return Better::HIGHER;
}

}  // namespace composer::callbacks
