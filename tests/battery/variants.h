#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "composer/core/entry.h"
#include "composer/core/plugins.h"

namespace composer::test {

// The examples, and every value of every option that has only a few, one at a time. Ranges that begin at once.
inline std::vector<Settings> variants(const Entry<Algorithms>& entry) {
  Settings plain;
  for (const OptionInfo& option : entry.options) {
    if (option.example) plain[option.name] = *option.example;
    if (option.name == "start" || option.name == "delay_fraction") plain[option.name] = "0";
    if (option.name == "max_seq_length") plain[option.name] = "8";
    if (option.name == "min_seq_length") plain[option.name] = "2";
    if (option.name == "step_size") plain[option.name] = "2";
  }
  std::vector<Settings> all = {plain};
  for (const OptionInfo& option : entry.options) {
    const std::string separator = " or ";
    if (option.type.find(separator) == std::string::npos) continue;
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + separator.size()) {
      end = option.type.find(separator, begin);
      // Without truncation every tensor would have to be one of tokens.
      all.push_back(option.name == "truncate" ? Settings() : plain);
      all.back()[option.name] = option.type.substr(begin, end - begin);
    }
  }
  return all;
}

}  // namespace composer::test
