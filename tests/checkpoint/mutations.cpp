#include "tests/checkpoint/mutations.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/checkpoint/saver.h"
#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"
#include "tests/formats/bytes.h"
#include "tests/formats/tensors.h"

namespace composer::test {
namespace {

std::string write(Format format, const formats::NamedTensors& tensors) {
  return format == Format::PT ? pt_bytes(tensors) : safetensors_bytes(tensors, {{"key", "value"}});
}

formats::NamedTensors read(Format format, const std::string& bytes) {
  return format == Format::PT ? open_pt(bytes).read_all() : open_safetensors(bytes).read_all();
}

}  // namespace

std::string damaged(const std::string& bytes, const std::string& other, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const auto piece = [&] { return std::min<std::size_t>(bytes.size(), 1 + below(below(8) == 0 ? bytes.size() : 32)); };
  std::string result = bytes;
  while (result == bytes) {
    const std::size_t at = below(bytes.size()), size = std::min(piece(), bytes.size() - at);
    switch (below(10)) {
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
      case 8:
        result = bytes.substr(0, at) + other.substr(std::min(at, other.size()));
        break;
      default:
        result = below(2) == 0 ? bytes.substr(0, at) + other.substr(below(other.size()))
                               : other.substr(0, below(other.size())) + bytes.substr(at);
    }
    if (result.empty()) result = bytes;
  }
  return result;
}

namespace {

// A file that is damaged, and another of its kind. `unchanged` reads it: whether what it says is what it said before.
struct Target {
  std::string bytes, other;
  std::function<bool(const std::string&)> unchanged;
  bool other_is_whole = true;  // taken for the file itself, and nobody could tell
};

void attack(const Target& target, std::mt19937_64& random, Verdicts& verdicts) {
  std::string file = damaged(target.bytes, target.other, random);
  while (target.other_is_whole && file == target.other) file = damaged(target.bytes, target.other, random);
  std::string wrong;
  try {
    if (target.unchanged(file)) {
      ++verdicts.unchanged;
    } else {
      ++verdicts.silent;
      wrong = "read with another content";
    }
  } catch (const CheckpointError&) {
    ++verdicts.refused;
  } catch (const std::exception& error) {
    ++verdicts.other;
    wrong = error.what();
  }
  if (!wrong.empty() && verdicts.first.empty())
    verdicts.first =
        join("number ", verdicts.refused + verdicts.unchanged + verdicts.silent + verdicts.other, ": ", wrong);
}

Target tensors_target(Format format) {
  const formats::NamedTensors tensors = in_order(some_tensors());
  formats::NamedTensors others = tensors;
  for (auto& [name, tensor] : others) tensor = tensor.clone().zero_();
  return {write(format, tensors), write(format, others),
          [=](const std::string& file) { return same(in_order(read(format, file)), tensors); }};
}

Target manifest_target(const TwoCheckpoints& two) {
  const std::string bytes = two.text(0, saving::Manifest::kFileName);
  return {bytes, two.text(1, saving::Manifest::kFileName),
          [=](const std::string& file) { return saving::Manifest::parse(file, "here").to_json() == bytes; }};
}

std::vector<Target> checkpoint_targets(const TwoCheckpoints& two) {
  std::vector<Target> targets;
  for (const char* name : TwoCheckpoints::kNames)
    targets.push_back({two.text(0, name), two.text(1, name),
                       [&two, name](const std::string& file) { return two.unchanged_with(name, file); },
                       /*other_is_whole=*/false});
  return targets;
}

}  // namespace

TwoCheckpoints::TwoCheckpoints() {
  saving::Saver saver({.folder = folder_.path(), .asynchronous = false, .run_id = "run"});
  for (const int number : {0, 1}) {
    StateDict model, optimizer, state;
    model["weight"] = at::full({2, 3}, number + 0.5);
    model["mask"] = at::full({3}, number == 0, at::kBool);
    optimizer["exp_avg"] = at::full({6}, number + 0.25);
    optimizer["step"] = std::int64_t{number};
    state["model"] = model;
    state["optimizer"] = optimizer;
    state["best"] = number == 0 ? HUGE_VAL : 1.0;
    saving::Manifest manifest;
    manifest.name = std::to_string(number);
    manifest.time.batch = number;
    manifest.metrics["eval/accuracy"] = 0.5;
    saver.plan(manifest);
    saver.save(std::move(manifest), state);
  }
  content_ = content();
}

std::string TwoCheckpoints::content() const {
  const saving::Found found = saving::open_checkpoint(path(0));
  std::string bytes = found.manifest.to_json();
  std::string state;
  saving::write_state(saving::load(found), "", placed_sink_to(state));
  return bytes + state;
}

std::string TwoCheckpoints::text(int number, const std::string& name) const { return text_of(path(number) / name); }

bool TwoCheckpoints::unchanged_with(const std::string& name, const std::string& bytes) const {
  const std::string before = text(0, name);
  const auto put = [&](const std::string& content) {
    std::ofstream(path(0) / name, std::ios::binary | std::ios::trunc) << content;
  };
  put(bytes);
  try {
    const bool same = content() == content_;
    put(before);
    return same;
  } catch (...) {
    put(before);
    throw;
  }
}

Verdicts attack(Format format, std::size_t times, std::uint64_t seed) {
  const TwoCheckpoints two;
  std::vector<Target> targets;
  if (format == Format::CHECKPOINT)
    targets = checkpoint_targets(two);
  else
    targets = {format == Format::MANIFEST ? manifest_target(two) : tensors_target(format)};
  std::mt19937_64 random(seed);
  Verdicts verdicts;
  for (std::size_t i = 0; i < times; ++i) attack(targets[i % targets.size()], random, verdicts);
  return verdicts;
}

}  // namespace composer::test
