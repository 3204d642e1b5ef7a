#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/data/map_style.h"

namespace composer::data {

struct PadCollateOptions {
  std::int64_t pad = 0;                            // the token that fills up `names`
  std::vector<std::string> names = {"input_ids"};  // tensors [tokens] of different lengths; the same in one sample
  std::int64_t max_length = 0;                     // tokens that follow are cut off; 0: none
  std::int64_t multiple_of = 1;                    // the length of a batch is a multiple of it, such as 8
  std::string target = "target";        // a tensor [tokens] of this name is filled up with -100, which losses leave out
  std::string mask = "attention_mask";  // name of the mask, 1 for tokens and 0 for padding; empty: no mask
};

// Returns a function for MapStyleOptions::collate, which fills up samples of different lengths at their end to [N, T],
// where T is the length of the longest one of the batch. Tensors of other names are stacked.
COMPOSER_EXPORT std::function<Batch(std::vector<Sample>)> pad_collate(PadCollateOptions options = {});

}  // namespace composer::data
