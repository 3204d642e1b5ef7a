#pragma once
#include <algorithm>
#include <string>

#include <ATen/ATen.h>

#include "composer/formats/named_tensors.h"

namespace composer::test {

// Equal to the bit: shape, dtype and content.
inline bool same(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& t) { return t.resolve_conj().contiguous().view(-1).view(at::kByte); };
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && (a.numel() == 0 || bytes(a).equal(bytes(b)));
}

inline bool same(const formats::NamedTensors& a, const formats::NamedTensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && same(x.second, y.second); });
}

// One of each kind that a model or an optimizer may have, always the same.
inline formats::NamedTensors some_tensors() {
  formats::NamedTensors tensors;
  const at::Tensor base = at::arange(-5, 7).view({3, 4}) * 0.75;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                                    at::kChar, at::kByte, at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e4m3fn,
                                    at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu})
    tensors.emplace_back(std::string("of.") + c10::toString(type), base.abs().to(type));
  tensors.emplace_back("complex", at::complex(base, -base));
  tensors.emplace_back("bool", base > 0);
  tensors.emplace_back("empty", at::empty({0, 5}));
  tensors.emplace_back("scalar", at::scalar_tensor(7, at::kLong));
  tensors.emplace_back("transposed", base.t());
  tensors.emplace_back("expanded", base.select(0, 0).expand({2, 4}));
  tensors.emplace_back("of \"quotes\"\n\\ and \xC3\xA4 \xF0\x9F\x99\x82", at::ones({3}, at::kBFloat16));
  return tensors;
}

// By name.
inline formats::NamedTensors in_order(formats::NamedTensors tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return tensors;
}

}  // namespace composer::test
