#include "composer/trainer/required_algorithms.h"

#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/trainer/hyperparameters.h"

namespace composer {
namespace {

constexpr const char* kKey = "required_algorithms";

// The second plug-in of a class is "Name-2", as in checkpoints.
std::string numbered(const std::string& name, std::map<std::string, int>& seen) {
  const int number = ++seen[name];
  return number == 1 ? name : join(name, '-', number);
}

StateDict hyperparameters_of(const StateDict& saved) {
  const StateValue* found = saved.find("hyperparameters");
  const auto* dict = found ? std::get_if<StateDict>(found) : nullptr;
  return dict ? *dict : StateDict();
}

// Formats options as " (replace_convs = true, min_channels = 16)".
std::string options_of(const std::string& name, const StateDict& hyperparameters) {
  std::string text;
  for (const auto& [key, value] : hyperparameters.entries())
    if (key.starts_with(name + '/'))
      text += join(text.empty() ? " (" : ", ", key.substr(name.size() + 1), " = ", text_of(value));
  return text.empty() ? text : text + ')';
}

}  // namespace

void visit_required_algorithms(StateVisitor& visit, const Engine& engine) {
  if (visit.is_loading()) return;
  std::vector<std::string> required;
  for (const auto& plugin : engine.algorithms())
    if (plugin.object->required_on_load()) required.push_back(plugin.name);
  visit(kKey, required);
}

RequiredAlgorithms compare_required_algorithms(const StateDict& saved, const Engine& engine) {
  RequiredAlgorithms result;
  if (!saved.find(kKey)) return result;
  std::vector<std::string> required;
  StateVisitor::loading(saved, "")(kKey, required);
  std::map<std::string, int> seen;
  std::map<std::string, const Algorithm*> here;
  for (const auto& plugin : engine.algorithms()) here[numbered(plugin.name, seen)] = plugin.object.get();
  const StateDict before = hyperparameters_of(saved);
  seen.clear();
  for (const std::string& one : required) {
    const std::string name = numbered(one, seen);
    const auto found = here.find(name);
    if (found == here.end()) {
      result.missing += (result.missing.empty() ? "" : " and ") + one + options_of(name, before);
      continue;
    }
    StateDict now;
    const StateDict options = found->second->local_hparams();
    for (const auto& [option, value] : options.entries()) now[join(name, '/', option)] = value;
    const StateDict differing = changed(before, now);
    for (const auto& [option, value] : differing.entries())
      if (const StateValue* old = before.find(option))
        result.differing +=
            join(result.differing.empty() ? "" : ", ", option, ": ", text_of(*old), " -> ", text_of(value));
  }
  return result;
}

}  // namespace composer
