#include "composer/optim/combined.h"

#include <cstddef>
#include <typeinfo>
#include <utility>

#include "composer/core/error.h"
#include "composer/core/plugins.h"
#include "composer/optim/groups.h"

namespace composer::optim {
namespace {

using Parts = std::vector<OptimizerPart>;

void check_parts(const Parts& parts) {
  if (parts.empty()) throw ConfigError("combined: there are no parts; give {{\"head.*\", optim::adam({...})}, ...}");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].match.empty() == !parts[i].where)
      throw ConfigError("combined: parts[", i, "] must have exactly one of match and where");
    if (!parts[i].optimizer || parts[i].optimizer.made())
      throw ConfigError("combined: parts[", i, "] has ", parts[i].optimizer ? "an optimizer that exists" : "none",
                        "; give it the options of one, such as optim::adam({...})");
  }
}

[[noreturn]] void throw_in_no_part(const NamedParameters& rest) {
  throw ConfigError("combined: ", rest.front().name,
                    rest.size() > 1 ? join(" and ", rest.size() - 1, " more parameters are") : " is",
                    " in no part; add one, or {\"*\", ...} at the end for all that are left");
}

std::vector<std::shared_ptr<NamedOptimizer>> make_parts(const NamedParameters& parameters, const Parts& parts) {
  check_parts(parts);
  detail::check_parameters("combined", parameters);
  std::vector<ParameterGroup> groups;
  for (const OptimizerPart& part : parts) groups.push_back({.match = part.match, .where = part.where});
  std::vector<std::shared_ptr<NamedOptimizer>> made;
  for (detail::PlannedGroup& planned : detail::plan_groups("combined", parameters, groups, false, "parts")) {
    if (!planned.requested) throw_in_no_part(planned.parameters);
    const auto index = static_cast<std::size_t>(planned.requested - groups.data());
    const std::shared_ptr<Optimizer> any = parts[index].optimizer.make(std::move(planned.parameters));
    made.push_back(std::dynamic_pointer_cast<NamedOptimizer>(any));
    const Optimizer& given = *any;
    if (!made.back())
      throw ConfigError(planned.who, ": the optimizer must be one of composer/optim, and is ",
                        class_name(typeid(given)));
    if (made.back()->steps_in_backward() != made.front()->steps_in_backward())
      throw ConfigError(planned.who, ": step_in_backward must be the same in all parts");
  }
  return made;
}

}  // namespace

Combined::Combined(const NamedParameters& parameters, const std::vector<OptimizerPart>& parts)
    : NamedOptimizer("combined", make_parts(parameters, parts)) {}

AnyOptimizer combined(std::vector<OptimizerPart> parts) {
  check_parts(parts);
  return AnyOptimizer::Factory([parts = std::move(parts)](const NamedParameters& parameters) {
    return std::make_shared<Combined>(parameters, parts);
  });
}

}  // namespace composer::optim
