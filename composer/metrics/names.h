#pragma once
#include <vector>

#include "composer/core/entry.h"

namespace composer::metrics {

// `own` and the options that every metric has.
template <class O>
std::vector<Option<O>> with_names(std::vector<Option<O>> own) {
  own.push_back(option("name", &O::name));
  own.push_back(option("output", &O::output));
  own.push_back(option("target", &O::target));
  return own;
}

// The options, called `name` unless they have a name.
template <class O>
O named(const char* name, O options) {
  if (options.name.empty()) options.name = name;
  return options;
}

}  // namespace composer::metrics
