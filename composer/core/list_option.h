#pragma once
#include <map>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/option.h"

namespace composer {

// An option that is a list of texts: by name, they are separated by commas.
template <class Options>
auto list_option(std::string name, std::vector<std::string> Options::*member) {
  return option(std::move(name), member);
}

// An option of texts by key: by name, it is written as a=b,c=d.
template <class Options>
Field<Options, std::map<std::string, std::string>> map_option(std::string name,
                                                              std::map<std::string, std::string> Options::*member) {
  return {{{std::move(name), "text", ""},
           [member](Options& options, const std::string& text) {
             std::map<std::string, std::string>& map = options.*member;
             map.clear();
             std::vector<std::string> entries;
             detail::read_text(text, entries);
             for (const std::string& entry : entries) {
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
           }},
          member};
}

}  // namespace composer
