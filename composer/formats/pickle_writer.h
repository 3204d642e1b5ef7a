#pragma once
#include <string>
#include <utility>
#include <vector>

#include "composer/formats/pickle_reader.h"

namespace composer::formats {

// Returns the pickle of an OrderedDict of tensors, in the form that torch.save writes and torch.load(weights_only=True)
// reads. Tensors and their storages must have the same dtype. Throws ConfigError for a name that is not UTF-8.
std::string make_pickle(const std::vector<std::pair<std::string, PickleTensor>>& tensors,
                        const std::vector<PickleStorage>& storages);

}  // namespace composer::formats
