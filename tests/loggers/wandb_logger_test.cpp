#include "composer/loggers/wandb_logger.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/wandb_writer.h"
#include "tests/loggers/wandb_reader.h"
#include "tests/loggers/wandb_run.h"
#include "tests/support/doctest.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/folder.h"
#include "tests/support/saved_by.h"
#include "tests/support/warnings.h"

namespace composer::loggers::wandb_logger_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Message;
using test::WandBFile;
using Steps = std::vector<std::int64_t>;

using Run = ScriptedWandBRun;

TEST_CASE("The test's reader of W&B's files rejects a changed byte and a file that is cut off") {
  const test::Folder folder;
  Run run(folder.path());
  run.init();
  run.close();
  const fs::path file = test::wandb_file_in(test::wandb_runs(folder.path())[0]);
  CHECK_NOTHROW(test::read_wandb_file(file));
  fs::resize_file(file, fs::file_size(file) - 1);
  CHECK_THROWS(test::read_wandb_file(file));
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(20).put('!');
  CHECK_THROWS(test::read_wandb_file(file));
  CHECK(test::slow_crc32("123456789") == 0xCBF43926);
}

TEST_CASE("WandBLogger writes a folder that wandb sync takes, and a run with what the options say") {
  const test::Folder folder;
  Run run(WandBLoggerOptions{.project = "p q",
                             .group = "g",
                             .name = "n",
                             .entity = "e",
                             .tags = {"a", "b"},
                             .job_type = "train",
                             .notes = "ä",
                             .folder = folder / "x/{run_name}"});
  run.init();
  const std::string id = run.wandb.run_id(), where = run.wandb.run_folder();
  run.close();
  CHECK(run.wandb.run_id().empty());
  const auto runs = test::wandb_runs(folder / "x/r");
  REQUIRE(runs.size() == 1);
  CHECK(runs[0] == where);
  CHECK(std::regex_match(runs[0].filename().string(), std::regex(R"(offline-run-\d{8}_\d{6}-)" + id)));
  CHECK(std::regex_match(id, std::regex("[0-9a-z]{8}")));
  const WandBFile file = test::read_wandb_file(test::wandb_file_in(runs[0]));
  CHECK(file.records[0].kind == 21);
  REQUIRE(file.records[1].kind == 17);
  CHECK(file.records[2].kind == 26);
  const Message made = file.run();
  CHECK(made.text(1) == id);
  CHECK(made.text(2) == "e");
  CHECK(made.text(3) == "p q");
  CHECK(made.text(6) == "g");
  CHECK(made.text(7) == "train");
  CHECK(made.text(8) == "n");
  CHECK(made.text(9) == "ä");
  CHECK(made.all(10).size() == 2);
  CHECK(made.message(17).whole(1) > 1'700'000'000);
  CHECK(file.exit_code() == 0);
}

TEST_CASE("WandBLogger names a run without a name after run_name, and leaves out what is not set") {
  const test::Folder folder;
  Run run(folder.path());
  run.init();
  run.close();
  const WandBFile file = only_run(folder.path());
  CHECK(file.run().text(8) == "r");
  for (const int field : {2, 3, 6, 7, 9, 10}) CHECK_FALSE(file.run().has(field));
}

TEST_CASE("Keys, names, notes and tags that are not UTF-8 are written with replacement characters by WandBLogger") {
  const test::Folder folder;
  Run run(WandBLoggerOptions{.group = "g\xe9", .tags = {"t\xff"}, .notes = "n\xc3", .folder = folder.path()});
  run.state.run_name = "r\xe9";
  run.init();
  run.logger.log_metrics({{"acc/caf\xe9", 0.5}, {"caf\xc3\xa9", 1.5}}, 1);
  run.logger.log_hyperparameters({{"p\xe9", true}});
  run.close();
  const WandBFile file = only_run(folder.path());
  CHECK(file.run().text(6) == "g\xef\xbf\xbd");
  CHECK(file.run().text(8) == "r\xef\xbf\xbd");
  CHECK(file.steps("acc/caf\xef\xbf\xbd") == std::vector<std::int64_t>{1});
  CHECK(file.steps("caf\xc3\xa9") == std::vector<std::int64_t>{1});
  CHECK(file.config["p\xef\xbf\xbd"] == true);
}

TEST_CASE("WandBLogger writes one row of history for each step, and their last values as the summary") {
  const test::Folder folder;
  Run run(folder.path());
  const double infinity = std::numeric_limits<double>::infinity();
  run.logger.log_metrics({{"a", 0.5}, {"t", at::full({}, 0.25)}}, 0);
  run.logger.log_metrics({{"b", std::int64_t{7}}, {"a", 1.5}}, 0);
  run.logger.log_metrics({{"nan", std::nan("")}, {"inf", -infinity}, {"on", true}, {"text", std::string("\"ä")}}, 3);
  run.logger.log_metrics({{"a", 2.5}, {"_step", 9.0}}, 4);
  run.close();
  const WandBFile file = only_run(folder.path());
  REQUIRE(file.history.size() == 3);
  const json& first = file.history[0];
  CHECK(first["a"] == 1.5);
  CHECK(first["b"] == 7);
  CHECK(first["t"] == 0.25);
  CHECK(first["_step"] == 0);
  CHECK(first["_timestamp"] > 1.7e9);
  CHECK(first["_runtime"] >= 0);
  CHECK(file.history[1].value("nan", "") == "NaN");
  CHECK(file.history[1]["inf"] == "-Infinity");
  CHECK(file.history[1]["on"] == true);
  CHECK(file.history[1]["text"] == "\"ä");
  CHECK(file.history[2]["metric/_step"] == 9.0);
  CHECK(file.history[2]["_step"] == 4);
  CHECK(file.summary["a"] == 2.5);
  CHECK(file.summary["b"] == 7);
  CHECK(file.summary["_step"] == 4);
  CHECK(file.summary["_wandb.runtime"] >= 0);
}

TEST_CASE("WandBLogger writes the summary once for many rows") {
  const test::Folder folder;
  Run run(folder.path());
  for (std::int64_t step = 0; step < 100; ++step)
    run.logger.log_metrics({{"a", step}, {step % 2 == 0 ? "even" : "odd", step}}, step);
  StateDict checkpoint;
  StateVisitor visit = StateVisitor::saving(checkpoint);
  run.wandb.visit_state(visit);  // waits until all is written
  const WandBFile file = only_run(folder.path());
  CHECK(file.history.size() == 100);
  CHECK(std::ranges::count(file.records, 3, &WandBFile::Record::kind) < 50);
  CHECK(file.summary["a"] == 99);
  CHECK(file.summary["even"] == 98);
  CHECK(file.summary["odd"] == 99);
  CHECK(file.summary["_step"] == 99);
  run.close();
  CHECK(only_run(folder.path()).summary["odd"] == 99);
}

TEST_CASE("Steps of WandBLogger only rise: a lower step is part of the current one") {
  const test::Folder folder;
  Run run(folder.path());
  run.logger.log_metrics({{"a", 1.0}}, 5);
  run.logger.log_metrics({{"b", 1.0}}, 2);
  run.logger.log_metrics({{"a", 2.0}}, 6);
  run.wandb.flush();
  run.logger.log_metrics({{"b", 2.0}}, 6);
  run.logger.log_metrics({{"a", 3.0}}, 7);
  run.logger.log_metrics({{"a", 4.0}}, 8);
  run.close();
  const WandBFile file = only_run(folder.path());
  CHECK(file.steps("a") == Steps{5, 6, 7, 8});
  CHECK(file.steps("b") == Steps{5, 6});
}

TEST_CASE("A row that is waiting for more of its step is in the file after flush(), which an error calls") {
  const test::Folder folder;
  Run run(folder.path());
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.wandb.flush();
  CHECK(only_run(folder.path()).steps("a") == Steps{1});
  CHECK(only_run(folder.path()).exit_code() == -1);
}

TEST_CASE("A row that was flushed is in the file at every moment, whatever of its step follows") {
  const test::Folder folder;
  Run run({.folder = folder.path(), .flush_interval = Seconds(0)});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.wandb.flush();
  run.logger.log_metrics({{"b", 1.0}}, 1);
  run.logger.log_hyperparameters({{"done", true}});
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!only_run(folder.path()).config.contains("done") && std::chrono::steady_clock::now() < latest)
    CHECK(only_run(folder.path()).steps("a") == Steps{1});
  CHECK(only_run(folder.path()).steps("a") == Steps{1});
  CHECK(only_run(folder.path()).config.contains("done"));
  run.wandb.flush();
  CHECK(only_run(folder.path()).steps("b") == Steps{1});
  run.logger.log_metrics({{"a", 2.0}}, 2);
  run.close();
  CHECK(only_run(folder.path()).steps("a") == Steps{1, 2});
  CHECK(only_run(folder.path()).steps("b") == Steps{1});
}

TEST_CASE("A row that was flushed stays in the file when a full disk refuses what of its step follows") {
  const test::Folder folder;
  const test::Warnings warnings;
  Run run(folder.path());
  const auto marked_size = [&] {
    const StateDict checkpoint = test::saved_by(run.wandb);
    StateVisitor visit = StateVisitor::loading(checkpoint, "wandb");
    WandBMark mark;
    mark.visit_state(visit);
    return mark.file.size;
  };
  run.init();
  const std::int64_t before = marked_size();
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.wandb.flush();
  const fs::path file = test::wandb_file_in(run.wandb.run_folder());
  {
    const test::FileSizeLimit limit(fs::file_size(file) + 10);
    for (const char* key : {"b", "c"}) {
      run.logger.log_metrics({{key, std::string(100, 'x')}}, 1);
      run.wandb.flush();
      CHECK(only_run(folder.path()).steps("a") == Steps{1});
      CHECK(marked_size() == before);  // of which the row, which a resumed run writes again, is no part
    }
  }
  run.logger.log_metrics({{"d", 4.0}}, 1);
  run.wandb.flush();
  CHECK(only_run(folder.path()).steps("d") == Steps{1});
  run.logger.log_metrics({{"a", 2.0}}, 2);
  run.close();
  const WandBFile written = only_run(folder.path());
  CHECK(written.steps("a") == Steps{1, 2});
  CHECK(written.steps("d") == Steps{1});
  CHECK(written.history.size() == 2);
  CHECK(written.summary["d"] == 4.0);
}

TEST_CASE("The row of the last step is in the file when a fit has ended, and takes what is logged after it") {
  const test::Folder folder;
  Run run(folder.path());
  run.fire(Event::FIT_START);
  run.logger.log_metrics({{"loss", 2.0}}, 7);
  run.logger.log_metrics({{"loss", 1.0}}, 8);
  run.fire(Event::FIT_END);
  CHECK(only_run(folder.path()).steps("loss") == Steps{7, 8});  // as if the process were killed now
  CHECK(only_run(folder.path()).summary["loss"] == 1.0);
  run.logger.log_hyperparameters({{"done", true}});
  run.logger.log_metrics({{"after", 5.0}}, 8);
  run.wandb.flush();
  run.logger.log_metrics({{"lower", 6.0}}, 3);
  run.fire(Event::FIT_START);
  run.logger.log_metrics({{"loss", 0.5}}, 9);
  run.fire(Event::FIT_END);
  run.close();
  const WandBFile file = only_run(folder.path());
  CHECK(file.steps("loss") == Steps{7, 8, 9});
  CHECK(file.steps("after") == Steps{8});
  CHECK(file.steps("lower") == Steps{8});
  CHECK(file.history.size() == 3);
  CHECK(file.config["done"] == true);
  CHECK(file.summary["after"] == 5.0);
  CHECK(file.summary["loss"] == 0.5);
  CHECK(file.summary["_step"] == 9);
}

TEST_CASE("WandBLogger keeps the metrics of the evaluation after the fit in the row of the last step") {
  const test::Folder folder;
  Run run(folder.path());
  run.fire(Event::FIT_START);
  run.logger.log_metrics({{"loss", 1.0}}, 8);
  run.fire(Event::FIT_END);
  run.fire(Event::EVAL_BEFORE_ALL);
  run.logger.log_metrics({{"accuracy", 0.5}}, 8);
  run.fire(Event::EVAL_AFTER_ALL);
  run.close();
  const WandBFile file = only_run(folder.path());
  REQUIRE(file.history.size() == 1);
  CHECK(file.history[0]["loss"] == 1.0);
  CHECK(file.history[0]["accuracy"] == 0.5);
}

TEST_CASE("WandBLogger writes hyperparameters as the config") {
  const test::Folder folder;
  Run run(folder.path());
  run.logger.log_hyperparameters({{"lr", 0.5}, {"name", std::string("x")}});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.logger.log_hyperparameters({{"lr", 0.25}, {"late", true}});
  run.close();
  const WandBFile file = only_run(folder.path());
  CHECK(file.config == json{{"lr", 0.25}, {"name", "x"}, {"late", true}});
}

TEST_CASE("WandBLogger writes images as files below media/, named after key, step and content") {
  const test::Folder folder;
  Run run(WandBLoggerOptions{.folder = folder.path().string(), .max_images = 2});
  run.logger.log_images("one/i", {.images = at::zeros({3, 4, 5})}, 7);
  run.logger.log_images("some", {.images = at::rand({3, 1, 4, 5})}, 7);
  run.logger.log_images("../../out", {.images = at::zeros({4, 5})}, 8);
  const fs::path where = run.wandb.run_folder();
  run.close();
  const WandBFile file = only_run(folder.path());
  CHECK(file.files.size() == 4);
  for (const std::string& path : file.files) {
    CAPTURE(path);
    CHECK(path.starts_with("media/images/"));
    CHECK(path.find("..") == std::string::npos);
    CHECK(test::content_of(where / "files" / path).starts_with("\x89PNG"));
  }
  const json one = file.history[0]["one/i"];
  CHECK(one["_type"] == "image-file");
  CHECK(one["format"] == "png");
  CHECK(one["width"] == 5);
  CHECK(one["height"] == 4);
  CHECK(one["path"] == "media/images/one/i_7_" + std::string(one["sha256"]).substr(0, 20) + ".png");
  CHECK(one["size"] == fs::file_size(where / "files" / std::string(one["path"])));
  const json some = file.history[0]["some"];
  CHECK(some["_type"] == "images/separated");
  CHECK(some["count"] == 2);
  CHECK(some["filenames"].size() == 2);
  CHECK(some["width"] == 5);
  CHECK(file.summary["some"] == some);
  CHECK(file.history[1]["../../out"]["width"] == 5);
}

TEST_CASE("WandBLogger writes masks beside their images, and the names of classes in the config") {
  const test::Folder folder;
  Run run(folder.path());
  const LogImages images = {.images = at::zeros({1, 2, 2}),
                            .masks = {{"truth", at::tensor({0, 1, 2, 255}).view({2, 2})}},
                            .class_labels = {{0, "sky"}, {1, "sea"}}};
  run.logger.log_images("i", images, 1);
  run.logger.log_images("i", images, 2);
  run.logger.log_images("two", {.images = at::zeros({2, 1, 2, 2}), .masks = {{"m", at::ones({2, 2, 2}, at::kLong)}}},
                        2);
  run.close();
  const WandBFile file = only_run(folder.path());
  const json mask = file.history[0]["i"]["masks"]["truth"];
  CHECK(mask["_type"] == "mask");
  CHECK(std::string(mask["path"]).starts_with("media/images/mask/i_truth_1_"));
  CHECK(std::string(mask["path"]).ends_with(".mask.png"));
  CHECK(file.history[1]["two"]["all_masks"].size() == 2);
  CHECK(file.history[1]["two"]["all_masks"][1]["m"]["_type"] == "mask");
  const std::string key = "i_wandb_delimeter_truth";
  CHECK(file.config["_wandb.mask/class_labels." + key] ==
        json{{"type", "mask/class_labels"}, {"key", key}, {"value", {{"0", "sky"}, {"1", "sea"}}}});
  CHECK(std::ranges::count_if(file.records, [](const auto& record) { return record.kind == 5; }) == 1);
}

TEST_CASE("Names of classes that a full disk did not take are written again by WandBLogger") {
  const test::Folder folder;
  const test::Warnings warnings;
  Run run(folder.path());
  run.init();
  const LogImages images = {
      .images = at::zeros({1, 2, 2}), .masks = {{"truth", at::zeros({2, 2}, at::kLong)}}, .class_labels = {{0, "sky"}}};
  {
    const test::FileSizeLimit limit(fs::file_size(test::wandb_file_in(run.wandb.run_folder())) + 10);
    run.logger.log_images("i", images, 1);
    run.wandb.flush();
  }
  run.logger.log_images("i", images, 2);
  run.close();
  const WandBFile file = only_run(folder.path());
  CHECK(file.steps("i") == Steps{2});
  CHECK(file.config.contains("_wandb.mask/class_labels.i_wandb_delimeter_truth"));
}

TEST_CASE("WandBLogger reports images whose masks have classes above 255 as missing, and goes on") {
  const test::Folder folder;
  const test::Warnings warnings;
  Run run(folder.path());
  run.logger.log_images("i", {.images = at::zeros({2, 2}), .masks = {{"m", at::full({2, 2}, 256)}}}, 1);
  run.wandb.flush();
  run.logger.log_metrics({{"a", 1.0}}, 2);
  run.close();
  CHECK(only_run(folder.path()).steps("a") == Steps{2});
  CHECK(warnings.say("must be from 0 to 255"));
  CHECK(warnings.say("1 records could not be written"));
}

TEST_CASE("WandBLogger writes tables as files, and histograms with at most 512 bins") {
  const test::Folder folder;
  Run run(folder.path());
  run.logger.log_table("t", {{"x", "y"}, {{1.5, std::string("z")}, {std::nan(""), at::full({}, 2)}}}, 1);
  run.logger.log_histogram("h", LogHistogram::of({5, 0.5}, {0, 1, 3}), 1);
  run.logger.log_histogram("wide", LogHistogram::of(at::arange(10'000), 1300), 1);
  const fs::path where = run.wandb.run_folder();
  run.close();
  const WandBFile file = only_run(folder.path());
  const json table = file.history[0]["t"];
  CHECK(table["_type"] == "table-file");
  CHECK(table["nrows"] == 2);
  CHECK(table["ncols"] == 2);
  CHECK(test::content_of(where / "files" / std::string(table["path"])) ==
        R"({"columns":["x","y"],"data":[[1.5,"z"],[NaN,2]]})");
  CHECK(file.files == std::vector<std::string>{table["path"]});
  CHECK(file.history[0]["h"] == json{{"_type", "histogram"}, {"values", {5.0, 0.5}}, {"bins", {0.0, 1.0, 3.0}}});
  const json wide = file.history[0]["wide"];
  CHECK(wide["values"].size() == 434);  // three by three, and the last alone
  CHECK(wide["bins"].size() == 435);
  CHECK(wide["bins"].front() == 0.0);
  CHECK(wide["bins"].back() == 9999.0);
  double sum = 0;
  for (const double count : wide["values"]) sum += count;
  CHECK(sum == 10'000);
}

TEST_CASE("WandBLogger copies uploaded files into the run only with log_artifacts, below its folder files/") {
  for (const bool log_artifacts : {true, false}) {
    const test::Folder folder;
    const test::Warnings warnings;
    std::ofstream(folder / "plot.svg") << "<svg/>";
    Run run(WandBLoggerOptions{.folder = folder.path().string(), .log_artifacts = log_artifacts});
    run.logger.upload_file({.path = folder / "plot.svg", .name = "../plots/{run_name}.svg"});
    run.wandb.flush();
    const fs::path where = run.wandb.run_folder();
    CHECK(test::content_of(where / "files/plots/r.svg") == (log_artifacts ? "<svg/>" : ""));
    run.logger.upload_file({.path = folder / "plot.svg", .name = "plots/r.svg"});
    run.wandb.flush();
    run.logger.upload_file({.path = folder / "plot.svg", .name = "plots/r.svg", .overwrite = true});
    run.wandb.flush();
    run.logger.log_metrics({{"a", 1.0}}, 1);
    run.logger.upload_file({.path = folder / "plot.svg", .name = "config.yaml"});
    run.logger.log_images("i", {.images = at::zeros({2, 2}), .masks = {{"m", at::full({2, 2}, 256)}}}, 1);
    run.close();
    const WandBFile file = only_run(folder.path());
    CHECK(file.files.size() == (log_artifacts ? 3 : 0));
    CHECK(file.steps("a") == Steps{1});
    CHECK(warnings.say("W&B writes config.yaml itself") == log_artifacts);
    CHECK(warnings.say(log_artifacts ? "2 records could not be written" : "1 records could not be written"));
  }
}

TEST_CASE("Records of WandBLogger cross the blocks of its file whole") {
  const test::Folder folder;
  Run run(folder.path());
  for (std::int64_t step = 0; step < 400; ++step) {
    run.logger.log_metrics({{"text", std::string(static_cast<std::size_t>(step * 7 % 501), 'x')}}, step);
    if (step % 50 == 0) run.wandb.flush();
  }
  run.logger.log_metrics({{"text", std::string(100'000, 'y')}}, 400);
  run.close();
  const WandBFile file = only_run(folder.path());
  REQUIRE(file.history.size() == 401);
  for (std::int64_t step = 0; step < 400; ++step)
    CHECK(std::string(file.history[static_cast<std::size_t>(step)]["text"]).size() ==
          static_cast<std::size_t>(step * 7 % 501));
  CHECK(std::string(file.history[400]["text"]).size() == 100'000);
}

TEST_CASE("A run of WandBLogger ends with code 0, or 1 after what did not end") {
  struct Row {
    std::vector<Event> events;
    int code;
  };
  for (const auto& [events, code] : {
           Row{{}, 0},
           Row{{Event::FIT_START}, 1},
           Row{{Event::FIT_START, Event::FIT_END}, 0},
           Row{{Event::FIT_START, Event::FIT_END, Event::EVAL_BEFORE_ALL}, 1},
           Row{{Event::FIT_START, Event::EVAL_BEFORE_ALL, Event::EVAL_AFTER_ALL}, 1},
           Row{{Event::FIT_START, Event::FIT_END, Event::EVAL_BEFORE_ALL, Event::EVAL_AFTER_ALL}, 0},
           Row{{Event::EVAL_STANDALONE_START}, 1},
           Row{{Event::EVAL_STANDALONE_START, Event::EVAL_STANDALONE_END}, 0},
           Row{{Event::PREDICT_START}, 1},
           Row{{Event::PREDICT_START, Event::PREDICT_END}, 0},
       }) {
    CAPTURE(events.size());
    const test::Folder folder;
    Run run(folder.path());
    run.init();
    for (const Event event : events) run.fire(event);
    run.close();
    CHECK(only_run(folder.path()).exit_code() == code);
    run.init();  // what failed before does not matter
    run.close();
    const auto runs = test::wandb_runs(folder.path());
    REQUIRE(runs.size() == 2);
    const int again = test::read_wandb_file(test::wandb_file_in(runs[0])).exit_code() +
                      test::read_wandb_file(test::wandb_file_in(runs[1])).exit_code();
    CHECK(again == code);
  }
}

TEST_CASE("Of the ranks of a run, WandBLogger writes rank 0, or each of them in one group") {
  const test::Folder folder;
  Run run(folder.path());
  run.state.rank = 1;
  run.state.world_size = 2;
  run.logger.log_metrics({{"a", 1.0}});
  run.close();
  CHECK(test::wandb_runs(folder.path()).empty());
  Run each(WandBLoggerOptions{.name = "n", .folder = folder.path().string(), .rank_zero_only = false});
  each.state.rank = 1;
  each.state.world_size = 2;
  each.init();
  each.close();
  CHECK(only_run(folder.path()).run().text(8) == "n-rank1");
  CHECK(only_run(folder.path()).run().text(6) == "n");
}

TEST_CASE("WandBLogger keeps whole records alone on a full disk, continues later, and says what is missing") {
  const test::Folder folder;
  const test::Warnings warnings;
  Run run(folder.path());
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.wandb.flush();
  {
    const test::FileSizeLimit limit(fs::file_size(test::wandb_file_in(run.wandb.run_folder())) + 10);
    run.logger.log_metrics({{"a", 2.0}}, 2);
    run.logger.log_metrics({{"a", 3.0}}, 3);
    run.wandb.flush();
  }
  run.logger.log_metrics({{"a", 4.0}}, 4);
  run.close();
  const WandBFile file = only_run(folder.path());
  CHECK(file.steps("a") == Steps{1, 4});
  CHECK(file.exit_code() == 0);
  CHECK(warnings.say("training continues, and records are dropped"));
  CHECK(warnings.say("2 records could not be written and are missing in"));
}

TEST_CASE("WandBLogger begins its folder again when it is removed, with the config, and says what is missing") {
  const test::Folder folder;
  const test::Warnings warnings;
  Run run(folder.path());
  run.logger.log_hyperparameters({{"lr", 0.5}});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.wandb.flush();
  fs::remove_all(folder / "wandb");
  run.logger.log_metrics({{"a", 2.0}}, 2);
  run.close();
  const WandBFile file = only_run(folder.path());
  CHECK(file.steps("a") == Steps{2});
  CHECK(test::items_of(file.run().message(4)) == json{{"lr", 0.5}});
  CHECK(warnings.say("was removed"));
  CHECK(warnings.say("2 records could not be written"));
}

TEST_CASE("WandBLogger rejects names that W&B rejects, and at INIT a folder that cannot be written") {
  const auto rejected = [](WandBLoggerOptions options) {
    CHECK_THROWS_AS(WandBLogger(std::move(options)), ConfigError);
  };
  for (const char c : std::string("/\\#?%:")) rejected({.project = join("a", c)});
  rejected({.project = std::string(129, 'a')});
  CHECK_NOTHROW(WandBLogger({.project = std::string(127, 'a') + "ä"}));
  rejected({.entity = "a/b"});
  rejected({.tags = {"a", ""}});
  rejected({.tags = {std::string(65, 'a')}});
  rejected({.folder = ""});
  rejected({.folder = "{rank}"});
  rejected({.max_images = 0});
  rejected({.flush_interval = Seconds(-1)});
  const test::Folder folder;
  std::ofstream(folder / "file") << "x";
  Run run(folder / "file");
  CHECK_THROWS_AS(run.init(), ConfigError);
  Run nameless(folder / "{run_name}");
  nameless.state.run_name = "";
  CHECK_THROWS_WITH_AS(nameless.init(), doctest::Contains("requires a run_name"), ConfigError);
}

}  // namespace
}  // namespace composer::loggers::wandb_logger_test
