// What every callback and logger that can be made by name does with two ranks, none of them named here: both train the
// same weights, and log the same; or its page says, after "With several ranks", what is different.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/callbacks/registry.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/loggers/registry.h"
#include "composer/trainer/trainer.h"
#include "tests/battery/log_text.h"
#include "tests/battery/pages.h"
#include "tests/battery/two_ranks.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/on_cpu.h"
#include "tests/support/quiet.h"
#include "tests/support/sandbox.h"
#include "tests/support/system_calls.h"
#include "tests/support/tiny_images.h"
#include "tests/support/warnings.h"

namespace composer::test::ranks_plugins_test {
namespace {

using WorldPointer = std::shared_ptr<dist::World>;

// The last batches of the epoch and of the evaluation have one sample, so rank 1 has none of it.
std::shared_ptr<Loader> loader(std::int64_t samples) {
  Batch batch = tiny_images(samples, 2);
  batch.set("input_ids", at::arange(samples * 8, at::kLong).remainder(11).view({samples, 8}));
  return data::in_memory(std::move(batch), {.batch_size = 4, .shuffle = false});
}

// The options that must be given, and those with which something happens in ten batches.
template <class List>
Settings settings_of(const Entry<List>& entry) {
  Settings settings;
  for (const OptionInfo& option : entry.options) {
    if (option.example) settings[option.name] = *option.example;
    for (const char* name : {"interval", "save_interval", "log_interval"})
      if (option.name == name) settings[name] = "1ba";
    for (const char* name : {"skip_first", "wait", "warmup", "skip_batches", "flush_interval"})
      if (option.name == name && option.type != "true or false") settings[name] = "0";
    for (const char* name : {"active", "window_size", "batch_log_interval"})
      if (option.name == name) settings[name] = "1";
    if (option.name == "folder" && option.default_text.empty()) settings["folder"] = "files";
  }
  return settings;
}

struct Seen {
  at::Tensor weights = {};
  LoggedByKey logged = {};
  std::int64_t begun_at = 0;  // batch
  bool misses_plugins = false;
};

struct How {
  std::string save_folder = {};  // empty: none
  std::int64_t cut = -1;         // stops dead before this batch; -1: does not
  Interval save_interval = "1ba";
};

TrainerOptions options_of(const Callbacks& list) {
  TrainerOptions options;
  options.callbacks = list;
  return options;
}
TrainerOptions options_of(const Loggers& list) {
  TrainerOptions options;
  options.loggers = list;
  return options;
}

template <class List>
Seen run(const List& list, const WorldPointer& world, const How& how = {}) {
  const Warnings warnings;
  const auto log = std::make_shared<LogText>();
  TrainerOptions options = tiny_image_options(), with = options_of(list);
  options.callbacks = with.callbacks;
  options.loggers = with.loggers;
  options.loggers.add(log);
  options.train_dataloader = loader(17);
  options.eval_dataloader = loader(5);
  options.run_name = "two";
  options.world = world;
  if (!how.save_folder.empty()) {
    options.save_folder = how.save_folder;
    options.save_interval = how.save_interval;
  }
  Trainer trainer(std::move(options));
  Seen seen{.begun_at = trainer.state().timestamp.batch};
  if (how.cut < 0) {
    trainer.fit();
  } else {
    trainer.begin();
    while (trainer.state().timestamp.batch < how.cut && trainer.step()) {
    }
    return seen;  // without end(): nothing more is saved
  }
  seen.weights = weights_of(trainer).clone();
  trainer.close();
  seen.logged = log->logged;
  seen.misses_plugins = warnings.say("this trainer has no such plug-in");
  return seen;
}

// What is in the working directory, but for files that a rank other than 0 has for itself.
struct Written {
  std::size_t files = 0, of_rank_1 = 0, put_in_place = 0;  // the last: new files, as often as there was one
  std::vector<std::int64_t> lines;                         // of the files of text, sorted
};

bool is_of_rank_1(const std::string& path) {
  return path.find("rank1") != std::string::npos || path.find("rank-1") != std::string::npos;
}

std::int64_t lines_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return content.find('\0') == std::string::npos ? std::ranges::count(content, '\n') : -1;
}

Written written(const SystemCalls& calls) {
  Written all;
  const std::string here = std::filesystem::current_path();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(here)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().lexically_relative(here);
    if (is_of_rank_1(name)) {
      ++all.of_rank_1;
      continue;
    }
    ++all.files;
    if (name.starts_with("two/traces/")) continue;  // of ranks, they have also what these tell each other
    if (const std::int64_t lines = lines_of(entry.path()); lines >= 0) all.lines.push_back(lines);
  }
  std::ranges::sort(all.lines);
  for (const std::string& call : calls.made())
    if (call.starts_with("rename ") && !is_of_rank_1(call)) ++all.put_in_place;
  return all;
}

// The text of two ranks that says the same as one process.
std::string with_two(std::string text) {
  if (const std::size_t at = text.find("1xcpu"); at != std::string::npos) text[at] = '2';
  if (const std::size_t at = text.find("-rank1."); at != std::string::npos)
    text[at + 5] = '0';  // a folder has no order
  return text;
}

// Each run has a folder of its own.
std::string without_sandbox(std::string text) {
  constexpr std::string_view kName = "composer-sandbox-";
  for (std::size_t at = text.find(kName); at != std::string::npos; at = text.find(kName))
    text.erase(at, text.find('/', at) - at);
  return text;
}

// The keys that are not the same everywhere, of which the plug-in's page must speak. The trainer's own are those that
// count processes, and the samples that one trains at once.
std::string differences(const Seen& alone, const std::vector<Seen>& ranks) {
  const std::string by_rank = listed(keys_that_differ(ranks[0].logged, ranks[1].logged, /*to_the_bit=*/true));
  std::vector<std::string> keys = keys_that_differ(alone.logged, ranks[0].logged, /*to_the_bit=*/false);
  std::erase(keys, "num_cpus_per_node");
  std::erase(keys, "trainer/device_train_microbatch_size");
  const std::string from_one = listed(keys);
  return (by_rank.empty() ? "" : "by rank: " + by_rank) + (from_one.empty() ? "" : " from one process: " + from_one);
}

struct Resumed {
  std::string error = {};  // empty: none
  std::vector<Seen> ranks = {};
};

// `run` on all ranks, once until it stops dead before this batch, and once more.
template <class Run>
Resumed resumed(const Run& run, std::int64_t cut, const Interval& save_interval) {
  const Quiet quiet;
  const Sandbox sandbox;
  const Folder folder;
  const How saving{.save_folder = folder / "ck", .save_interval = save_interval};
  How killed = saving;
  killed.cut = cut;
  try {
    run(killed);
    return {.ranks = run(saving)};
  } catch (const std::exception& error) {
    return {.error = describe(error)};
  }
}

// A run of one process, one of two ranks, and two of two ranks that stop dead.
template <class List>
void check_in_two_ranks(const std::string& room, const Entry<List>& entry) {
  use_threads_here(1);  // as ranks do
  const Settings settings = settings_of(entry);
  const auto make = [&] { return entry.make(settings); };
  const bool speaks = speaks_of_ranks(page_of(room, entry.name));
  Seen alone;
  std::vector<Seen> ranks;
  Written by_one, by_two;
  {
    const Quiet quiet;  // as is what a failed check says
    const Sandbox sandbox;
    const SystemCalls calls;
    alone = run(make(), dist::World::alone());
    by_one = written(calls);
  }
  {
    const Quiet quiet;
    const Sandbox sandbox;
    const SystemCalls calls;
    ranks = in_two_ranks([&](const WorldPointer& world) { return run(make(), world); });
    by_two = written(calls);
  }
  CHECK(at::equal(ranks[0].weights, ranks[1].weights));
  CHECK(at::allclose(ranks[0].weights, alone.weights, 1e-4, 1e-5));
  const std::string different = differences(alone, ranks);
  CAPTURE(different);
  CHECK((different.empty() || speaks));
  CHECK(by_two.files == by_one.files);
  CHECK(by_two.lines == by_one.lines);
  CHECK(by_two.put_in_place == by_one.put_in_place);
  CHECK((by_two.of_rank_1 == 0 || speaks));

  const auto run_one = [&](const How& how) { return std::vector<Seen>{run(make(), dist::World::alone(), how)}; };
  const auto run_two = [&](const How& how) {
    return in_two_ranks([&](const WorldPointer& world) { return run(make(), world, how); });
  };
  const Resumed from_checkpoint = resumed(run_two, 6, "1ba");
  CHECK(from_checkpoint.error == "");
  for (const Seen& rank : from_checkpoint.ranks) {
    CHECK(rank.begun_at == 6);
    CHECK_FALSE(rank.misses_plugins);
    CHECK(at::equal(rank.weights, ranks[0].weights));
  }
  // There is no checkpoint yet, and some refuse to write over what one process has left, too.
  const Resumed from_scratch = resumed(run_two, 2, "100ba");
  const auto same = [](const Resumed& run) { return without_sandbox(with_two(run.error)); };
  if (!from_scratch.error.empty()) CHECK(same(from_scratch) == same(resumed(run_one, 2, "100ba")));
  for (const Seen& rank : from_scratch.ranks) CHECK(rank.begun_at == 0);
}

TEST_CASE("Without callbacks, two ranks log the same, and what one process logs" * on_cpu()) {
  use_threads_here(1);
  const Seen alone = run(Callbacks(), dist::World::alone());
  const auto ranks = in_two_ranks([](const WorldPointer& world) { return run(Callbacks(), world); });
  CHECK(differences(alone, ranks) == "");
  CHECK(ranks[0].logged.size() > 5);
}

TEST_CASE("Every callback works with two ranks, as its page says" * on_cpu()) {
  for (const std::string& name : callbacks::registry().names()) {
    CAPTURE(name);
    check_in_two_ranks("callbacks", callbacks::registry().find(name));
  }
}

TEST_CASE("Every logger works with two ranks, as its page says, and writes nothing twice" * on_cpu()) {
  for (const std::string& name : loggers::registry().names()) {
    CAPTURE(name);
    check_in_two_ranks("loggers", loggers::registry().find(name));
  }
}

// Stands for a plug-in that forgets that there are ranks.
class Forgetful final : public Callback {
 public:
  explicit Forgetful(std::function<void(const State&, Logger&)> act) : act_(std::move(act)) {}
  void batch_end(const State& state, Logger& logger) override { act_(state, logger); }

 private:
  std::function<void(const State&, Logger&)> act_;
};

TEST_CASE("A callback that logs a number of its rank's own, or writes a file on each, is found out" * on_cpu()) {
  const auto make = [] {
    return Callbacks(Forgetful([](const State& state, Logger& logger) {
      logger.log_metrics({{"its rank", static_cast<std::int64_t>(state.rank)}});
      std::ofstream("log.txt", std::ios::app) << "one line\n";
      std::ofstream("new.txt.tmp" + std::to_string(state.rank)) << "whole";
      std::filesystem::rename("new.txt.tmp" + std::to_string(state.rank), "new.txt");
    }));
  };
  Written by_one, by_two;
  Seen alone;
  std::vector<Seen> ranks;
  {
    const Sandbox sandbox;
    const SystemCalls calls;
    alone = run(make(), dist::World::alone());
    by_one = written(calls);
  }
  {
    const Quiet quiet;
    const Sandbox sandbox;
    const SystemCalls calls;
    ranks = in_two_ranks([&](const WorldPointer& world) { return run(make(), world); });
    by_two = written(calls);
  }
  CHECK(differences(alone, ranks).find("by rank: its rank") == 0);
  CHECK(by_one.files == by_two.files);
  CHECK(by_one.lines != by_two.lines);
  CHECK(by_one.put_in_place < by_two.put_in_place);
}

}  // namespace
}  // namespace composer::test::ranks_plugins_test
