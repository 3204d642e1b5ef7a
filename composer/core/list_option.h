#pragma once
#include <map>
#include <string>
#include <vector>

#include "composer/core/entry.h"
#include "composer/core/error.h"

namespace composer {

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
          [member](Options& options, const std::string& text) { options.*member = detail::split_at_commas(text); },
          [member](const Options& options) -> StateValue {
            std::string text;
            for (const std::string& part : options.*member) text += (text.empty() ? "" : ",") + part;
            return text;
          }};
}

// An option of texts by key: by name, it is written as a=b,c=d.
template <class Options>
Option<Options> map_option(std::string name, std::map<std::string, std::string> Options::*member) {
  return {{std::move(name), "text", ""},
          [member](Options& options, const std::string& text) {
            std::map<std::string, std::string>& map = options.*member;
            map.clear();
            for (const std::string& entry : detail::split_at_commas(text)) {
              const std::size_t equal = entry.find('=');
              if (equal == std::string::npos || equal == 0)
                throw ConfigError("expected key=value, separated by commas, got \"", text, '"');
              map[entry.substr(0, equal)] = entry.substr(equal + 1);
            }
          },
          [member](const Options& options) -> StateValue {
            std::string text;
            for (const auto& [key, value] : options.*member) text += join(text.empty() ? "" : ",", key, '=', value);
            return text;
          }};
}

}  // namespace composer
