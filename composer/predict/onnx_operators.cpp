#include "composer/predict/onnx_operators.h"

#include <utility>

namespace composer::onnx {

std::string transposed(Call& call, const std::string& value, std::int64_t rank, std::int64_t a, std::int64_t b) {
  Sizes order;
  for (std::int64_t i = 0; i < rank; ++i) order.push_back(i);
  std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
  return call.add("Transpose", {value}, {{"perm", order}});
}

std::string reshaped(Call& call, const std::string& value, const Sizes& sizes) {
  return call.add("Reshape", {value, call.constant(sizes)});
}

std::string plus(Call& call, std::string a, std::string b) { return call.add("Add", {std::move(a), std::move(b)}); }
std::string times(Call& call, std::string a, std::string b) { return call.add("Mul", {std::move(a), std::move(b)}); }

const Translate* find_translation(std::string_view name) {
  for (const Translations* const all : {&layer_operators(), &element_operators(), &shape_operators()})
    if (const auto found = all->find(name); found != all->end()) return &found->second;
  return nullptr;
}

TranslateToList find_list_translation(std::string_view name) {
  const auto found = list_operators().find(name);
  return found == list_operators().end() ? nullptr : found->second;
}

}  // namespace composer::onnx
