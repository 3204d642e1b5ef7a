#pragma once
#include <utility>
#include <vector>

#include "composer/core/entry.h"

namespace composer::metrics {

// All options of a metric: `own`, and the options that every metric has.
template <class O, class... T>
std::vector<Option<O>> with_names(Field<O, T>... own) {
  return all_options(std::move(own)..., option("name", &O::name), option("output", &O::output),
                     option("target", &O::target));
}

// Sets the name to `name` in options without a name.
template <class O>
O named(const char* name, O options) {
  if (options.name.empty()) options.name = name;
  return options;
}

}  // namespace composer::metrics
