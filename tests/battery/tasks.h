#pragma once
// Small models and data that every algorithm has use for one of, and what runs with them are compared by.
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "composer/core/model.h"
#include "composer/core/registry.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/trainer/trainer.h"

namespace composer::test {

using Names = std::vector<std::string>;

inline constexpr std::int64_t kTaskBatches = 20, kTaskBatchSize = 8;

struct Task {
  const char* name;
  std::shared_ptr<Model> (*model)();
  Batch (*data)();  // all samples
  Precision precision = Precision::FP32;
};
std::span<const Task> tasks();

// Of an algorithm: also those whose defaults do nothing to so small a model, or in so few batches.
Settings task_settings(const std::string& name);
// The same initial weights each time, from libtorch's default generator.
TrainerOptions options_of(const Task& task, const Names& algorithms);

// Trains, and returns what a resumed run must have in common with one that was not killed.
StateDict end_of(Trainer& trainer);
Names differences(const StateDict& a, const StateDict& b);  // paths of what is not equal to the bit

// Whether the error says that what was asked for cannot be done.
bool is_refusal(const std::exception& error);

// The tasks whose model and batches the algorithm changes, and the first that all of them change (null: there is none).
const std::vector<const Task*>& tasks_of(const std::string& algorithm);
const Task* task_of(const Names& algorithms);

std::uint64_t key_of(const Names& names);  // a number for choices that are the same each time

}  // namespace composer::test
