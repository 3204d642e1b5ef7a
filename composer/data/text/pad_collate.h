#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/data/map_style.h"

namespace composer::data {

struct PadCollateOptions {
  std::int64_t pad = 0;                            // the token that fills up
  std::vector<std::string> names = {"input_ids"};  // tensors [tokens] that are filled up, equally long in a sample
  std::int64_t max_length = 0;                     // tokens beyond it are cut off; 0: no limit
  std::int64_t multiple_of = 1;                    // the length of a batch is a multiple of it
  std::string target = "target";                   // labels [tokens] are filled up with -100, which losses ignore
  std::string mask = "attention_mask";  // name of the mask, int64 [N, T], 1 for tokens and 0 for padding; empty: none
};

// Returns a function for MapStyleOptions::collate, which fills up samples of different lengths at their end to [N, T],
// where T is the length of the longest one of the batch. Tensors of other names are stacked.
COMPOSER_EXPORT std::function<Batch(std::vector<Sample>)> pad_collate(PadCollateOptions options = {});

}  // namespace composer::data
