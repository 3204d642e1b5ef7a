#include "composer/callbacks/mlperf_callback.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/util/threads_here.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"
#include "tests/support/saved_by.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::mlperf_callback_test {
namespace {

namespace fs = std::filesystem;
using callbacks::MLPerfBenchmark, callbacks::MLPerfCallback, callbacks::MLPerfCallbackOptions;
using nlohmann::ordered_json;

// A line as the public description of the format has it: the six fields in order, and where it was logged.
ordered_json parse(const std::string& line) {
  static const std::string kToken = ":::MLLOG ";
  REQUIRE(line.starts_with(kToken));
  ordered_json record = ordered_json::parse(line.substr(kToken.size()));
  std::vector<std::string> fields;
  for (const auto& [field, value] : record.items()) fields.push_back(field);
  REQUIRE(fields == std::vector<std::string>{"namespace", "time_ms", "event_type", "key", "value", "metadata"});
  CHECK(record["namespace"] == "");
  CHECK(record["time_ms"].is_number_integer());
  CHECK(record["time_ms"].get<std::int64_t>() > 1'600'000'000'000);
  const std::vector<std::string> types = {"POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"};
  CHECK(std::ranges::count(types, record["event_type"].get<std::string>()) == 1);
  CHECK(record["metadata"].at("file").is_string());
  CHECK(record["metadata"].at("lineno").is_number_integer());
  return record;
}

std::vector<ordered_json> read(const fs::path& path) {
  std::ifstream file(path);
  REQUIRE(file);
  std::vector<ordered_json> records;
  for (std::string line; std::getline(file, line);) records.push_back(parse(line));
  return records;
}

std::vector<std::string> keys_of(const std::vector<ordered_json>& records) {
  std::vector<std::string> keys;
  for (const ordered_json& record : records) keys.push_back(record["key"]);
  return keys;
}

const ordered_json& only(const std::vector<ordered_json>& records, const std::string& key) {
  const ordered_json* found = nullptr;
  for (const ordered_json& record : records) {
    if (record["key"] != key) continue;
    REQUIRE(found == nullptr);
    found = &record;
  }
  REQUIRE_MESSAGE(found != nullptr, key);
  return *found;
}

const std::string kResult = "results/1xcpu_composer/resnet/result_0.txt";

MLPerfCallbackOptions in(const Folder& folder) {
  return {.root_folder = folder.path().string(), .index = 0, .target = 2, .cache_clear_cmd = "true"};
}

// Two epochs of 16 samples, with an evaluation of 6 after each.
TrainerOptions two_epochs(const MLPerfCallbackOptions& options) {
  TrainerOptions with = tiny_options();
  with.eval_dataloader = tiny_loader(6, 4);
  with.max_duration = "2ep";
  with.seed = 17;
  with.callbacks.add(MLPerfCallback(options));
  return with;
}

TEST_CASE("The global batch size is that of all ranks, also of ranks with slices of unequal size") {
  const Folder folder;
  dist::test::results_in_ranks(2, [&](const std::shared_ptr<dist::World>& world) {
    TrainerOptions with = two_epochs(in(folder));
    with.train_dataloader = tiny_loader(15, 5);
    with.world = world;
    Trainer(std::move(with)).fit();
    return 0;
  });
  CHECK(only(read(folder / "results/2xcpu_composer/resnet/result_0.txt"), "global_batch_size")["value"] == 5);
}

TEST_CASE("MLPerfCallback logs a run in the format of MLPerf, in order") {
  const Folder folder;
  Trainer(two_epochs(in(folder))).fit();
  const auto records = read(folder / kResult);
  CHECK(keys_of(records) == std::vector<std::string>{"cache_clear",
                                                     "init_start",
                                                     "submission_benchmark",
                                                     "submission_division",
                                                     "submission_org",
                                                     "submission_platform",
                                                     "submission_status",
                                                     "seed",
                                                     "init_stop",
                                                     "run_start",
                                                     "epoch_start",
                                                     "block_start",
                                                     "global_batch_size",
                                                     "device_train_microbatch_size",
                                                     "train_samples",
                                                     "epoch_stop",
                                                     "eval_start",
                                                     "eval_samples",
                                                     "eval_stop",
                                                     "eval_accuracy",
                                                     "block_stop",
                                                     "epoch_start",
                                                     "block_start",
                                                     "epoch_stop",
                                                     "eval_start",
                                                     "eval_stop",
                                                     "eval_accuracy",
                                                     "block_stop"});
  CHECK(only(records, "init_start")["event_type"] == "INTERVAL_START");
  CHECK(only(records, "init_stop")["event_type"] == "INTERVAL_END");
  CHECK(only(records, "run_start")["event_type"] == "POINT_IN_TIME");
  CHECK(only(records, "submission_benchmark")["value"] == "resnet");
  CHECK(only(records, "submission_platform")["value"] == "1xcpu_composer");
  CHECK(only(records, "seed")["value"] == 17);
  CHECK(only(records, "global_batch_size")["value"] == 4);
  CHECK(only(records, "train_samples")["value"] == 16);
  CHECK(only(records, "eval_samples")["value"] == 6);
}

TEST_CASE("MLPerfCallback numbers epochs, or samples for bert") {
  for (const bool bert : {false, true}) {
    CAPTURE(bert);
    const Folder folder;
    MLPerfCallbackOptions options = in(folder);
    if (bert) options.benchmark = MLPerfBenchmark::BERT;
    Trainer(two_epochs(options)).fit();
    std::map<std::string, std::vector<std::int64_t>> numbers;
    for (const ordered_json& record : read(folder / (bert ? "results/1xcpu_composer/bert/result_0.txt" : kResult)))
      for (const char* field : {"epoch_num", "first_epoch_num"})
        if (record["metadata"].contains(field)) numbers[record["key"]].push_back(record["metadata"][field]);
    const std::int64_t one = bert ? 16 : 1;
    for (const char* key : {"epoch_start", "block_start", "epoch_stop", "block_stop"}) {
      CAPTURE(key);
      CHECK(numbers[key] == std::vector<std::int64_t>{0, one});
    }
    for (const char* key : {"eval_start", "eval_stop", "eval_accuracy"}) {
      CAPTURE(key);
      CHECK(numbers[key] == std::vector<std::int64_t>{one, 2 * one});
    }
  }
}

TEST_CASE("A run has succeeded when the metric is greater than the target, which can end it") {
  for (const bool exit : {false, true}) {
    CAPTURE(exit);
    const Folder folder;
    MLPerfCallbackOptions options = in(folder);
    options.target = -1;
    options.exit_at_target = exit;
    Trainer trainer(two_epochs(options));
    trainer.fit();
    CHECK(trainer.state().timestamp.epoch == (exit ? 1 : 2));
    const auto records = read(folder / kResult);
    CHECK(records.back()["key"] == "run_stop");
    CHECK(records.back()["metadata"]["status"] == "success");
    CHECK(only(records, "eval_accuracy")["value"] ==
          doctest::Approx(trainer.state().metrics.at("eval", "MulticlassAccuracy")).epsilon(exit ? 1e-6 : 10));
    CHECK(only(records, "run_stop")["value"].is_null());
  }
}

TEST_CASE("A metric that only reaches the target has not succeeded") {
  const Folder folder;
  std::optional<double> accuracy;
  {
    Trainer trainer(two_epochs(in(folder)));
    trainer.fit("1ep");
    accuracy = trainer.state().metrics.at("eval", "MulticlassAccuracy");
  }
  MLPerfCallbackOptions options = in(folder);
  options.index = 1;
  options.target = *accuracy;
  Trainer trainer(two_epochs(options));
  trainer.fit("1ep");
  CHECK(read(folder / "results/1xcpu_composer/resnet/result_1.txt").back()["key"] == "block_stop");
}

TEST_CASE("MLPerfCallback logs the sizes that it is given before the run starts, and no others") {
  const Folder folder;
  MLPerfCallbackOptions options = in(folder);
  options.train_samples = 100;
  options.eval_samples = 10;
  Trainer(two_epochs(options)).fit();
  const auto records = read(folder / kResult);
  CHECK(only(records, "train_samples")["value"] == 100);
  CHECK(only(records, "eval_samples")["value"] == 10);
  const std::vector<std::string> keys = keys_of(records);
  CHECK(std::ranges::find(keys, "eval_samples") < std::ranges::find(keys, "run_start"));
}

TEST_CASE("MLPerfCallback describes the machine in texts") {
  const Folder folder;
  MLPerfCallbackOptions options = in(folder);
  options.submitter = "we";
  options.system_name = "ours";
  Trainer trainer(two_epochs(options));
  std::ifstream file(folder / "systems/ours.json");
  REQUIRE(file);
  const ordered_json system = ordered_json::parse(file);
  CHECK(system.size() == 33);
  CHECK(system["submitter"] == "we");
  CHECK(system["system_name"] == "ours");
  CHECK(system["accelerators_per_node"] == "0");
  CHECK(system["host_processor_vcpu_count"] != "");
  CHECK(system["other_software_stack"].size() == 3);
  for (const auto& [key, value] : system.items()) {
    CAPTURE(key);
    CHECK((value.is_string() || key == "other_software_stack"));
  }
}

TEST_CASE("MLPerfCallback does not write over a result, and a resumed run goes on in its own") {
  const Folder folder;
  const auto run = [&](const char* until, bool resume) {
    TrainerOptions with = two_epochs(in(folder));
    if (resume) with.save_folder = (folder / "checkpoints").string();
    with.max_duration = Time::parse(until);
    Trainer(std::move(with)).fit();
  };
  run("1ep", true);
  CHECK_THROWS_WITH_AS(run("1ep", false), doctest::Contains("result_0.txt exists"), RunError);
  run("2ep", true);
  const auto records = read(folder / kResult);
  for (const char* key : {"init_start", "run_start", "train_samples", "global_batch_size"}) only(records, key);
  const std::vector<std::string> keys = keys_of(records);
  CHECK(std::ranges::count(keys, "eval_accuracy") == 2);
  CHECK(std::ranges::count(keys, "epoch_start") == 2);
}

// Trains to `until`, or as after a kill that left no later checkpoint than `last`.
Trainer resumed(const Folder& folder, const MLPerfCallbackOptions& options, const char* until,
                const std::vector<std::string>& lost = {}) {
  for (const std::string& checkpoint : lost) fs::remove_all(folder / "checkpoints" / checkpoint);
  TrainerOptions with = two_epochs(options);
  with.save_folder = (folder / "checkpoints").string();
  with.save_interval = "2ba";
  with.max_duration = Time::parse(until);
  Trainer trainer(std::move(with));
  trainer.fit();
  return trainer;
}

TEST_CASE("A resumed run removes from its result what was logged after the checkpoint") {
  const Folder folder;
  resumed(folder, in(folder), "2ep");
  const auto whole = read(folder / kResult);
  const Warnings warnings;
  for (const auto& lost :
       {std::vector<std::string>{"ep1-ba6", "ep1-ba8"}, {"ep1-ba8"}}) {  // the first epoch ends again
    resumed(folder, in(folder), "2ep", lost);
    const auto now = read(folder / kResult);
    CHECK(keys_of(now) == keys_of(whole));
    for (std::size_t i = 0; i < std::min(now.size(), whole.size()); ++i)
      for (const char* field : {"epoch_num", "first_epoch_num"})
        CHECK(now[i]["metadata"].value(field, -1) == whole[i]["metadata"].value(field, -1));
  }
}

TEST_CASE("exit_at_target ends a resumed run whose killed process had logged its success") {
  const Folder folder;
  MLPerfCallbackOptions options = in(folder);
  options.target = -1;
  options.exit_at_target = true;
  resumed(folder, options, "2ep");
  const auto whole = keys_of(read(folder / kResult));
  const Warnings warnings;
  Trainer trainer = resumed(folder, options, "2ep", {"ep0-ba4"});
  CHECK(trainer.state().timestamp.epoch == 1);
  CHECK(keys_of(read(folder / kResult)) == whole);
}

TEST_CASE("exit_at_target ends a resumed run whose success is older than its checkpoint") {
  const Folder folder;
  MLPerfCallbackOptions options = in(folder);
  options.target = -1;
  resumed(folder, options, "2ep");
  options.exit_at_target = true;
  const Warnings warnings;
  Trainer trainer = resumed(folder, options, "5ep");
  CHECK(trainer.state().timestamp.epoch == 2);
  const auto records = read(folder / kResult);
  only(records, "run_stop");
  CHECK(records.back()["key"] == "run_stop");
}

TEST_CASE("A resumed run does not append to a result that it has not written") {
  const Folder folder;
  resumed(folder, in(folder), "1ep");
  const Folder other;
  resumed(other, in(other), "2ep");
  fs::copy_file(other / kResult, folder / kResult, fs::copy_options::overwrite_existing);
  const auto before = read(folder / kResult);
  const Warnings warnings;
  CHECK_THROWS_WITH_AS(resumed(folder, in(folder), "2ep"), doctest::Contains("is not the result of this run"),
                       RunError);
  CHECK(read(folder / kResult) == before);
}

TEST_CASE("A state that is loaded by hand moves no place in the result of a run that goes on") {
  const Folder folder;
  resumed(folder, in(folder), "1ep");
  State state;
  state.resumes = true;
  Logger logger(state, {});
  MLPerfCallback callback(in(folder));
  callback.init(state, logger);
  for (const auto& [of, size] :
       {std::pair(StateVisitor::Of::THIS_RUN, 100), std::pair(StateVisitor::Of::ANOTHER, 50)}) {
    StateDict saved;
    saved["size"] = std::int64_t{size};
    for (const char* sum : {"head", "tail"}) saved[sum] = std::string("checksum");
    for (const char* count : {"epoch", "first_sample"}) saved[count] = std::int64_t{0};
    saved["whole_epoch"] = true;
    StateVisitor visit = StateVisitor::loading(saved, "ck", of);
    callback.visit_state(visit);
  }
  StateDict saved = saved_by(callback);
  CHECK(std::get<std::int64_t>(saved["size"]) == 100);
}

TEST_CASE("A resumed run whose result is lost begins a new one") {
  const Folder folder;
  resumed(folder, in(folder), "1ep");
  fs::remove(folder / kResult);
  const Warnings warnings;
  resumed(folder, in(folder), "2ep");
  const auto records = read(folder / kResult);
  only(records, "run_start");
  CHECK(std::ranges::count(keys_of(records), "eval_accuracy") == 2);
}

TEST_CASE("A run that was killed before its first checkpoint begins its result again, and keeps the old one") {
  const Folder folder, whole;
  resumed(whole, in(whole), "2ep");
  const auto dies = [&](Event when, const char* run_name) {
    status_of_child([&] {
      use_threads_here(1);  // OpenMP's threads do not survive a fork
      TrainerOptions with = two_epochs(in(folder));
      with.run_name = run_name;
      with.save_folder = (folder / "checkpoints").string();
      with.callbacks.add(At([when](Event event, const State&) {
        if (event == when) std::raise(SIGKILL);
      }));
      Trainer(std::move(with)).fit();
    });
  };
  const Warnings warnings;
  for (const Event when : {Event::BATCH_END, Event::FIT_START, Event::AFTER_LOAD}) dies(when, "tiny");
  CHECK(fs::exists(folder / (kResult + ".1")));
  resumed(folder, in(folder), "2ep");
  CHECK(keys_of(read(folder / kResult)) == keys_of(read(whole / kResult)));
  CHECK(warnings.say("of which no checkpoint is left"));
  const Folder foreign;
  fs::create_directories((foreign / kResult).parent_path());
  std::ofstream(foreign / kResult) << "another's\n";
  CHECK_THROWS_WITH_AS(resumed(foreign, in(foreign), "2ep"), doctest::Contains("result_0.txt exists"), RunError);
}

TEST_CASE("A run that begins again refuses a result that is finished, which is another run's") {
  const Folder folder;
  status_of_child([&] {
    use_threads_here(1);
    TrainerOptions with = two_epochs(in(folder));
    with.run_name = "tiny";
    with.save_folder = (folder / "checkpoints").string();
    with.callbacks.add(At([](Event event, const State&) {
      if (event == Event::BATCH_END) std::raise(SIGKILL);
    }));
    Trainer(std::move(with)).fit();
  });
  std::ofstream(folder / kResult, std::ios::app) << ":::MLLOG {\"key\": \"run_stop\"}\n";
  CHECK_THROWS_WITH_AS(resumed(folder, in(folder), "2ep"), doctest::Contains("result_0.txt exists"), RunError);
  CHECK_FALSE(fs::exists(folder / (kResult + ".1")));
}

TEST_CASE("MLPerfCallback runs the command that clears caches, and says what is wrong with it") {
  const Folder folder;
  MLPerfCallbackOptions options = in(folder);
  options.cache_clear_cmd = "touch " + (folder / "cleared").string();
  { Trainer trainer(two_epochs(options)); }
  CHECK(fs::exists(folder / "cleared"));
  options.index = 1;
  options.cache_clear_cmd = "false";
  CHECK_THROWS_WITH_AS(Trainer(two_epochs(options)), doctest::Contains("\"false\" failed with status 1"), RunError);
  options.index = 2;
  options.cache_clear_cmd = "composer-has-no-such-program";
  CHECK_THROWS_WITH_AS(Trainer(two_epochs(options)), doctest::Contains("cannot be run"), RunError);
  options.index = 3;
  options.cache_clear_cmd = "";
  const Warnings warnings;
  { Trainer trainer(two_epochs(options)); }
  CHECK(warnings.say("no cache_clear_cmd is set"));
  CHECK(keys_of(read(folder / "results/1xcpu_composer/resnet/result_3.txt"))[0] == "init_start");
}

TEST_CASE("MLPerfCallback rejects a fit without exactly one evaluator that has the metric") {
  const auto error = [](const std::function<void(TrainerOptions&)>& change) -> std::string {
    const Folder folder;
    TrainerOptions options = two_epochs(in(folder));
    change(options);
    try {
      Trainer(std::move(options)).fit();
    } catch (const std::exception& thrown) {
      return describe(thrown);
    }
    return {};
  };
  CHECK(error([](TrainerOptions& options) { options.eval_dataloader = Evaluators(); }).find("no evaluator \"eval\"") !=
        std::string::npos);
  CHECK(error([](TrainerOptions& options) {
          options.eval_dataloader = Evaluators{{.label = "eval", .dataloader = tiny_loader(6, 4)},
                                               {.label = "b", .dataloader = tiny_loader(6, 4)}};
        }).find("one evaluator, got 2") != std::string::npos);
}

TEST_CASE("MLPerfCallback sends its files to loggers when it is closed") {
  struct Files final : LoggerDestination {
    void upload_file(const LogFile& file, const State&) override { names.push_back(file.name); }
    std::vector<std::string> names;
  };
  const Folder folder;
  const auto files = std::make_shared<Files>();
  TrainerOptions options = two_epochs(in(folder));
  options.loggers.add(files);
  {
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(files->names.empty());
  }
  CHECK(files->names == std::vector<std::string>{"tiny/" + kResult, "tiny/systems/1xcpu_composer.json"});
}

}  // namespace
}  // namespace composer::test::mlperf_callback_test
