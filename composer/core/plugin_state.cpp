#include "composer/core/plugin_state.h"

#include <algorithm>
#include <map>

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/load_check.h"

namespace composer {
namespace {

// Visits the state of one plug-in; errors name the plug-in.
template <class Base>
void visit_one(Base& plugin, StateVisitor& visit) {
  try {
    plugin.visit_state(visit);
  } catch (const CheckpointError&) {
    throw;  // the visitor has already named it
  } catch (...) {
    throw_nested<ConfigError>(visit.path(), " failed in visit_state()");
  }
}

template <class Base>
StateDict state_of(Base& plugin, const std::string& path) {
  StateDict all;
  StateVisitor outer = StateVisitor::saving(all);
  StateVisitor visit = outer.scope(path);
  visit_one(plugin, visit);
  return std::get<StateDict>(std::move(all[path]));
}

template <class Base>
void check_names(const char* group, const std::vector<Plugin<Base>>& plugins) {
  for (const auto& plugin : plugins)
    if (!plugin.interfaces.logger) state_of(*plugin.object, join(group, '/', plugin.name));
}

// "Name-2" is the second of a class.
std::string numbered(const std::string& name, std::map<std::string, int>& seen) {
  const int number = ++seen[name];
  return number == 1 ? name : join(name, '-', number);
}

const StateDict* dict_of(const StateDict& saved, const std::string& name) {
  const StateValue* found = saved.find(name);
  return found ? std::get_if<StateDict>(found) : nullptr;
}

template <class Base>
void check_all(const StateDict* group, const std::vector<Plugin<Base>>& plugins) {
  if (!group) return;
  std::map<std::string, int> seen;
  for (const auto& plugin : plugins) {
    const StateDict* state = dict_of(*group, numbered(plugin.name, seen));
    if (state && plugin.interfaces.load_check) plugin.interfaces.load_check->check_load(*state);
  }
}

template <class Base>
void visit_all(StateVisitor& group, const std::vector<Plugin<Base>>& plugins, bool warns) {
  std::map<std::string, int> seen;
  std::vector<std::string> unused = group.is_loading() ? group.names() : std::vector<std::string>();
  for (const auto& plugin : plugins) {
    const std::string name = numbered(plugin.name, seen);
    const auto state = [&] { return state_of(*plugin.object, join(group.path(), '/', name)); };
    if (!group.is_loading()) {
      if (StateDict saved = state(); !saved.empty()) group(name, saved);
    } else if (group.has(name)) {
      StateVisitor inner = group.scope(name);
      visit_one(*plugin.object, inner);
      std::erase(unused, name);
    } else if (warns && !state().empty()) {
      warn(join("checkpoint: no state of ", group.path(), '/', name, "; it starts with its initial state"));
    }
  }
  if (!warns) return;
  for (const std::string& name : unused)
    warn(join("checkpoint: the state of ", group.path(), '/', name, " is not used: this trainer has no such plug-in"));
}

}  // namespace

LoadCheck::~LoadCheck() = default;

void check_plugins(const StateDict& saved, const Engine& engine) {
  check_all(dict_of(saved, "algorithms"), engine.algorithms());
  check_all(dict_of(saved, "callbacks"), engine.callbacks());
}

void check_field_names(const Engine& engine) {
  check_names("algorithms", engine.algorithms());
  check_names("callbacks", engine.callbacks());
}

void visit_plugins(StateVisitor& visit, const Engine& engine, bool warns) {
  const auto group = [&](const char* name, const auto& plugins) {
    if (visit.is_loading() && !visit.has(name)) return;
    StateVisitor inner = visit.scope(name);
    visit_all(inner, plugins, warns);
  };
  group("algorithms", engine.algorithms());
  group("callbacks", engine.callbacks());
}

}  // namespace composer
