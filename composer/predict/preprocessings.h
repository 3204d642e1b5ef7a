#pragma once
#include <memory>
#include <string>
#include <vector>

#include "composer/data/preprocessing.h"

namespace composer::predict {

// Makes an empty object of the library's class of this name(), whose state is then loaded. Null: there is none.
std::shared_ptr<data::Preprocessing> make_preprocessing(const std::string& name);
std::vector<std::string> preprocessing_names();

}  // namespace composer::predict
