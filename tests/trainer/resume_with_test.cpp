// Trainers of one program that are saved at the same batches resume at the same batch, whenever the program is killed.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/loggers/tensorboard_logger.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"
#include "tests/support/killed.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::resume_with_test {
namespace {

namespace fs = std::filesystem;

TrainerOptions one_of_two(const Folder& folder, const std::string& name, const std::string& other) {
  TrainerOptions options = tiny_options();
  options.model = model_with_memory();
  options.run_name = name;
  options.max_duration = "2ep";
  options.seed = 3;
  options.save_folder = folder / name;
  options.save_interval = "2ba";
  options.save_async = false;
  options.resume_with = {folder / other};
  return options;
}

struct Result {
  at::Tensor first, second;
  std::int64_t from = 0;
};

// Two trainers that take turns. `dies`: at which batch, after the first has been saved and before the second is.
Result take_turns(const Folder& folder, std::int64_t dies = -1) {
  TrainerOptions options = one_of_two(folder, "second", "first");
  options.callbacks = {killed_at(Event::BATCH_CHECKPOINT, dies)};
  Trainer first(one_of_two(folder, "first", "second")), second(std::move(options));
  const std::int64_t from = first.state().timestamp.batch;
  CHECK(second.state().timestamp.batch == from);
  first.begin();
  second.begin();
  while (first.step()) second.step();
  first.end();
  second.end();
  return {weights_of(first), weights_of(second), from};
}

TEST_CASE("Two trainers whose program died between their checkpoints go back to the one that both have") {
  const Folder other;
  const Result whole = take_turns(other);
  for (const std::int64_t batch : {4, 6, 8}) {
    CAPTURE(batch);
    const Folder folder;
    CHECK_THROWS(take_turns(folder, batch));
    const Result resumed = take_turns(folder);
    CHECK(resumed.from == batch - 2);
    CHECK(resumed.first.equal(whole.first));
    CHECK(resumed.second.equal(whole.second));
    CHECK(saving::list_checkpoints(folder / "first").size() == saving::list_checkpoints(folder / "second").size());
    CHECK(take_turns(folder).from == 8);  // and does nothing
  }
}

TEST_CASE(
    "What is later than the checkpoint in common is deleted when the fit begins, but for what was saved by hand") {
  const Folder folder;
  take_turns(folder);
  fs::remove_all(folder / "second/ep1-ba8"), fs::remove_all(folder / "second/ep2-ba8");
  fs::remove_all(folder / "second/ep1-ba6");
  const Warnings warnings;
  Trainer first(one_of_two(folder, "first", "second"));
  CHECK(first.state().timestamp.batch == 4);
  CHECK(warnings.say("resume_with: going back from batch 8"));
  const Trainer second(one_of_two(folder, "second", "first"));
  CHECK(fs::exists(folder / "first/ep1-ba6"));
  first.begin();
  CHECK_FALSE(fs::exists(folder / "first/ep1-ba6"));
  CHECK(first.saved_checkpoints().size() == 2);
}

TEST_CASE("A trainer of those that resume together deletes nothing that others have trained since it was made") {
  const Folder folder;
  CHECK_THROWS(take_turns(folder, 4));
  Trainer first(one_of_two(folder, "first", "second")), second(one_of_two(folder, "second", "first"));
  REQUIRE(first.state().timestamp.batch == 2);
  take_turns(folder);  // with trainers of their own
  const auto there = [&](const char* name) { return saving::list_checkpoints(folder / name).size(); };
  const std::size_t in_first = there("first"), in_second = there("second");
  CHECK(in_first > 2);
  for (Trainer* trainer : {&first, &second}) {
    CHECK(error_of([&] { trainer->begin(); }).find("was written by another Trainer") != std::string::npos);
    CHECK(error_of([&] { trainer->save_checkpoint("mine"); }).find("was written by another Trainer") !=
          std::string::npos);
  }
  CHECK(there("first") == in_first);
  CHECK(there("second") == in_second);
  CHECK(take_turns(folder).from == 8);
}

// Another program that trains the run on at the moment at which a trainer says that it goes back.
struct OtherProgram : Warnings {
  explicit OtherProgram(const Folder& all) : folder(all) {}
  void process(const c10::Warning& warning) override {
    Warnings::process(warning);
    if (warning.msg().find("going back from") != std::string::npos && !std::exchange(has_trained, true))
      take_turns(folder);
  }

  const Folder& folder;
  bool has_trained = false;
};

TEST_CASE("A trainer of those that resume together deletes nothing that others write while it chooses its checkpoint") {
  const Folder folder;
  CHECK_THROWS(take_turns(folder, 4));
  OtherProgram other(folder);
  Trainer first(one_of_two(folder, "first", "second"));
  REQUIRE(other.has_trained);
  REQUIRE(first.state().timestamp.batch == 2);
  const Trainer second(one_of_two(folder, "second", "first"));
  const std::size_t there = saving::list_checkpoints(folder / "first").size();
  CHECK(there > 2);
  CHECK(error_of([&] { first.begin(); }).find("was written by another Trainer") != std::string::npos);
  CHECK(saving::list_checkpoints(folder / "first").size() == there);
}

TEST_CASE("What is saved by hand before the first fit does not keep what is later from being deleted") {
  const Folder other, folder;
  const Result whole = take_turns(other);
  CHECK_THROWS(take_turns(folder, 6));
  REQUIRE(fs::exists(folder / "first/ep1-ba6"));
  const std::string begun = "begun-{batch}";
  {
    Trainer first(one_of_two(folder, "first", "second")), second(one_of_two(folder, "second", "first"));
    CHECK(first.state().timestamp.batch == 4);
    first.save_checkpoint(begun);
    first.begin();
    CHECK_FALSE(fs::exists(folder / "first/ep1-ba6"));
    CHECK(fs::exists(folder / "first/begun-4"));
  }
  {  // one that ended before its fit
    const Folder third;
    CHECK_THROWS(take_turns(third, 6));
    Trainer(one_of_two(third, "first", "second")).save_checkpoint(begun);
    const Result resumed = take_turns(third);
    CHECK(resumed.from == 4);
    CHECK(resumed.first.equal(whole.first));
  }
  const Result resumed = take_turns(folder);
  CHECK(resumed.from == 4);
  CHECK(resumed.first.equal(whole.first));
  CHECK(resumed.second.equal(whole.second));
}

TEST_CASE("Two trainers whose time was reset resume at the same batch of the same fit") {
  struct Resumed {
    Timestamp first, second;
    at::Tensor weights;
    std::int64_t trained = 0;
  };
  const auto take_turns_twice = [](const Folder& folder, const char* filename, std::int64_t dies) {
    Resumed result;
    std::int64_t saves = 0;
    TrainerOptions options = one_of_two(folder, "second", "first"), others = one_of_two(folder, "first", "second");
    options.callbacks = {At([&](Event event, const State&) {
      if (event == Event::BATCH_CHECKPOINT && ++saves == dies) throw Killed();
      if (event == Event::BATCH_END) ++result.trained;
    })};
    for (TrainerOptions* one : {&options, &others}) {
      one->save_interval = "1ba";
      one->save_filename = filename;
      one->max_duration = {};
    }
    Trainer first(std::move(others)), second(std::move(options));
    result.first = first.state().timestamp;
    result.second = second.state().timestamp;
    CHECK(first.resumed_from().empty() == second.resumed_from().empty());
    for (const auto& [batches, resets] : {std::pair(2, false), {4, true}, {3, true}}) {
      const FitOptions fit{.duration = Time(batches, TimeUnit::BATCH), .reset_time = resets};
      first.begin(fit);
      second.begin(fit);
      while (first.step()) second.step();
      first.end();
      second.end();
    }
    result.weights = weights_of(second);
    return result;
  };
  for (const char* filename : {"ba{batch}", "{sample}-ba{batch}-of-{epoch}"}) {
    CAPTURE(std::string(filename));
    const Folder other;
    const Resumed whole = take_turns_twice(other, filename, -1);
    CHECK(whole.trained == 9);
    for (const std::int64_t save : {2, 3, 4, 5, 6, 7, 8, 9}) {
      CAPTURE(save);
      const Folder folder;
      CHECK_THROWS(take_turns_twice(folder, filename, save));
      const Resumed resumed = take_turns_twice(folder, filename, -1);
      CHECK(resumed.first.batch == resumed.second.batch);
      CHECK(resumed.trained == 9 - save + 1);
      CHECK(resumed.weights.equal(whole.weights));
    }
  }
}

TEST_CASE("A program that died between the first checkpoints of its trainers begins again") {
  const Folder other;
  const Result whole = take_turns(other);
  for (const bool twice : {false, true}) {
    const Folder folder;
    CHECK_THROWS(take_turns(folder, 2));  // before the second one's first
    CHECK(saving::list_checkpoints(folder / "first").size() == 1);
    if (twice) CHECK_THROWS(take_turns(folder, 2));
    const Warnings warnings;
    const Result again = take_turns(folder);
    CHECK(warnings.say("resume_with: beginning again, because the program was killed before"));
    CHECK(again.from == 0);
    CHECK(again.first.equal(whole.first));
    CHECK(again.second.equal(whole.second));
    CHECK(saving::list_checkpoints(folder / "first").size() == saving::list_checkpoints(folder / "second").size());
  }
}

TEST_CASE("Checkpoints of another program in the folder of the other trainer are not those of this one") {
  const Folder folder;
  const auto run = [&](const std::string& name, std::int64_t dies) {
    const auto one = [&](const char* own, const char* other) {
      TrainerOptions options = one_of_two(folder, own, other);
      options.run_name = name;  // the same for both
      options.save_filename = "{run_name}-ba{batch}";
      options.save_interval = "1ba";
      return options;
    };
    TrainerOptions options = one("second", "first");
    options.callbacks = {killed_at(Event::BATCH_CHECKPOINT, dies)};
    Trainer first(one("first", "second")), second(std::move(options));
    const std::pair from(first.state().timestamp.batch, second.state().timestamp.batch);
    first.begin(), second.begin();
    while (first.step()) second.step();
    first.end(), second.end();
    return from;
  };
  const Warnings quiet;
  CHECK(run("monday", -1) == std::pair<std::int64_t, std::int64_t>(0, 0));
  CHECK_THROWS(run("tuesday", 4));
  CHECK(run("tuesday", -1) == std::pair<std::int64_t, std::int64_t>(3, 3));
}

TEST_CASE("Trainers without a checkpoint in common are an error, and so are options that would delete it") {
  const Folder folder;
  take_turns(folder);
  fs::remove_all(folder / "second");
  CHECK_THROWS_WITH_AS(Trainer(one_of_two(folder, "first", "second")),
                       doctest::Contains("no checkpoint of the same program and batch"), CheckpointError);
  CHECK_THROWS_WITH_AS(Trainer(one_of_two(folder, "own", "own")), doctest::Contains("is the save_folder of this"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(Trainer(one_of_two(folder, "own", "x/../own/")), doctest::Contains("is the save_folder of this"),
                       ConfigError);
  TrainerOptions few = one_of_two(folder, "a", "b");
  few.save_num_checkpoints_to_keep = 2;
  CHECK_THROWS_WITH_AS(Trainer(std::move(few)), doctest::Contains("resume_with: needs save_num_checkpoints_to_keep"),
                       ConfigError);
  TrainerOptions none = one_of_two(folder, "a", "b");
  none.save_folder.clear();
  CHECK_THROWS_WITH_AS(Trainer(std::move(none)), doctest::Contains("resume_with: needs a save_folder"), ConfigError);
  const Warnings quiet;
  TrainerOptions anew = one_of_two(folder, "first", "second");  // which has none of the first one's
  anew.autoresume = false;
  CHECK_THROWS_WITH_AS(Trainer(std::move(anew)), doctest::Contains("resume_with: needs autoresume"), ConfigError);
  CHECK(quiet.texts.empty());
}

// Two trainers whose folders are named by the run, which the environment names.
std::pair<TrainerOptions, TrainerOptions> two_named_later(const Folder& folder) {
  TrainerOptions first = one_of_two(folder, "first", "second"), second = one_of_two(folder, "second", "first");
  first.run_name = second.run_name = "";
  first.save_folder = folder / "{run_name}/first";
  second.save_folder = folder / "{run_name}/second";
  first.resume_with = {second.save_folder};
  second.resume_with = {first.save_folder};
  return {std::move(first), std::move(second)};
}

TEST_CASE("Trainers of resume_with whose folders the environment names do not delete what they had there") {
  const Folder folder;
  ::setenv("COMPOSER_RUN_NAME", "tuesday", 1);
  const auto unset = c10::make_scope_exit([] { ::unsetenv("COMPOSER_RUN_NAME"); });
  {
    auto [one, other] = two_named_later(folder);
    Trainer first(std::move(one)), second(std::move(other));
    first.begin();
    second.begin();
    while (first.step()) second.step();
    first.end();
    second.end();
  }
  CHECK(saving::list_checkpoints(folder / "tuesday/first").size() == 4);
  auto [one, other] = two_named_later(folder);
  Trainer first(std::move(one)), second(std::move(other));
  CHECK(error_of([&] { first.begin(); }).find("was not written by this run") != std::string::npos);
  CHECK(saving::list_checkpoints(folder / "tuesday/first").size() == 4);
}

TEST_CASE("What another trainer writes after this one has named its folder is not this one's") {
  const Folder folder;
  const auto options = [&] {
    TrainerOptions made = tiny_options();
    made.save_folder = folder / "{run_name}";
    made.max_duration = "1ep";
    return made;
  };
  Trainer first(options());
  TrainerOptions same = options();
  same.run_name = first.state().run_name;
  Trainer(std::move(same)).fit();
  CHECK(error_of([&] { first.save_checkpoint("mine"); }).find("was written by another Trainer") != std::string::npos);
}

void damage(const fs::path& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-1, std::ios::end);
  stream.put('~');
}

TEST_CASE("Where the newest checkpoint of one trainer is damaged, both go back to the newest pair that is whole") {
  const Folder other;
  const Result whole = take_turns(other);
  for (const char* damaged : {"first", "second"})
    for (const char* file : {"model.safetensors", "state.safetensors"}) {
      CAPTURE(join(damaged, "/", file));
      const Folder folder;
      CHECK_THROWS(take_turns(folder, 8));  // both have batch 6
      damage(folder / damaged / "ep1-ba6" / file);
      const Warnings warnings;
      const Result resumed = take_turns(folder);
      CHECK(resumed.from == 4);
      CHECK(resumed.first.equal(whole.first));
      CHECK(resumed.second.equal(whole.second));
      CHECK(warnings.say(join("; going back to ", (folder / "first/ep0-ba4").string())));
      CHECK(warnings.say(join("; going back to ", (folder / "second/ep0-ba4").string())));
      CHECK(saving::list_checkpoints(folder / "first").size() == saving::list_checkpoints(folder / "second").size());
      for (const char* name : {"first", "second"})
        for (const auto& found : saving::list_checkpoints(folder / name)) damage(found.path / file);
      CHECK_THROWS_WITH_AS(take_turns(folder), doctest::Contains("first/ep"), CheckpointError);
    }
}

TEST_CASE("After going back, the link to the newest leads to the checkpoint that the run goes on from, or is gone") {
  const Folder folder;
  CHECK_THROWS(take_turns(folder, 6));
  {
    const Warnings warnings;
    Trainer first(one_of_two(folder, "first", "second"));
    const Trainer second(one_of_two(folder, "second", "first"));
    first.begin();
    CHECK(fs::read_symlink(folder / "first/latest") == "ep0-ba4");
    CHECK_FALSE(warnings.say("latest"));
  }
  const Folder again;
  CHECK_THROWS(take_turns(again, 2));
  const Warnings warnings;
  Trainer first(one_of_two(again, "first", "second"));
  const Trainer second(one_of_two(again, "second", "first"));
  first.begin();
  CHECK_FALSE(fs::is_symlink(again / "first/latest"));
  CHECK_FALSE(warnings.say("latest"));
}

TEST_CASE("Trainers that do not name each other in resume_with are an error at the first fit of any of them") {
  const Folder folder;
  const auto one = [&](const std::string& name, const std::vector<std::string>& others) {
    TrainerOptions options = one_of_two(folder, name, "");
    options.resume_with.clear();
    for (const std::string& other : others) options.resume_with.push_back(folder / other);
    return options;
  };
  const auto fails = [](Trainer& trainer, const std::string& text) {
    CHECK_THROWS_WITH_AS(trainer.begin(), doctest::Contains(text.c_str()), ConfigError);
  };
  {
    Trainer a(one("a", {"nobody"})), b(one("b", {"a"}));
    fails(a, "does not name");
    fails(b, "does not name");
  }
  {
    Trainer a(one("a", {"nobody"}));
    fails(a, join("resume_with: no trainer of this program has the save_folder ", (folder / "nobody").string()));
  }
  {
    Trainer a(one("a", {"b"})), b(one("b", {}));
    const std::string text = join("resume_with: the trainer whose save_folder is ", (folder / "b").string());
    fails(a, text);
    fails(b, text);
  }
  {
    Trainer a(one("a", {"b"})), b(one("b", {"a", "c"})), c(one("c", {"b"}));
    fails(a, "does not name");
    fails(b, "does not name");
    fails(c, "does not name");
  }
  for (const char* name : {"a", "b", "c"}) CHECK_FALSE(fs::exists(folder / name));
  Trainer a(one("a", {"b", "c"})), b(one("b", {"a", "./c"})), apart(one("apart", {}));
  fails(a, join("no trainer of this program has the save_folder ", (folder / "c").string()));
  Trainer c(one("c", {"b/../a", "b"}));
  for (Trainer* trainer : {&a, &b, &c, &apart}) CHECK_NOTHROW(trainer->begin());
}

TEST_CASE("All ranks hear that a trainer is named that does not exist") {
  const Folder folder;
  const std::vector<std::string> errors =
      dist::test::errors_in_ranks(2, [&](const std::shared_ptr<dist::World>& world) {
        TrainerOptions options = one_of_two(folder, "a", "nobody");
        options.world = world;
        Trainer(std::move(options)).fit();
      });
  for (const std::string& error : errors) CHECK_MESSAGE(error.find("nobody") != std::string::npos, error);
}

TEST_CASE("Trainers of resume_with that are not saved at the same intervals are an error before the first batch") {
  const Folder folder;
  Trainer first(one_of_two(folder, "first", "second"));
  TrainerOptions options = one_of_two(folder, "second", "first");
  options.save_interval = "3ba";
  Trainer second(std::move(options));
  for (Trainer* trainer : {&first, &second})
    CHECK_THROWS_WITH_AS(trainer->fit(), doctest::Contains("give all of these trainers the same"), ConfigError);
}

TEST_CASE("A trainer that would delete the newest checkpoint which all have is stopped before") {
  for (const char* how : {"one alone", "one after the other", "in turns of fits"}) {
    CAPTURE(std::string(how));
    const Folder folder;
    const Warnings quiet;
    const auto make = [&](const char* own, const char* other) {
      TrainerOptions options = one_of_two(folder, own, other);
      options.save_interval = "1ba";
      options.save_num_checkpoints_to_keep = 3;
      options.max_duration = std::nullopt;
      return options;
    };
    Trainer first(make("first", "second"));
    std::optional<Trainer> second(std::in_place, make("second", "first"));
    if (std::string(how) == "in turns of fits") {
      for (int fit = 0; fit < 3; ++fit) first.fit("1ba"), second->fit("1ba");
    } else if (std::string(how) == "one after the other") {
      first.begin({.duration = "4ba"}), second->begin({.duration = "4ba"});
      first.step(), second->step();
      second.reset();
    }
    const std::int64_t before = first.state().timestamp.batch;
    if (std::string(how) == "one after the other") {
      first.step(), first.step();
      CHECK_THROWS_WITH(first.step(), doctest::Contains("they would have no checkpoint in common"));
    } else {
      CHECK_THROWS_WITH(first.fit("4ba"), doctest::Contains("they would have no checkpoint in common"));
    }
    first.close();
    std::vector<std::int64_t> left;  // one more may be there: what could not be deleted at once is deleted next time
    for (const saving::Found& found : saving::list_checkpoints(folder / "first"))
      left.push_back(found.manifest.time.batch);
    for (std::int64_t batch = before + 2; batch >= std::max<std::int64_t>(1, before); --batch)
      CHECK(std::ranges::count(left, batch) == 1);
  }
}

TEST_CASE("Trainers of resume_with that take equal turns train on, however often a turn is a fit that a stop ends") {
  const Folder folder;
  const Warnings quiet;
  const auto make = [&](const char* own, const char* other) {
    TrainerOptions options = one_of_two(folder, own, other);
    options.save_interval = "1ba";
    options.save_num_checkpoints_to_keep = 4;  // a turn is saved three times where an epoch ends
    options.callbacks = {At([](Event event, const State& state) {
      if (event == Event::BATCH_END) state.stop.ask("the other's turn");
    })};
    return options;
  };
  Trainer first(make("first", "second")), second(make("second", "first"));
  for (int turn = 1; turn <= 8; ++turn) {
    first.fit(), second.fit();
    CHECK(first.state().timestamp.batch == turn);
    CHECK(second.state().timestamp.batch == turn);
  }
}

TEST_CASE("A trainer of resume_with that is made again, alone, is an error before it trains; all of them are not") {
  const Folder folder;
  const Warnings quiet;
  const auto make = [&](const char* own, const char* other) {
    TrainerOptions options = one_of_two(folder, own, other);
    options.max_duration = std::nullopt;
    return std::make_unique<Trainer>(std::move(options));
  };
  std::unique_ptr<Trainer> first = make("first", "second"), second = make("second", "first");
  for (int turn = 0; turn < 2; ++turn) first->fit("2ba"), second->fit("2ba");
  first.reset();
  first = make("first", "second");
  CHECK_THROWS_WITH(first->fit("2ba"), doctest::Contains("make all of these trainers again"));
  first.reset();
  first = make("first", "second");
  second.reset();
  second = make("second", "first");
  for (int fit = 0; fit < 3; ++fit) CHECK_NOTHROW((first->fit("2ba"), second->fit("2ba")));
  CHECK(first->state().timestamp.batch == 6);
}

TEST_CASE("Going back, trainers of resume_with keep what was saved by hand, whatever its name") {
  const Folder folder;
  const Warnings quiet;
  {
    TrainerOptions options = one_of_two(folder, "second", "first");
    Trainer first(one_of_two(folder, "first", "second")), second(std::move(options));
    first.begin(), second.begin();
    for (int batch = 0; batch < 2; ++batch) first.step(), second.step();
    first.step(), first.step();
    for (const char* name : {"ep{epoch}-ba{batch}", "ep1-ba6-20261127", "mine"}) first.save_checkpoint(name);
  }
  Trainer first(one_of_two(folder, "first", "second"));
  const Trainer second(one_of_two(folder, "second", "first"));
  CHECK(first.state().timestamp.batch == 2);
  first.begin();
  CHECK(fs::exists(folder / "first/ep0-ba4"));  // both by its interval and by hand
  CHECK(fs::exists(folder / "first/ep1-ba6-20261127"));
  CHECK(fs::exists(folder / "first/mine"));
}

TEST_CASE("What was saved by hand at a batch to which the run has gone back since is no checkpoint in common") {
  const Folder folder;
  const Warnings quiet;
  const auto made = [&](const char* own, const char* other) {
    TrainerOptions options = one_of_two(folder, own, other);
    options.max_duration = "16ba";
    options.save_num_checkpoints_to_keep = -1;
    return std::make_unique<Trainer>(std::move(options));
  };
  const auto train = [](Trainer& trainer, std::int64_t until) {
    while (trainer.state().timestamp.batch < until) trainer.step();
  };
  const auto remove = [&](const char* own, std::int64_t batch) {  // as if it was still being written
    for (const saving::Found& found : saving::list_checkpoints(folder / own))
      if (found.manifest.time.batch == batch && !found.manifest.by_hand) fs::remove_all(found.path);
  };
  {
    const auto first = made("a", "b"), second = made("b", "a");
    first->begin(), second->begin();
    for (const std::int64_t batch : {2, 4, 6, 8}) train(*first, batch), train(*second, batch);
    train(*first, 10);
    first->save_checkpoint("mine");
  }
  remove("b", 8);
  {
    const auto first = made("a", "b"), second = made("b", "a");
    CHECK(first->state().timestamp.batch == 6);
    first->begin(), second->begin();
    for (const std::int64_t batch : {8, 10}) train(*first, batch), train(*second, batch);
  }
  remove("a", 10);
  const auto first = made("a", "b"), second = made("b", "a");
  CHECK(fs::exists(folder / "a/mine"));
  CHECK(first->state().timestamp.batch == 8);
  CHECK(second->state().timestamp.batch == 8);
}

TEST_CASE("Trainers of resume_with whose folders lie in one another each go on from their own checkpoints") {
  const Folder folder;
  const Warnings quiet;
  const auto options_of = [&](const char* own, const char* other, double lr) {
    TrainerOptions options = one_of_two(folder, own, other);
    options.run_name = "gan";
    options.optimizer = optim::sgd({.lr = lr});
    return options;
  };
  {
    Trainer outer(options_of("gan", "gan/judge", 0.1)), inner(options_of("gan/judge", "gan", 0.02));
    outer.begin(), inner.begin();
    while (inner.state().timestamp.batch < 6) outer.step(), inner.step();
  }
  Trainer outer(options_of("gan", "gan/judge", 0.1)), inner(options_of("gan/judge", "gan", 0.02));
  CHECK(outer.resumed_from() == folder / "gan/ep1-ba6");
  CHECK(inner.resumed_from() == folder / "gan/judge/ep1-ba6");
  CHECK(!weights_of(outer).equal(weights_of(inner)));
}

TEST_CASE("Trainers of resume_with whose folders lie in one another begin again if only the inner one was saved") {
  const Folder folder;
  const Warnings quiet;
  {
    Trainer outer(one_of_two(folder, "gan", "gan/judge")), inner(one_of_two(folder, "gan/judge", "gan"));
    outer.begin(), inner.begin();
    while (inner.state().timestamp.batch < 2) inner.step();
  }
  CHECK(fs::exists(folder / "gan/judge/ep0-ba2"));
  const Trainer outer(one_of_two(folder, "gan", "gan/judge")), inner(one_of_two(folder, "gan/judge", "gan"));
  CHECK(inner.resumed_from().empty());
  CHECK(quiet.say("beginning again"));
}

TEST_CASE("Options with which trainers of resume_with could have no checkpoint in common are refused") {
  const Folder folder;
  const auto refused = [&](const std::function<void(TrainerOptions&)>& change, const char* what) {
    TrainerOptions options = one_of_two(folder, "first", "second");
    change(options);
    CHECK_THROWS_WITH_AS(Trainer(std::move(options)), doctest::Contains(what), ConfigError);
  };
  refused([](TrainerOptions& o) { o.save_filename = "last"; }, "{batch} in save_filename");
  refused([](TrainerOptions& o) { o.save_filename = "ep{epoch}"; }, "{batch} in save_filename");
  refused([](TrainerOptions& o) { o.save_filename = "ep{epoch}-{batch_in_epoch}"; }, "{batch} in save_filename");
  refused([](TrainerOptions& o) { o.save_filename = "{{batch}}"; }, "{batch} in save_filename");
  refused([](TrainerOptions& o) { o.save_interval = "1ep"; }, "save_interval in ba");
  refused([](TrainerOptions& o) { o.save_interval = Interval([](Event, const State&) { return true; }); },
          "save_interval in ba");
  refused([](TrainerOptions& o) { o.save_on_failure = saving::OnFailure::CONTINUE; }, "save_on_failure");
}

TEST_CASE("The folder of another trainer that cannot be resolved ends no fit of this one") {
  const Folder folder;
  TrainerOptions other = tiny_options();
  other.save_folder = folder / "around/ck";
  const Trainer lost(std::move(other));
  fs::create_symlink("around", folder / "around");
  Trainer first(one_of_two(folder, "first", "second")), second(one_of_two(folder, "second", "first"));
  CHECK_NOTHROW(first.begin());
}

std::unique_ptr<Trainer> global;  // NOLINT(cert-err58-cpp): it is to end after all that main() has made

constexpr const char* kFolderOfGlobal = "COMPOSER_FOLDER_OF_GLOBAL";

[[noreturn]] void leave_global_trainer(const fs::path& folder) {
  TrainerOptions options = tiny_options();
  options.save_folder = folder / "ck";
  options.deterministic_mode = true;
  options.loggers = {loggers::TensorBoardLogger({.folder = folder / "tb"})};
  global = std::make_unique<Trainer>(std::move(options));
  global->begin();
  global->step();
  std::exit(0);  // NOLINT(concurrency-mt-unsafe)
}

// In a program of its own: a forked child has not the threads that end with it.
TEST_CASE("A trainer that is a global, and in the middle of a fit, may outlive main()") {
  if (const char* folder = std::getenv(kFolderOfGlobal)) leave_global_trainer(folder);
  const Folder folder;
  CHECK(ended_well(status_of_child([&] {
    ::setenv(kFolderOfGlobal, folder.path().c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    ::execl("/proc/self/exe", "trainer_tests", "--test-case=A trainer that is a global*", nullptr);
    throw std::runtime_error("it cannot be started");
  })));
  CHECK(fs::exists(folder / "tb"));
}

}  // namespace
}  // namespace composer::test::resume_with_test
