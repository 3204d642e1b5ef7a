#pragma once
// What each operator of libtorch is in ONNX, by kinds of operators. Internal.
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "composer/predict/onnx_call.h"

namespace composer::onnx {

using Sizes = std::vector<std::int64_t>;

// By the names of libtorch's operators.
using Translations = std::unordered_map<std::string_view, Translate>;
using ListTranslations = std::unordered_map<std::string_view, TranslateToList>;
const Translations& layer_operators();    // layers with weights, attention, pooling and reductions
const Translations& element_operators();  // activations, arithmetic, comparisons and types
const Translations& shape_operators();    // shapes, parts of tensors, and tensors that are joined
const ListTranslations& list_operators();

// What several kinds need.
std::string transposed(Call& call, const std::string& value, std::int64_t rank, std::int64_t a, std::int64_t b);
// Sizes of 0 are those of the input at their place.
std::string reshaped(Call& call, const std::string& value, const Sizes& sizes);
std::string plus(Call& call, std::string a, std::string b);
std::string times(Call& call, std::string a, std::string b);

}  // namespace composer::onnx
