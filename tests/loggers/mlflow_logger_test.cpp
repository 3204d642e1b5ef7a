#include "composer/loggers/mlflow_logger.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "tests/support/doctest.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/folder.h"
#include "tests/support/sandbox.h"
#include "tests/support/saved_by.h"
#include "tests/support/warnings.h"

namespace composer::loggers::mlflow_logger_test {
namespace {

namespace fs = std::filesystem;
using test::saved_by;

struct Run {
  explicit Run(MLFlowLoggerOptions options) : mlflow(std::move(options)) { state.run_name = "r"; }
  explicit Run(const fs::path& folder) : Run(MLFlowLoggerOptions{.tracking_uri = folder.string()}) {}
  void init() { mlflow.init(state, logger); }
  void close() { mlflow.close(state, logger); }
  void fire(Event event) { mlflow.run_event(event, state, logger); }
  State state;
  MLFlowLogger mlflow;
  Logger logger{state, {&mlflow}};
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The folders of the runs in a file store, sorted.
std::vector<fs::path> runs_in(const fs::path& store) {
  std::vector<fs::path> runs;
  if (!fs::exists(store)) return runs;
  for (const auto& experiment : fs::directory_iterator(store))
    for (const auto& run : fs::directory_iterator(experiment.path()))
      if (run.is_directory()) runs.push_back(run.path());
  std::sort(runs.begin(), runs.end());
  return runs;
}

fs::path only_run(const fs::path& store) {
  const auto runs = runs_in(store);
  REQUIRE(runs.size() == 1);
  return runs[0];
}

struct Point {
  std::int64_t time = 0;
  std::string value;
  std::int64_t step = 0;
};

std::vector<Point> points(const fs::path& run, const std::string& key) {
  std::vector<Point> points;
  std::istringstream lines(content_of(run / "metrics" / key));
  for (Point point; lines >> point.time >> point.value >> point.step;) points.push_back(point);
  return points;
}

std::vector<std::int64_t> steps(const fs::path& run, const std::string& key) {
  std::vector<std::int64_t> steps;
  for (const Point& point : points(run, key)) steps.push_back(point.step);
  return steps;
}

// The value of a line of meta.yaml.
std::string meta(const fs::path& folder, const std::string& key) {
  std::istringstream lines(content_of(folder / "meta.yaml"));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + ": ")) return line.substr(key.size() + 2);
  return "missing";
}

using Steps = std::vector<std::int64_t>;

TEST_CASE("MLFlowLogger writes an experiment and a run into a folder, as MLflow's file store does") {
  const test::Folder folder;
  Run run(MLFlowLoggerOptions{.experiment_name = "it's",
                              .run_name = "n",
                              .tags = {{"k#", "v"}},
                              .run_group = "g",
                              .tracking_uri = "file://" + (folder / "a/mlruns").string()});
  run.init();
  const std::string id = run.mlflow.run_id(), experiment = run.mlflow.experiment_id();
  const fs::path where = only_run(folder / "a/mlruns");
  CHECK(meta(where, "status") == "1");
  CHECK(meta(where, "end_time") == "null");
  run.close();
  CHECK(run.mlflow.run_id().empty());
  CHECK(std::regex_match(id, std::regex("[0-9a-f]{32}")));
  CHECK(std::regex_match(experiment, std::regex("[1-9][0-9]{17}")));
  CHECK(where == folder / "a/mlruns" / experiment / id);
  CHECK(meta(where.parent_path(), "name") == "'it''s'");
  CHECK(meta(where.parent_path(), "lifecycle_stage") == "active");
  CHECK(meta(where, "run_id") == join('\'', id, '\''));
  CHECK(meta(where, "run_name") == "'n'");
  CHECK(meta(where, "status") == "3");
  CHECK(std::stoll(meta(where, "end_time")) >= std::stoll(meta(where, "start_time")));
  CHECK(content_of(where / "tags/mlflow.runName") == "n");
  CHECK(content_of(where / "tags/run_name") == "r");
  CHECK(content_of(where / "tags/run_group") == "g");
  CHECK(content_of(where / "tags/k_") == "v");
  Run second(MLFlowLoggerOptions{.experiment_name = "it's", .tracking_uri = folder / "a/mlruns"});
  second.init();
  CHECK(second.mlflow.experiment_id() == experiment);
  second.close();
}

// That of a key which cannot have its own name, since that is the folder of others or below a file.
fs::path file_of(const fs::path& folder, const std::string& flat) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(flat + '_')) return entry.path();
  return folder / flat;
}

TEST_CASE("Without options MLFlowLogger takes folder and experiment from the environment, or its defaults") {
  const test::Sandbox sandbox;
  {
    Run run(MLFlowLoggerOptions{});
    run.init();
    run.close();
  }
  CHECK(meta(only_run("mlruns").parent_path(), "name") == "'my-mlflow-experiment'");
  ::setenv("MLFLOW_TRACKING_URI", "other", 1);
  ::setenv("MLFLOW_EXPERIMENT_NAME", "e", 1);
  {
    Run run(MLFlowLoggerOptions{});
    run.init();
    run.close();
  }
  ::unsetenv("MLFLOW_TRACKING_URI");
  ::unsetenv("MLFLOW_EXPERIMENT_NAME");
  CHECK(meta(only_run("other").parent_path(), "name") == "'e'");
}

TEST_CASE("MLFlowLogger writes one line of time, value and step for each value of a metric") {
  const test::Folder folder;
  Run run(folder.path());
  const double infinity = std::numeric_limits<double>::infinity();
  run.logger.log_metrics({{"loss/train", at::full({}, 0.25)}, {"on", true}, {"count", std::int64_t{7}}}, 3);
  run.logger.log_metrics({{"loss/train", 1e-300}, {"bad", std::nan("")}}, 4);
  run.logger.log_metrics({{"loss/train", -infinity}, {"note", std::string("text")}}, 5);
  run.close();
  const fs::path where = only_run(folder.path());
  const auto losses = points(where, "loss/train");
  REQUIRE(losses.size() == 3);
  CHECK(losses[0].value == "0.25");
  CHECK(losses[0].step == 3);
  CHECK(losses[0].time > 1'700'000'000'000);
  CHECK(losses[1].value == "1e-300");
  CHECK(losses[2].value == "-inf");
  CHECK(points(where, "bad")[0].value == "nan");
  CHECK(points(where, "on")[0].value == "1");
  CHECK(points(where, "count")[0].value == "7");
  CHECK(content_of(where / "tags/note") == "text");
}

TEST_CASE("MLFlowLogger keeps few files open, and writes to all, also after they were removed") {
  const test::Folder folder;
  Run run(folder.path());
  const auto log = [&](std::int64_t step) {
    for (int i = 0; i < 100; ++i) {
      const std::string key = join("m", i);
      run.logger.log_metrics({{key, static_cast<double>(i) + static_cast<double>(step)}}, step);
    }
    run.mlflow.flush();
  };
  log(1);
  log(2);
  const fs::path metrics = only_run(folder.path()) / "metrics";
  std::ptrdiff_t open = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    open += fs::read_symlink(entry.path(), gone).parent_path() == metrics ? 1 : 0;
  }
  CHECK(open >= 1);
  CHECK(open <= 64);
  for (const char* name : {"m0", "m99"}) CHECK(std::ranges::count(content_of(metrics / name), '\n') == 2);
  for (const char* name : {"m0", "m99"}) fs::remove(metrics / name);
  log(3);
  run.close();
  for (const char* name : {"m0", "m99"}) CHECK(content_of(metrics / name).ends_with(" 3\n"));
  CHECK(std::ranges::count(content_of(metrics / "m50"), '\n') == 3);
}

TEST_CASE("Keys that MLflow does not allow are renamed by MLFlowLogger") {
  struct Row {
    std::string key, file;
  };
  for (const auto& [key, file] : {
           Row{"loss/train-1.x y:z_", "loss/train-1.x y:z_"},
           Row{"a#b(c)", "a_b_c_"},
           Row{"é", "é"},
           Row{"../../x", "x"},
           Row{"/a//b/./c/", "a/b/c"},
           Row{"..", "_"},
           Row{"bad\xff", "bad_"},
           Row{std::string(300, 'a'), std::string(250, 'a')},
           Row{std::string(249, 'a') + "/b", std::string(249, 'a')},
       }) {
    CAPTURE(key);
    const test::Folder folder;
    Run run(folder.path());
    run.logger.log_metrics({{key, 1.0}}, 1);
    run.close();
    CHECK(steps(only_run(folder.path()), file) == Steps{1});
  }
}

TEST_CASE("Keys with symbols, of great length, or that are folders of others cost no key its values") {
  const test::Folder folder;
  const test::Warnings warnings;
  Run run(folder.path());
  std::string very_long;
  for (int i = 0; i < 200; ++i) very_long += "日";
  for (std::int64_t step = 0; step < 3; ++step) {
    const auto value = static_cast<double>(step);
    if (step == 0) run.logger.log_hyperparameters({{"b/c", 0.5}, {"b", 0.5}, {"d", 0.5}});
    run.logger.log_metrics(
        {{"acc", value}, {"acc/top1", value}, {very_long, value}, {"d\u00e9/\u2713", value}, {"loss", value}}, step);
  }
  run.close();
  const fs::path metrics = only_run(folder.path()) / "metrics";
  const auto lines = [&](const fs::path& path) {
    const std::string text = content_of(metrics / path);
    return std::ranges::count(text, '\n');
  };
  CHECK(lines("loss") == 3);
  CHECK(lines("d\u00e9/_") == 3);
  CHECK(lines(very_long.substr(0, 249)) == 3);
  const fs::path params = only_run(folder.path()) / "params";
  for (const fs::path& param : {params / "b", file_of(params, "b_c"), params / "d"}) CHECK(content_of(param) == "0.5");
  CHECK(lines("acc") == 3);
  CHECK(lines(file_of(metrics, "acc_top1")) == 3);
  CHECK(warnings.texts.empty());
}

TEST_CASE("MLFlowLogger gives no two keys one file, in whichever order they come") {
  std::vector<std::string> keys = {"acc", "acc/top1", "acc_", "acc_top1"};
  std::ranges::sort(keys);
  do {
    const test::Folder folder;
    Run run(MLFlowLoggerOptions{.tracking_uri = folder.path()});
    for (std::size_t i = 0; i < keys.size(); ++i) {
      run.logger.log_hyperparameters({{keys[i], static_cast<double>(i)}});
      run.logger.log_metrics({{keys[i], static_cast<double>(i)}}, 0);
    }
    run.close();
    for (const char* part : {"metrics", "params"}) {
      std::size_t files = 0;
      for (const auto& entry : fs::recursive_directory_iterator(only_run(folder.path()) / part)) {
        if (!entry.is_regular_file()) continue;
        ++files;
        const std::string text = content_of(entry.path());
        CHECK(std::ranges::count(text, '\n') == (part == std::string("metrics") ? 1 : 0));
      }
      CHECK(files == keys.size());
    }
  } while (std::ranges::next_permutation(keys).found);
}

TEST_CASE("MLFlowLogger leaves out values that stay, renames metrics, and ignores keys by pattern") {
  const test::Folder folder;
  Run run(MLFlowLoggerOptions{.tracking_uri = folder.path(),
                              .rename_metrics = {{"a", "b/c"}},
                              .ignore_metrics = {"time/*"},
                              .ignore_hyperparameters = {"s?cret"},
                              .log_duplicated_metric_every_n_steps = 3});
  for (std::int64_t step = 0; step < 8; ++step)
    run.logger.log_metrics({{"a", std::nan("")}, {"up", step}, {"time/x", step}}, step);
  run.logger.log_metrics({{"a", 1.0}}, 8);
  run.logger.log_hyperparameters({{"secret", 1.0}, {"lr", 1.0}});
  run.close();
  const fs::path where = only_run(folder.path());
  CHECK(steps(where, "b/c") == Steps{0, 3, 6, 8});
  CHECK(steps(where, "up").size() == 8);
  CHECK_FALSE(fs::exists(where / "metrics/a"));
  CHECK_FALSE(fs::exists(where / "metrics/time"));
  CHECK_FALSE(fs::exists(where / "params/secret"));
  CHECK(content_of(where / "params/lr") == "1");
}

TEST_CASE("A value that comes under two keys of one name is left out by MLFlowLogger as if it came under one") {
  const test::Folder folder;
  Run run(MLFlowLoggerOptions{.tracking_uri = folder.path(), .rename_metrics = {{"a", "x"}, {"b", "x"}}});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.logger.log_metrics({{"b", 1.0}}, 2);
  run.logger.log_metrics({{"b", 2.0}}, 3);
  run.close();
  CHECK(steps(only_run(folder.path()), "x") == Steps{1, 3});
}

TEST_CASE("Hyperparameters become params, which keep their first value; later values become tags") {
  const test::Folder folder;
  Run run(folder.path());
  run.logger.log_hyperparameters({{"lr", 0.5}, {"bn", true}, {"n", std::int64_t{3}}, {"name", std::string("x\ny")}});
  run.logger.log_hyperparameters({{"lr", 0.5}, {"n", std::int64_t{4}}, {"long", std::string(6001, 'x') + "ä"}});
  run.close();
  const fs::path where = only_run(folder.path());
  CHECK(content_of(where / "params/lr") == "0.5");
  CHECK(content_of(where / "params/bn") == "True");
  CHECK(content_of(where / "params/n") == "3");
  CHECK(content_of(where / "params/name") == "x\ny");
  CHECK(content_of(where / "params/long") == std::string(6000, 'x'));
  CHECK(content_of(where / "tags/n") == "4");
  CHECK_FALSE(fs::exists(where / "tags/lr"));
}

TEST_CASE("MLFlowLogger writes images, masks, tables, histograms and files as artifacts") {
  const test::Folder folder;
  std::ofstream(folder / "plot.svg") << "<svg/>";
  Run run(MLFlowLoggerOptions{.tracking_uri = folder / "mlruns", .log_artifacts = true, .max_images = 2});
  run.logger.log_images("eval/i", {.images = at::zeros({3, 1, 2, 2}), .masks = {{"m", at::zeros({3, 2, 2}, at::kInt)}}},
                        7);
  run.logger.log_table("t", {{"x", "y"}, {{1.5, std::string("z")}}}, 7);
  run.logger.log_histogram("h", LogHistogram::of({5, 0.5}, {0, 1, 3}), 7);
  run.logger.upload_file({.path = folder / "plot.svg", .name = "../plots/{run_name}.svg"});
  run.close();
  const fs::path artifacts = only_run(folder / "mlruns") / "artifacts";
  for (const char* name : {"eval/i/7_0.png", "eval/i/7_1.png", "eval/i/7_0_m.png", "eval/i/7_1_m.png"})
    CHECK(content_of(artifacts / "images" / name).starts_with("\x89PNG"));
  CHECK_FALSE(fs::exists(artifacts / "images/eval/i/7_2.png"));
  CHECK(content_of(artifacts / "tables/t/7.json") == R"({"columns":["x","y"],"data":[[1.5,"z"]]})");
  CHECK(content_of(artifacts / "histograms/h/7.json") == R"({"counts":[5,0.5],"edges":[0,1,3]})");
  CHECK(content_of(artifacts / "plots/r.svg") == "<svg/>");
}

TEST_CASE("A run of MLFlowLogger ends as FINISHED, or as FAILED after what did not end") {
  for (const bool ends : {true, false}) {
    const test::Folder folder;
    Run run(folder.path());
    run.init();
    run.fire(Event::FIT_START);
    run.logger.log_metrics({{"a", 1.0}}, 1);
    if (ends) run.fire(Event::FIT_END);
    if (ends) CHECK(steps(only_run(folder.path()), "a") == Steps{1});  // flushed
    run.close();
    CHECK(meta(only_run(folder.path()), "status") == (ends ? "3" : "4"));
  }
}

TEST_CASE("MLFlowLogger writes nothing for ranks other than 0") {
  const test::Folder folder;
  Run run(folder / "mlruns");
  run.state.rank = 1;
  run.logger.log_metrics({{"a", 1.0}});
  run.close();
  CHECK_FALSE(fs::exists(folder / "mlruns"));
}

void load(Run& run, const StateDict& checkpoint) {
  run.state.resumes = true;
  run.init();
  StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
  run.mlflow.visit_state(visit);
  run.fire(Event::AFTER_LOAD);
}

// Since times of metrics are compared, which count milliseconds.
void wait_for_next_millisecond() {
  const auto now = [] { return std::chrono::system_clock::now().time_since_epoch() / std::chrono::milliseconds(1); };
  for (const auto begin = now(); now() == begin;) continue;
}

TEST_CASE("A resumed run continues its MLflow run, without what was logged after the checkpoint") {
  const test::Folder folder;
  Run killed(folder.path());
  killed.logger.log_hyperparameters({{"lr", 0.5}});
  killed.fire(Event::FIT_START);
  killed.logger.log_metrics({{"a", 1.0}}, 1);
  wait_for_next_millisecond();
  const StateDict checkpoint = saved_by(killed.mlflow);
  wait_for_next_millisecond();
  killed.logger.log_metrics({{"a", 2.0}, {"late", 2.0}}, 2);
  const std::string id = killed.mlflow.run_id();
  killed.close();
  Run resumed(folder.path());
  load(resumed, checkpoint);
  resumed.logger.log_hyperparameters({{"lr", 0.25}});
  CHECK(meta(only_run(folder.path()), "status") == "4");  // not changed before it trains
  resumed.fire(Event::FIT_START);
  CHECK(resumed.mlflow.run_id() == id);
  CHECK(meta(only_run(folder.path()), "status") == "1");
  resumed.logger.log_metrics({{"a", 2.5}}, 2);
  resumed.fire(Event::FIT_END);
  resumed.close();
  const fs::path where = only_run(folder.path());
  CHECK(steps(where, "a") == Steps{1, 2});
  CHECK(points(where, "a")[1].value == "2.5");
  CHECK_FALSE(fs::exists(where / "metrics/late"));
  CHECK(content_of(where / "params/lr") == "0.5");
  CHECK(content_of(where / "tags/lr") == "0.25");
  CHECK(meta(where, "status") == "3");
  CHECK(meta(where, "run_name") == "'r'");
}

TEST_CASE("A run of MLFlowLogger goes on without what was logged right after the checkpoint") {
  const test::Folder folder;
  Run killed(folder.path());
  killed.logger.log_metrics({{"a", 1.0}}, 1);
  const StateDict checkpoint = saved_by(killed.mlflow);
  killed.logger.log_metrics({{"a", 2.0}}, 2);
  killed.close();
  Run resumed(folder.path());
  load(resumed, checkpoint);
  resumed.fire(Event::FIT_START);
  resumed.close();
  CHECK(steps(only_run(folder.path()), "a") == Steps{1});
}

TEST_CASE("Points of the millisecond in which a checkpoint was written are kept by MLFlowLogger, and later ones not") {
  const test::Folder folder;
  Run killed(folder.path());
  killed.logger.log_metrics({{"a", 1.0}}, 1);
  StateDict checkpoint = saved_by(killed.mlflow);
  killed.close();
  std::int64_t time = 0;
  StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
  visit("time", time);
  const fs::path file = only_run(folder.path()) / "metrics/a";
  std::ofstream(file, std::ios::app) << std::to_string(time) + " 2 2\n" + std::to_string(time + 1) + " 3 3\n";
  Run resumed(folder.path());
  load(resumed, checkpoint);
  resumed.fire(Event::FIT_START);
  resumed.close();
  CHECK(steps(only_run(folder.path()), "a") == Steps{1, 2});
}

TEST_CASE("A clock that is set back costs MLFlowLogger no point, and leaves none twice") {
  const test::Folder folder;
  Run first(folder.path());
  first.logger.log_metrics({{"a", 1.0}}, 1);
  StateDict checkpoint = saved_by(first.mlflow);
  first.close();
  // As if the clock had been ahead until then.
  std::int64_t time = 0;
  StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
  visit("time", time);
  time += 3'600'000;
  checkpoint["time"] = time;
  const fs::path file = only_run(folder.path()) / "metrics/a";
  std::ofstream(file) << time << " 1 1\n";
  Run second(folder.path());
  load(second, checkpoint);
  second.fire(Event::FIT_START);
  second.logger.log_metrics({{"a", 2.0}}, 2);
  const StateDict later = saved_by(second.mlflow);
  second.logger.log_metrics({{"a", 3.0}}, 3);
  second.close();
  CHECK(steps(only_run(folder.path()), "a") == Steps{1, 2, 3});
  Run third(folder.path());
  load(third, later);
  third.fire(Event::FIT_START);
  third.close();
  CHECK(steps(only_run(folder.path()), "a") == Steps{1, 2});
}

TEST_CASE("A value that stays is left out by MLFlowLogger after a resume as before") {
  const test::Folder folder;
  Run killed(folder.path());
  killed.logger.log_metrics({{"a", 0.1}}, 1);
  const StateDict checkpoint = saved_by(killed.mlflow);
  killed.close();
  Run resumed(folder.path());
  load(resumed, checkpoint);
  resumed.fire(Event::FIT_START);
  resumed.logger.log_metrics({{"a", 0.1}}, 2);
  resumed.logger.log_metrics({{"a", 0.2}}, 3);
  resumed.close();
  CHECK(steps(only_run(folder.path()), "a") == Steps{1, 3});
}

TEST_CASE("A resumed run whose MLflow run is missing begins another, and says so") {
  const test::Folder folder;
  Run killed(folder.path());
  killed.init();
  StateDict checkpoint = saved_by(killed.mlflow);
  killed.close();
  const fs::path old = only_run(folder.path());
  for (const bool forged : {false, true}) {
    if (forged)
      checkpoint["run_id"] = std::string("../x");
    else
      fs::remove_all(old);
    const test::Warnings warnings;
    Run resumed(folder.path());
    load(resumed, checkpoint);
    resumed.fire(Event::FIT_START);
    CHECK(resumed.mlflow.run_id().size() == 32);
    CHECK(resumed.mlflow.run_id() != old.filename());
    resumed.close();
    CHECK(warnings.say("a new run is begun"));
  }
}

TEST_CASE("MLFlowLogger keeps whole lines alone on a full disk, continues later, and says what is missing") {
  const test::Folder folder;
  const test::Warnings warnings;
  Run run(folder.path());
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.mlflow.flush();
  {
    const test::FileSizeLimit limit(fs::file_size(only_run(folder.path()) / "metrics/a") + 10);
    run.logger.log_metrics({{"a", 2.0}}, 2);
    run.logger.log_metrics({{"a", 3.0}}, 3);
    run.mlflow.flush();
  }
  run.logger.log_metrics({{"a", 4.0}}, 4);
  run.close();
  CHECK(steps(only_run(folder.path()), "a") == Steps{1, 4});
  CHECK(warnings.say("2 records could not be written and are missing in"));
}

TEST_CASE("MLFlowLogger rejects bad options, and at INIT a folder that cannot be written") {
  const auto rejected = [](MLFlowLoggerOptions options) {
    CHECK_THROWS_AS(MLFlowLogger(std::move(options)), ConfigError);
  };
  rejected({.tracking_uri = "sqlite:///a.db"});
  rejected({.tracking_uri = "databricks"});
  rejected({.tracking_uri = "file:"});
  rejected({.fallback_folder = "http://localhost"});
  rejected({.log_duplicated_metric_every_n_steps = 0});
  rejected({.max_images = 0});
  rejected({.attempts = 0});
  rejected({.flush_interval = Seconds(-1)});
  const test::Folder folder;
  std::ofstream(folder / "file") << "x";
  Run run(folder / "file");
  CHECK_THROWS_WITH_AS(run.init(), doctest::Contains("cannot be written"), ConfigError);
}

}  // namespace
}  // namespace composer::loggers::mlflow_logger_test
