#include "composer/data/loader.h"

namespace composer {

Loader::~Loader() = default;
std::optional<std::int64_t> Loader::num_batches() const { return std::nullopt; }
std::optional<std::int64_t> Loader::batch_size() const { return std::nullopt; }

}  // namespace composer
