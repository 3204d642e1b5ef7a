#pragma once
// What training by hand gives: the weights after a list of batches, in plain doubles.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "composer/core/tensors.h"
#include "composer/data/loader.h"
#include "tests/property/program.h"

namespace composer::property {

constexpr int kIds = 64;       // of samples: those of the loader are below kGivenIds
constexpr int kGivenIds = 32;  // those of batches that are given begin here, and come round
constexpr double kLr = 0.25;
constexpr double kSwapped = 1000;  // what an algorithm that evaluates with other weights multiplies them by
constexpr std::uint64_t kSeed = 7;

using Ids = std::vector<int>;

std::string to_string(const Ids& ids);
int mask_of(const Setup& setup, int id);  // 0: the sample has no part in the loss
Batch make_batch(const Setup& setup, const Ids& ids);
Ids ids_of(const Batch& batch);
std::shared_ptr<Loader> make_loader(const Setup& setup);

// The batches of a loader, by epoch.
class Places {
 public:
  explicit Places(const Setup& setup);
  int per_epoch() const { return per_epoch_; }
  const Ids& at(std::int64_t index);  // counted from the beginning of training

 private:
  std::shared_ptr<Loader> loader_;
  int per_epoch_ = 0;
  std::map<std::int64_t, std::vector<Ids>> epochs_;
};

struct Trained {
  Ids ids;
  bool given = false;
};
using History = std::vector<Trained>;

// Each sample adds to a weight of its own, so the weights tell how often each was trained on; `order` depends on the
// order of the batches, and `noise` on the random numbers.
struct Weights {
  std::array<double, kIds> count{};
  double order = 0, noise = 0;

  double output(int id) const { return count.at(static_cast<std::size_t>(id)) + order; }
  double mean_output(const Ids& ids, double factor) const;
};
Weights train(const Setup& setup, const History& history);
// Where they differ; empty: nowhere.
std::string difference(const Weights& are, const Weights& should);

}  // namespace composer::property
