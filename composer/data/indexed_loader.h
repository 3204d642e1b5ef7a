#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "composer/data/map_style.h"
#include "composer/data/read_ahead.h"
#include "composer/data/sampler.h"

namespace composer::data::detail {

struct IndexedSource {
  const char* who = "";  // for errors
  SampleSource samples = {};
  // Called before the samples of a batch are read, to have them ready. `span`: their places in the epoch's order.
  std::function<void(std::uint64_t seed, std::int64_t epoch, Sampler::Span span, std::span<const std::int64_t> indices,
                     const StillWanted& wanted)>
      before = {};
};

// A loader as that of map_style, whose options have been checked, with this sampler.
std::shared_ptr<Loader> indexed_loader(IndexedSource source, MapStyleOptions options, std::shared_ptr<Sampler> sampler);

}  // namespace composer::data::detail
