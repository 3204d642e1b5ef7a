#include "composer/data/loader.h"

namespace composer {

Loader::~Loader() = default;
void Loader::set_default_seed(std::uint64_t) {}
std::optional<std::int64_t> Loader::num_batches() const { return std::nullopt; }
std::vector<std::int64_t> Loader::sample_indices(std::int64_t, std::int64_t) const { return {}; }
std::optional<std::int64_t> Loader::batch_size() const { return std::nullopt; }

}  // namespace composer
