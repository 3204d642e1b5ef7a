// What every algorithm that can be made by name does with two ranks, none of them named here. Both ranks have the same
// weights, to the bit, also after they were killed and resumed, and those of one process where slices of a batch may be
// trained apart; sizes, learning rates and frozen layers agree; what depends on the seed in each batch differs by rank.
// What is otherwise, its page says after "With several ranks".
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include "composer/algorithms/registry.h"
#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/data/in_memory.h"
#include "composer/optim/optimizer.h"
#include "composer/trainer/trainer.h"
#include "composer/util/random.h"
#include "tests/battery/log_text.h"
#include "tests/battery/pages.h"
#include "tests/battery/tasks.h"
#include "tests/battery/two_ranks.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/on_cpu.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::ranks_test {
namespace {

using WorldPointer = std::shared_ptr<dist::World>;
using Weights = std::vector<at::Tensor>;

constexpr std::int64_t kBatches = 12, kUneven = 7;  // of 64 samples, so the last has one: rank 1 trains none of it

// A task with algorithms, in batches of this size.
struct Work {
  const Task& task;
  Names algorithms;
  std::int64_t batch_size = kUneven;

  // Initial weights come from the process's one generator.
  TrainerOptions options(const WorldPointer& world, bool shuffle = true) const {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    TrainerOptions options = options_of(task, algorithms);
    options.train_dataloader = data::in_memory(task.data(), {.batch_size = batch_size, .shuffle = shuffle});
    options.max_duration = Time(kBatches, TimeUnit::BATCH);
    options.world = world;
    return options;
  }
};

Weights copies(const std::vector<at::Tensor>& tensors) {
  Weights all;
  all.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) all.push_back(tensor.detach().clone());
  return all;
}

at::Tensor flat(const Weights& weights) {
  std::vector<at::Tensor> all;
  all.reserve(weights.size());
  for (const at::Tensor& weight : weights) all.push_back(weight.to(at::kDouble).flatten());
  return at::cat(all);
}

struct Seen {
  Weights first, weights;  // at the beginning, and the last
  StateDict end;
  LoggedByKey logged;
  std::vector<std::string> agreed;  // by batch: what no rank may decide for itself
  std::vector<at::Tensor> drawn;    // by microbatch: what random choices have an effect on
};

// Learning rates, trained parameters, and the shape of a sample.
std::string agreed_in(const State& state) {
  std::string text;
  for (const double rate : optim::learning_rates(*state.optimizer)) text += join(rate, ' ');
  for (const at::Tensor& parameter : state.model->parameters()) text += parameter.requires_grad() ? 'x' : '.';
  for (const auto& [name, tensor] : state.batch)
    for (std::int64_t i = 1; i < tensor.dim(); ++i) text += join(' ', tensor.size(i));
  return text;
}

Seen run(TrainerOptions options) {
  const Warnings warnings;
  Seen seen;
  const auto log = std::make_shared<LogText>();
  options.loggers.add(log);
  options.callbacks.add(At([&](Event event, const State& state) {
    if (event == Event::FIT_START) seen.first = copies(state.model->parameters());
    if (event == Event::BEFORE_TRAIN_BATCH) seen.agreed.push_back(agreed_in(state));
    if (event != Event::BEFORE_BACKWARD) return;
    for (const auto& [name, tensor] : state.batch) seen.drawn.push_back(tensor.clone());
    for (const auto& [name, loss] : state.loss) seen.drawn.push_back(loss.detach().clone());
  }));
  Trainer trainer(std::move(options));
  seen.end = end_of(trainer);
  seen.weights = copies(trainer.state().model->parameters());
  trainer.close();
  seen.logged = log->logged;
  return seen;
}

std::vector<Seen> run_in_two(const std::function<TrainerOptions(const WorldPointer&)>& options) {
  return in_two_ranks([&](const WorldPointer& world) { return run(options(world)); });
}

bool is_equal(const Weights& a, const Weights& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& one, const at::Tensor& other) { return one.equal(other); });
}

// Within rounding, relative to what training has changed.
bool is_close(const Seen& a, const Seen& b) {
  const at::Tensor changed = (flat(a.weights) - flat(a.first)).norm();
  return ((flat(a.weights) - flat(b.weights)).norm() / changed).item<double>() < 1e-3;
}

// Of a size that cannot be divided, unless the algorithm refuses small batches in one process as well.
Work work_of(const std::string& algorithm) {
  Work work{.task = *task_of({algorithm}), .algorithms = {algorithm}};
  try {
    run(work.options(dist::World::alone()));
  } catch (const std::exception& error) {
    CAPTURE(describe(error));
    CHECK(is_refusal(error));
    work.batch_size = kTaskBatchSize;
  }
  return work;
}

bool is_as_one_process(const Work& work) {
  const Seen alone = run(work.options(dist::World::alone()));
  return is_close(alone, run_in_two([&](const WorldPointer& world) { return work.options(world); })[0]);
}

// Whether two ranks train this model alone as one process does: it has no batch norms and draws nothing.
bool can_be_divided(const Task& task) {
  static std::map<std::string, bool> known;
  const auto [found, is_new] = known.try_emplace(task.name);
  if (is_new) found->second = task.precision == Precision::FP32 && is_as_one_process({.task = task, .algorithms = {}});
  return found->second;
}

// Two ranks that stop dead before this batch, and are resumed.
std::vector<Seen> killed_and_resumed(const Work& work, std::int64_t cut) {
  const Folder folder;
  const auto saving = [&](const WorldPointer& world) {
    TrainerOptions options = work.options(world);
    options.save_folder = folder / "ck";
    options.save_interval = Time(cut, TimeUnit::BATCH);
    return options;
  };
  in_two_ranks([&](const WorldPointer& world) {
    const Warnings warnings;
    Trainer trainer(saving(world));
    trainer.begin();
    while (trainer.state().timestamp.batch < cut && trainer.step()) {
    }
    return 0;  // without end(): nothing more is saved
  });
  return run_in_two(saving);
}

void check_killed_and_resumed(const Work& work, const std::vector<Seen>& whole) {
  const auto cut = static_cast<std::int64_t>(1 + RandomStream(key_of(work.algorithms)).below(kBatches - 1));
  CAPTURE(cut);
  std::vector<Seen> resumed;
  try {
    resumed = killed_and_resumed(work, cut);
  } catch (const std::exception& error) {
    CAPTURE(describe(error));
    FAIL_CHECK("two ranks that were killed cannot be resumed");
    return;
  }
  const Names different = differences(whole[0].end, resumed[0].end);
  CHECK((different.empty() ? "equal" : different.front()) == "equal");
  CHECK(is_equal(resumed[1].weights, whole[1].weights));
}

std::string first_of(const std::vector<std::string>& list) { return list.empty() ? "none" : list.front(); }

// What ranks have at the end that is not the same, but for random numbers and the statistics of batch norms.
std::string kept_apart(const Seen& a, const Seen& b) {
  for (const std::string& path : differences(a.end, b.end))
    if (!path.starts_with("/model") && !path.starts_with("/rng")) return path;
  return "none";
}

TEST_CASE("Every algorithm trains the same on two ranks, and what one process does, also killed and resumed" *
          on_cpu()) {
  for (const std::string& name : algorithms::registry().names()) {
    CAPTURE(name);
    const bool speaks = speaks_of_ranks(page_of("algorithms", name));
    REQUIRE(task_of({name}));
    const Work work = work_of(name);
    CAPTURE(std::string(work.task.name));
    std::vector<Seen> ranks;
    try {
      ranks = run_in_two([&](const WorldPointer& world) { return work.options(world); });
    } catch (const std::exception& error) {
      CAPTURE(describe(error));
      FAIL_CHECK("two ranks cannot train what one process can");
      continue;
    }
    CHECK(is_equal(ranks[0].first, ranks[1].first));
    CHECK(is_equal(ranks[0].weights, ranks[1].weights));
    CHECK(ranks[0].agreed == ranks[1].agreed);
    CHECK(ranks[0].agreed.size() >= kBatches);
    const std::string by_rank = first_of(keys_that_differ(ranks[0].logged, ranks[1].logged, /*to_the_bit=*/true));
    CAPTURE(by_rank);
    CHECK((by_rank == "none" || speaks));
    const std::string kept = kept_apart(ranks[0], ranks[1]);
    CAPTURE(kept);
    CHECK((kept == "none" || speaks));
    check_killed_and_resumed(work, ranks);
  }
}

TEST_CASE("Every algorithm that trains slices of a batch apart gives two ranks the weights of one process" * on_cpu()) {
  std::size_t compared = 0;
  for (const std::string& name : algorithms::registry().names()) {
    CAPTURE(name);
    const bool speaks = speaks_of_ranks(page_of("algorithms", name));
    for (const Task* task : tasks_of(name)) {
      if (!can_be_divided(*task)) continue;
      CAPTURE(std::string(task->name));
      ++compared;
      CHECK((is_as_one_process({.task = *task, .algorithms = {name}}) || speaks));
      break;
    }
  }
  CHECK(compared > 15);
}

// Each rank gets the same samples, all of them.
TrainerOptions options_with_equal_samples(const Work& work, const WorldPointer& world) {
  TrainerOptions options = work.options(world, /*shuffle=*/false);
  options.distributed.split_batches = false;
  options.max_duration = "4ba";
  options.eval_dataloader = {};
  return options;
}

// Of one process with another seed, from the weights of the run with the first.
bool depends_on_seed(const Work& work) {
  const auto options = [&] { return options_with_equal_samples(work, dist::World::alone()); };
  const Seen one = run(options());
  TrainerOptions other = options();
  other.seed = *other.seed + 1;
  other.algorithms.add(AtAlgorithm({Event::FIT_START}, [&](State& state) {
    const at::NoGradGuard no_grad;
    std::size_t i = 0;
    for (const at::Tensor& parameter : state.model->parameters()) parameter.detach().copy_(one.first[i++]);
  }));
  return !is_equal(one.drawn, run(std::move(other)).drawn);
}

TEST_CASE("What an algorithm draws in each batch differs by rank, and nothing else does" * on_cpu()) {
  std::size_t drawing = 0;
  for (const std::string& name : algorithms::registry().names()) {
    CAPTURE(name);
    REQUIRE(task_of({name}));
    const Work work{.task = *task_of({name}), .algorithms = {name}};
    CAPTURE(std::string(work.task.name));
    std::vector<Seen> ranks;
    try {
      ranks = run_in_two([&](const WorldPointer& world) { return options_with_equal_samples(work, world); });
    } catch (const std::exception& error) {
      CAPTURE(describe(error));
      FAIL_CHECK("two ranks cannot train what one process can");
      continue;
    }
    CHECK(ranks[0].agreed == ranks[1].agreed);
    const bool draws = depends_on_seed(work);
    drawing += draws ? 1 : 0;
    CHECK(is_equal(ranks[0].drawn, ranks[1].drawn) == !draws);
  }
  CHECK(drawing > 5);
}

TEST_CASE("The dropout of a model differs by rank" * on_cpu()) {
  for (const Task& task : tasks()) {
    CAPTURE(std::string(task.name));
    const Work work{.task = task, .algorithms = {}};
    const auto ranks = run_in_two([&](const WorldPointer& world) { return options_with_equal_samples(work, world); });
    CHECK(is_equal(ranks[0].weights, ranks[1].weights));
    CHECK(is_equal(ranks[0].drawn, ranks[1].drawn) == !depends_on_seed(work));
  }
}

}  // namespace
}  // namespace composer::test::ranks_test
