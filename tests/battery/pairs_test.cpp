// Every algorithm that can be made by name, alone and with every other: 20 batches of a model that both change, and
// once more, killed after a random batch and resumed, which must end equal to the bit. The usual tests try some of the
// pairs; COMPOSER_PAIRS=1000 scripts/test "pair of algorithms" tries all, and lists those that are refused.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "composer/algorithms/registry.h"
#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/trainer/trainer.h"
#include "composer/util/random.h"
#include "tests/battery/tasks.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::pairs_test {
namespace {

std::string text(const Names& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " + ") + name;
  return all;
}

// Checks what the head of this file says. Returns why the first batch refuses them together; empty: it does not.
std::string check_together(const Task& task, const Names& names) {
  CAPTURE(text(names));
  CAPTURE(std::string(task.name));
  const auto cut = static_cast<std::int64_t>(1 + RandomStream(key_of(names)).below(kTaskBatches - 1));
  CAPTURE(cut);
  const Warnings warnings;
  StateDict whole, resumed;
  std::int64_t trained = 0;
  try {
    TrainerOptions options = options_of(task, names);
    options.callbacks.add(At([&](Event event, const State&) { trained += event == Event::BATCH_END ? 1 : 0; }));
    Trainer trainer(std::move(options));
    whole = end_of(trainer);
  } catch (const std::exception& error) {
    CAPTURE(describe(error));
    CHECK(is_refusal(error));
    CHECK(trained == 0);
    return describe(error);
  }
  CHECK(trained == kTaskBatches);

  struct Cut : std::exception {};
  const Folder folder;
  const auto saving = [&] {
    TrainerOptions options = options_of(task, names);
    options.save_folder = folder / "ck";
    options.save_interval = Time(cut, TimeUnit::BATCH);
    return options;
  };
  try {
    {
      TrainerOptions options = saving();
      options.callbacks.add(At([=](Event event, const State& state) {
        if (event == Event::BATCH_START && state.timestamp.batch == cut) throw Cut();
      }));
      Trainer killed(std::move(options));
      CHECK_THROWS(killed.fit());
    }
    Trainer next(saving());
    CHECK(next.state().timestamp.batch == cut);
    resumed = end_of(next);
  } catch (const std::exception& error) {
    CAPTURE(describe(error));
    FAIL_CHECK("the run that is cut off or resumed fails, and the other does not");
    return {};
  }
  const Names different = differences(whole, resumed);
  CAPTURE(different.size());
  CHECK((different.empty() ? "equal" : different.front()) == "equal");
  return {};
}

TEST_CASE("Every algorithm changes some model, and is equal to the bit when it is killed and resumed") {
  for (const std::string& name : algorithms::registry().names()) {
    CAPTURE(name);
    const Task* task = task_of({name});
    REQUIRE(task);
    CHECK(check_together(*task, {name}).empty());
  }
}

TEST_CASE("A pair of algorithms that is not refused at once is equal to the bit when it is killed and resumed") {
  const char* given = std::getenv("COMPOSER_PAIRS");
  const auto names = algorithms::registry().names();
  std::vector<Names> pairs;
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      pairs.push_back(key_of({names[i], names[j]}) % 2 == 0 ? Names{names[i], names[j]} : Names{names[j], names[i]});
  std::ranges::sort(pairs, {}, key_of);  // the same unrelated ones each time
  if (const std::size_t wanted = given ? std::stoul(given) : 12; wanted < pairs.size()) pairs.resize(wanted);

  std::size_t without_task = 0, refused = 0;
  for (const Names& pair : pairs) {
    const Task* task = task_of(pair);
    if (!task) {
      ++without_task;
      if (given) MESSAGE("no model here has use for both: " << text(pair));
      continue;
    }
    const std::string why = check_together(*task, pair);
    if (why.empty()) continue;
    ++refused;
    if (given) MESSAGE("refused: " << text(pair) << ": " << why);
  }
  if (given)
    MESSAGE(pairs.size() << " pairs: " << without_task << " without a model for both, " << refused << " refused");
}

}  // namespace
}  // namespace composer::test::pairs_test
