#pragma once
#include <map>
#include <string>
#include <vector>

#include "composer/core/entry.h"
#include "composer/core/error.h"

namespace composer::loggers {

namespace detail {

inline std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

}  // namespace detail

// An option that is a list of texts: by name, they are separated by commas.
template <class Options>
Option<Options> list_option(std::string name, std::vector<std::string> Options::*member) {
  return {{std::move(name), "text", ""},
          [member](Options& options, const std::string& text) { options.*member = detail::split_at_commas(text); }};
}

}  // namespace composer::loggers
