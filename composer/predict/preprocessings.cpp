#include "composer/predict/preprocessings.h"

namespace composer::predict {
namespace {

struct KnownPreprocessing {
  const char* name;
  std::shared_ptr<data::Preprocessing> (*make)();
};

// One line for each class of the library: {"table", [] { return std::make_shared<data::TableFeatures>(); }}
const std::vector<KnownPreprocessing>& known_preprocessings() {
  static const std::vector<KnownPreprocessing> all = {};
  return all;
}

}  // namespace

std::shared_ptr<data::Preprocessing> make_preprocessing(const std::string& name) {
  for (const auto& [known, make] : known_preprocessings())
    if (name == known) return make();
  return nullptr;
}

std::vector<std::string> preprocessing_names() {
  std::vector<std::string> names;
  for (const auto& known : known_preprocessings()) names.emplace_back(known.name);
  return names;
}

}  // namespace composer::predict
