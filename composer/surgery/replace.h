#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/surgery/layer.h"

namespace composer {

// Returns the module for the place called `name` ("layer1.0.conv1"); a null Layer keeps the module that is there. The
// new module may wrap the old one, by place.lift(). The policy must not change the old module, because it is also
// called for modules that cannot be replaced, to report them.
using ReplacementPolicy = std::function<Layer(const std::string& name, const Layer& place)>;

// Applies a policy only to places that hold a module of this type: only<torch::nn::Conv2d>(policy).
template <class Holder>
ReplacementPolicy only(ReplacementPolicy policy) {
  return [policy = std::move(policy)](const std::string& name, const Layer& place) {
    return place->as<typename Holder::ContainedType>() ? policy(name, place) : Layer();
  };
}
// Applies a policy only to places whose whole name matches the pattern: * stands for any characters, ? for one.
COMPOSER_EXPORT ReplacementPolicy named(std::string pattern, ReplacementPolicy policy);

struct Replacement {
  std::string name;           // name of the place
  std::string before, after;  // the old and the new module, as torch prints them
  Layer place;
};

// The changes that a policy made to a model.
struct COMPOSER_EXPORT Replacements {
  std::vector<Replacement> made;
  // Modules that the policy would have replaced, but whose parents hold them in typed members.
  std::vector<std::string> out_of_reach;

  std::string table() const;  // one line for each replacement
  // Places whose new module has never been called: the model calls the old module through a pointer of its own.
  std::vector<std::string> never_called() const;
};

// Whether to skip a module and everything below it.
using LeavesAlone = std::function<bool(const torch::nn::Module& module)>;

// Calls the policy for every module below the model, outer modules before inner ones, and replaces the module by the
// result. A place is a Layer or an entry of a torch::nn::Sequential. For a module that several parents share, the
// policy is called once. New modules get the device and the floating-point type of the ones they replace, or of the
// model if those have no parameters. Modules that `leaves_alone` accepts are not visited: accept the types that the
// policy makes, so that applying it a second time changes nothing.
COMPOSER_EXPORT Replacements replace_modules(torch::nn::Module& model, const ReplacementPolicy& policy,
                                             const LeavesAlone& leaves_alone = {});

// Like the function above; skips modules of the types `Made`.
template <class... Made>
requires(sizeof...(Made) > 0) Replacements replace_modules(torch::nn::Module& model, const ReplacementPolicy& policy) {
  return replace_modules(model, policy, [](const torch::nn::Module& module) {
    return (... || (dynamic_cast<const Made*>(&module) != nullptr));
  });
}

}  // namespace composer
