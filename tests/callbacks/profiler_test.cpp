#include "composer/callbacks/profiler.h"

#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include <torch/csrc/autograd/profiler_kineto.h>

#include <nlohmann/json.hpp>

#include "composer/algorithms/label_smoothing.h"
#include "composer/callbacks/lr_monitor.h"
#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::profiler_test {
namespace {

namespace fs = std::filesystem;
using callbacks::Profiler, callbacks::ProfilerOptions;
using nlohmann::json;

// Batches 1 and 2 of 4, without operators.
ProfilerOptions two_of(const fs::path& folder) {
  return {.warmup = 1, .active = 2, .operators = false, .folder = folder.string(), .print = false};
}

void fit(const ProfilerOptions& profiler, const std::function<void(TrainerOptions&)>& change = {}) {
  TrainerOptions options = tiny_options();
  options.callbacks.add(Profiler(profiler));
  if (change) change(options);
  Trainer trainer(std::move(options));
  trainer.fit();
}

json read(const fs::path& path) {
  std::ifstream file(path);
  REQUIRE(file);
  return json::parse(file);
}

std::vector<json> spans_of(const json& trace, const std::string& name) {
  std::vector<json> found;
  for (const json& event : trace)
    if (event.at("ph") == "X" && event.at("name") == name) found.push_back(event);
  return found;
}

bool within(const json& inner, const json& outer, double slack = 0.0005) {
  const double begin = inner.at("ts"), end = begin + inner.at("dur").get<double>();
  const double outer_begin = outer.at("ts"), outer_end = outer_begin + outer.at("dur").get<double>();
  return begin >= outer_begin - slack && end <= outer_end + slack;
}

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST_CASE("A profiler writes the events and the calls of the batches of its schedule, one within another") {
  const Folder folder;
  fit(two_of(folder / "traces"), [](TrainerOptions& options) {
    options.callbacks.add(callbacks::LRMonitor());
    options.algorithms.add(algorithms::LabelSmoothing());
    options.device_train_microbatch_size = 2;
    options.max_duration = "2ep";
  });
  REQUIRE(files_in(folder / "traces") == std::set<std::string>{"ep0-ba3-rank0.json", "ep1-ba7-rank0.json"});
  const json trace = read(folder / "traces/ep1-ba7-rank0.json");
  const std::vector<json> batches = spans_of(trace, "event/batch"), forwards = spans_of(trace, "event/forward");
  REQUIRE(batches.size() == 2);
  CHECK(batches[0].at("args") == json{{"epoch", 1}, {"batch", 5}});
  CHECK(batches[1].at("args") == json{{"epoch", 1}, {"batch", 6}});
  REQUIRE(forwards.size() == 4);  // two microbatches each
  CHECK(within(forwards[0], batches[0]));
  CHECK_FALSE(within(forwards[0], batches[1]));
  CHECK(within(forwards[3], batches[1]));
  for (const char* name : {"event/dataloader", "event/train_batch", "event/loss", "event/backward"}) {
    CAPTURE(name);
    CHECK(spans_of(trace, name).size() >= 2);
  }
  CHECK(spans_of(trace, "callback/LRMonitor/event/batch_end").size() == 2);
  const std::vector<json> smoothing = spans_of(trace, "algorithm/LabelSmoothing/event/before_loss");
  REQUIRE(smoothing.size() == 4);
  CHECK(within(smoothing[0], batches[0]));
  // The fit and the epoch are open all the time, and end where the trace does.
  REQUIRE(spans_of(trace, "event/epoch").size() == 1);
  REQUIRE(spans_of(trace, "event/fit").size() == 1);
  CHECK(within(batches[1], spans_of(trace, "event/epoch")[0]));
  CHECK(within(spans_of(trace, "event/epoch")[0], spans_of(trace, "event/fit")[0]));
}

TEST_CASE("Spans of one thread are apart or one within the other, in the order in which a reader opens them") {
  const Folder folder;
  fit(two_of(folder / "traces"), [](TrainerOptions& options) {
    options.callbacks.add(callbacks::LRMonitor());
    options.eval_dataloader = tiny_loader(6, 4);
    options.eval_interval = "1ba";
  });
  std::vector<json> open;
  std::size_t seen = 0;
  for (const json& event : read(folder / "traces/ep0-ba3-rank0.json")) {
    if (event.at("ph") != "X") continue;
    while (!open.empty() && !within(event, open.back())) {
      const double end = open.back().at("ts").get<double>() + open.back().at("dur").get<double>();
      CHECK(event.at("ts").get<double>() >= end - 0.0005);
      open.pop_back();
    }
    open.push_back(event);
    ++seen;
  }
  CHECK(seen > 20);
}

TEST_CASE("A profiler ends its trace with the epoch, whether or not that says its length") {
  for (const bool sized : {true, false}) {
    CAPTURE(sized);
    struct Unsized final : Loader {
      explicit Unsized(std::shared_ptr<Loader> all) : all_(std::move(all)) {}
      void seek(std::int64_t epoch, std::int64_t batch) override { all_->seek(epoch, batch); }
      std::optional<Batch> next() override { return all_->next(); }
      std::optional<std::int64_t> batch_size() const override { return all_->batch_size(); }
      std::shared_ptr<Loader> all_;
    };
    const Folder folder;
    ProfilerOptions options = two_of(folder / "traces");
    options.active = 100;
    fit(options, [&](TrainerOptions& trainer) {
      if (!sized) trainer.train_dataloader = std::make_shared<Unsized>(tiny_loader(16, 4));
    });
    REQUIRE(files_in(folder / "traces") == std::set<std::string>{sized ? "ep0-ba4-rank0.json" : "ep1-ba4-rank0.json"});
    for (const auto& entry : fs::directory_iterator(folder / "traces"))
      CHECK(spans_of(read(entry.path()), "event/batch").size() == 3);
  }
}

TEST_CASE("libtorch's operators lie within the events that call them") {
  const Folder folder;
  ProfilerOptions options = two_of(folder / "traces");
  options.operators = options.record_shapes = true;
  fit(options);
  const json trace = read(folder / "traces/ep0-ba3-rank0.json");
  const std::vector<json> products = spans_of(trace, "aten::addmm"), forwards = spans_of(trace, "event/forward");
  REQUIRE(products.size() == 2);
  REQUIRE(forwards.size() == 2);
  CHECK(products[0].at("args").at("shapes").get<std::string>().find("[4, 4]") != std::string::npos);
  CHECK(products[0].at("cat") == "operator");
  for (std::size_t i = 0; i < 2; ++i) CHECK(within(products[i], forwards[i], /*slack=*/500));  // us: the clocks differ
}

TEST_CASE("A profiler reports where the time of a batch goes") {
  const Folder folder;
  ProfilerOptions options = two_of(folder / "traces");
  options.operators = true;
  const auto profiler = std::make_shared<Profiler>(options);
  TrainerOptions with = tiny_options();
  with.callbacks.add(profiler);
  Trainer trainer(std::move(with));
  CHECK(profiler->report().empty());
  trainer.fit();
  const std::string report = profiler->report();
  for (const char* part : {"2 batches", "event/backward", "event/forward", "aten::addmm", " %\n"}) {
    CAPTURE(part);
    CHECK(report.find(part) != std::string::npos);
  }
}

TEST_CASE("A trainer goes on without operators if somebody else uses libtorch's profiler") {
  namespace kineto = torch::autograd::profiler;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set activities{torch::profiler::impl::ActivityType::CPU};
  const Folder folder;
  ProfilerOptions options = two_of(folder / "traces");
  options.operators = true;
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
  {
    const Warnings warnings;
    fit(options);
    CHECK(warnings.say("no operators are recorded"));
  }
  const auto theirs = kineto::disableProfiler();
  CHECK(theirs->events().size() > 10);
  const json trace = read(folder / "traces/ep0-ba3-rank0.json");
  CHECK(spans_of(trace, "event/batch").size() == 2);
  CHECK(spans_of(trace, "aten::addmm").empty());
}

TEST_CASE("An error while a profiler records leaves it, and libtorch's profiler, ready for the next trainer") {
  const Folder folder;
  ProfilerOptions options = two_of(folder / "traces");
  options.operators = true;
  const auto profiler = std::make_shared<Profiler>(options);
  const auto fail = [](Event event, const State& state) {
    if (event == Event::AFTER_FORWARD && state.timestamp.batch == 2) throw std::runtime_error("stop");
  };
  {
    TrainerOptions with = tiny_options();
    with.callbacks.add(profiler);
    with.callbacks.add(At(fail));
    Trainer trainer(std::move(with));
    CHECK_THROWS_AS(trainer.fit(), RunError);
  }
  CHECK(files_in(folder / "traces") == std::set<std::string>{"ep0-ba2-rank0.json"});
  CHECK(spans_of(read(folder / "traces/ep0-ba2-rank0.json"), "aten::addmm").size() == 2);
  fs::remove_all(folder / "traces");
  TrainerOptions with = tiny_options();
  with.callbacks.add(profiler);
  Trainer(std::move(with)).fit();
  CHECK(spans_of(read(folder / "traces/ep0-ba3-rank0.json"), "aten::addmm").size() == 2);
}

TEST_CASE("A profiler refuses a folder with traces of another run, unless it may overwrite them") {
  const Folder folder;
  fit(two_of(folder / "traces"));
  CHECK_THROWS_WITH_AS(fit(two_of(folder / "traces")), doctest::Contains("has traces of another run"), RunError);
  ProfilerOptions options = two_of(folder / "traces");
  options.overwrite = true;
  fit(options);
}

TEST_CASE("A trace that cannot be written is a warning, and training goes on") {
  const Folder folder;
  std::ofstream(folder / "traces") << "a file";
  const Warnings warnings;
  fit(two_of(folder / "traces"));
  CHECK(warnings.say("Profiler: the trace "));
}

TEST_CASE("Traces of a filename without counts do not replace each other") {
  const Folder folder;
  ProfilerOptions options = two_of(folder / "traces");
  options.filename = "trace.json";
  fit(options, [](TrainerOptions& trainer) { trainer.max_duration = "3ep"; });
  CHECK(files_in(folder / "traces") == std::set<std::string>{"trace.json", "trace-2.json", "trace-3.json"});
}

TEST_CASE("The number of a trace comes before .json alone, and after a name with other dots") {
  const Folder folder;
  ProfilerOptions options = two_of(folder / "traces");
  options.filename = "lr0.1";
  fit(options, [](TrainerOptions& trainer) { trainer.max_duration = "2ep"; });
  CHECK(files_in(folder / "traces") == std::set<std::string>{"lr0.1", "lr0.1-2"});
}

TEST_CASE("A profiler that has recorded nothing says why") {
  const Folder folder;
  ProfilerOptions options = two_of(folder / "traces");
  const Warnings warnings;
  fit(options);
  CHECK(warnings.texts.empty());
  options.skip_first = 3;
  options.folder = (folder / "none").string();
  fit(options);
  CHECK(warnings.say("nothing was recorded"));
  CHECK(warnings.say("no epoch had more than 4 batches"));
}

TEST_CASE("A trace has counters of the machine, as many as were asked for") {
  const Folder folder;
  const auto counters_of = [&](ProfilerOptions options) {
    fit(options);
    std::map<std::string, int> counters;
    for (const json& event : read(fs::path(options.folder) / "ep0-ba3-rank0.json")) {
      if (event.at("ph") != "C") continue;
      ++counters[event.at("name")];
      for (const auto& [key, value] : event.at("args").items()) CHECK(value.is_number());
      CHECK(event.at("ts").get<double>() >= 0);
    }
    return counters;
  };
  ProfilerOptions options = two_of(folder / "none");
  options.sys_prof_cpu = false;
  CHECK(counters_of(options).empty());
  options = two_of(folder / "all");
  options.sys_prof_memory = options.sys_prof_disk = options.sys_prof_net = true;
  options.sys_prof_stats_thread_interval = Seconds(3600);
  const auto all = counters_of(options);
  for (const char* name : {"memory", "disk", "network"}) CHECK(all.at(name) == 2);  // at its begin and at its end
  CHECK_THROWS_AS(Profiler({.sys_prof_stats_thread_interval = Seconds(0)}), ConfigError);
}

TEST_CASE("A profiler keeps the newest traces") {
  const Folder folder;
  ProfilerOptions options = two_of(folder / "traces");
  options.num_traces_to_keep = 2;
  fit(options, [](TrainerOptions& trainer) { trainer.max_duration = "4ep"; });
  CHECK(files_in(folder / "traces") == std::set<std::string>{"ep2-ba11-rank0.json", "ep3-ba15-rank0.json"});
}

TEST_CASE("A profiler changes nothing of what is trained") {
  const auto trained = [](bool profiled) {
    const Folder folder;
    TrainerOptions options = tiny_options();
    ProfilerOptions profiler = two_of(folder / "traces");
    profiler.operators = true;
    if (profiled) options.callbacks.add(Profiler(profiler));
    Trainer trainer(std::move(options));
    trainer.fit();
    return weights_of(trainer);
  };
  CHECK(trained(true).equal(trained(false)));
}

}  // namespace
}  // namespace composer::test::profiler_test
