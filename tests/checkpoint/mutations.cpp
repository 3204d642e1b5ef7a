#include "tests/checkpoint/mutations.h"

#include <algorithm>
#include <exception>

#include "composer/core/error.h"
#include "tests/checkpoint/bytes.h"
#include "tests/checkpoint/tensors.h"

namespace composer::test {
namespace {

std::string write(Format format, const formats::NamedTensors& tensors) {
  return format == Format::PT ? pt_bytes(tensors) : safetensors_bytes(tensors, {{"key", "value"}});
}

formats::NamedTensors read(Format format, const std::string& bytes) {
  return format == Format::PT ? open_pt(bytes).read_all() : open_safetensors(bytes).read_all();
}

formats::NamedTensors in_order(formats::NamedTensors tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return tensors;
}

}  // namespace

std::string damaged(const std::string& bytes, const std::string& other, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const auto piece = [&] { return std::min<std::size_t>(bytes.size(), 1 + below(below(8) == 0 ? bytes.size() : 32)); };
  std::string result = bytes;
  while (result == bytes) {
    const std::size_t at = below(bytes.size()), size = std::min(piece(), bytes.size() - at);
    switch (below(9)) {
      case 0:
      case 1:
        for (std::size_t i = 1 + below(3); i > 0; --i) {
          char& byte = result[below(result.size())];
          byte = static_cast<char>(byte ^ 1 << below(8));
        }
        break;
      case 2:
        result[at] = static_cast<char>(random());
        break;
      case 3:
        result.resize(at);
        break;
      case 4:
        for (std::size_t i = piece(); i > 0; --i) result += static_cast<char>(random());
        break;
      case 5:
        result.erase(at, size);
        break;
      case 6:
        result.insert(below(bytes.size()), bytes.substr(at, size));
        break;
      case 7:
        result.replace(at, size, size, static_cast<char>(below(2) == 0 ? 0 : random()));
        break;
      default:
        result = bytes.substr(0, at) + other.substr(std::min(at, other.size()));
    }
    if (result.empty()) result = bytes;
  }
  return result;
}

Verdicts attack(Format format, std::size_t times, std::uint64_t seed) {
  const formats::NamedTensors tensors = in_order(some_tensors());
  formats::NamedTensors others = tensors;
  for (auto& [name, tensor] : others) tensor = tensor.clone().zero_();
  const std::string bytes = write(format, tensors), other = write(format, others);
  std::mt19937_64 random(seed);
  Verdicts verdicts;
  for (std::size_t i = 0; i < times; ++i) {
    std::string file = other;  // which is whole
    while (file == other) file = damaged(bytes, other, random);
    std::string wrong;
    try {
      if (same(in_order(read(format, file)), tensors)) {
        ++verdicts.unchanged;
      } else {
        ++verdicts.silent;
        wrong = "read with other tensors";
      }
    } catch (const CheckpointError&) {
      ++verdicts.refused;
    } catch (const std::exception& error) {
      ++verdicts.other;
      wrong = error.what();
    }
    if (!wrong.empty() && verdicts.first.empty()) verdicts.first = join("number ", i, ": ", wrong);
  }
  return verdicts;
}

}  // namespace composer::test
