#pragma once
// Makes plug-ins by name, with options as text, for example from a command line. core/entry.h shows how to describe
// one.
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "composer/core/export.h"

namespace composer {

// Options by name, as text.
using Settings = std::map<std::string, std::string, std::less<>>;

struct OptionInfo {
  std::string name;
  std::string type;               // "number", "whole number", "text", "true or false", "time", "higher or lower"
  std::string default_text = {};  // parsing it gives the default; meaningless if there is an example
  std::optional<std::string> example = {};  // set only for a required option
  std::vector<std::string> refused = {};    // texts for which making the plug-in throws ConfigError; tests try them
};

template <class List>
struct Entry {
  std::string name;     // "early_stopper"
  std::string summary;  // one sentence without the full stop
  std::vector<OptionInfo> options;

  // Makes the plug-in and adds it to the list. Throws ConfigError for an unknown option (the message lists the known
  // ones), for a text that is not a value of its type, and for what the constructor rejects.
  std::function<void(List& list, const Settings& settings)> add_to;

  List make(const Settings& settings) const {
    List list;
    add_to(list, settings);
    return list;
  }
};

namespace detail {

[[noreturn]] COMPOSER_EXPORT void throw_unknown(std::string_view what, std::string_view given,
                                                const std::vector<std::string>& known);
COMPOSER_EXPORT void check_unique(std::string_view who, std::vector<std::string> names);

// Throws ConfigError if a name is empty, or occurs twice.
template <class List>
void check_names(std::string_view who, const List& list) {
  std::vector<std::string> names;
  names.reserve(list.size());
  for (const auto& one : list) names.push_back(one.name);
  check_unique(who, std::move(names));
}

}  // namespace detail

// The plug-ins of one module, in the order of their names.
template <class List>
class Registry {
 public:
  // Throws ConfigError if two entries have the same name, or one has none.
  Registry(std::initializer_list<Entry<List>> entries) {
    detail::check_names("registry", entries);
    for (const auto& entry : entries) entries_.emplace(entry.name, entry);
  }
  // Throws ConfigError for an unknown name; the message lists the known ones.
  const Entry<List>& find(std::string_view name) const;
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    names.reserve(entries_.size());
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string, Entry<List>, std::less<>> entries_;
};

template <class List>
const Entry<List>& Registry<List>::find(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) detail::throw_unknown("there is no", name, names());
  return found->second;
}

}  // namespace composer
