#pragma once
#include <cstdint>
#include <memory>

#include <c10/core/Device.h>

#include "composer/data/in_memory.h"
#include "composer/data/sampler.h"

namespace composer::data::detail {

// What all loaders with InMemoryOptions have in common. Throws ConfigError for options that are invalid, or that data
// on this device cannot have.
InMemoryOptions checked_loader(InMemoryOptions options, at::Device device);
std::shared_ptr<Sampler> sampler_of(std::int64_t samples, const InMemoryOptions& options);

}  // namespace composer::data::detail
