#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/surgery/layer.h"

namespace composer {

// Decides what stands in the place called `name` ("layer1.0.conv1") from now on: a null Layer leaves what is there. It
// may wrap what the place holds, as place.lift(), but must not change it: it is asked about modules that cannot be
// replaced as well, to report them.
using ReplacementPolicy = std::function<Layer(const std::string& name, const Layer& place)>;

// The policy, for places that hold a module of this kind only: only<torch::nn::Conv2d>(policy).
template <class Holder>
ReplacementPolicy only(ReplacementPolicy policy) {
  return [policy = std::move(policy)](const std::string& name, const Layer& place) {
    return place->as<typename Holder::ContainedType>() ? policy(name, place) : Layer();
  };
}
// The policy, for places whose whole name fits the pattern: * stands for any characters, ? for one.
COMPOSER_EXPORT ReplacementPolicy named(std::string pattern, ReplacementPolicy policy);

struct Replacement {
  std::string name;           // of the place
  std::string before, after;  // what stood there and what stands there now, as torch prints it
  Layer place;
};

// What a policy has done to a model.
struct COMPOSER_EXPORT Replacements {
  std::vector<Replacement> made;
  // Modules that the policy would have replaced, but which their parents hold in typed members.
  std::vector<std::string> out_of_reach;

  std::string table() const;  // one line for each replacement
  // Places whose new module was never called since: the model calls what it had registered there through a pointer of
  // its own.
  std::vector<std::string> never_called() const;
};

// Whether a module, and what is below it, is to be left alone.
using LeavesAlone = std::function<bool(const torch::nn::Module& module)>;

// Asks the policy about every module below the model, outer before inner, and puts what it returns into the module's
// place. A place is a Layer or an entry of a torch::nn::Sequential; one that several parents share is asked about once.
// New modules get the device and the floating-point type of those before them, or of the model if those have none. What
// `leaves_alone` accepts is not visited: name the types that the policy makes, so that applying it twice changes
// nothing more.
COMPOSER_EXPORT Replacements replace_modules(torch::nn::Module& model, const ReplacementPolicy& policy,
                                             const LeavesAlone& leaves_alone = {});

// As above; leaves modules of the types `Made` alone.
template <class... Made>
requires(sizeof...(Made) > 0) Replacements replace_modules(torch::nn::Module& model, const ReplacementPolicy& policy) {
  return replace_modules(model, policy, [](const torch::nn::Module& module) {
    return (... || (dynamic_cast<const Made*>(&module) != nullptr));
  });
}

}  // namespace composer
