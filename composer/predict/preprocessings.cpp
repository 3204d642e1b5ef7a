#include "composer/predict/preprocessings.h"

#include "composer/data/image/image_preprocessing.h"
#include "composer/data/table/table_features.h"
#include "composer/data/text/tokenizer.h"

namespace composer::predict {
namespace {

struct KnownPreprocessing {
  const char* name;
  std::shared_ptr<data::Preprocessing> (*make)();
};

template <class P>
std::shared_ptr<data::Preprocessing> make() {
  return std::make_shared<P>();
}

// One line for each class of the library.
const std::vector<KnownPreprocessing>& known_preprocessings() {
  static const std::vector<KnownPreprocessing> all = {
      {"image", make<data::ImagePreprocessing>},
      {"table", make<data::TableFeatures>},
      {"tokens", make<data::Tokens>},
  };
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
