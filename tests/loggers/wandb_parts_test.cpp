// What WandBWriter is made of, each part alone.
#include <filesystem>
#include <optional>
#include <string>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/loggers/wandb_files.h"
#include "composer/loggers/wandb_rows.h"
#include "composer/loggers/wandb_run_file.h"
#include "tests/loggers/wandb_reader.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::loggers::wandb_parts_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::WandBFile;

const std::string kId = "abc";

// A run's file with its first records.
struct Run {
  Run() {
    file.create(path);
    file.prepare();
    file.append_start();
    file.append(kId, wandb_header());
    file.append(kId, wandb_run({.id = kId}, {}));
    file.write();
  }
  void write(const WandBContent& content) {
    file.prepare();
    file.append(kId, content);
    file.write();
  }
  WandBFile read() const { return test::read_wandb_file(path); }

  test::Folder folder;
  std::string path = folder / "run-abc.wandb";
  WandBRunFile file;
};

WandBContent row_of(const std::string& json, std::int64_t step) {
  const std::string at = std::to_string(step);
  const WandBItem items[] = {{"loss", json}, {"_step", at}};
  return wandb_history(items, step);
}

TEST_CASE("Values of one step are one row, the last of a key counts, and rows never go back") {
  Run run;
  WandBRows rows;
  rows.begin(5, 100);
  rows.put("loss") = "1";
  rows.put("loss") = "2";
  rows.begin(5, 101);
  rows.put("accuracy") = "3";
  CHECK(rows.step() == 5);
  run.write(rows.take_row(7.5));
  CHECK(rows.is_empty());
  rows.begin(2, 102);  // of a step that has been
  CHECK(rows.step() == 6);
  rows.put("loss") = "4";
  run.write(rows.take_row(8));
  const WandBFile read = run.read();
  REQUIRE(read.history.size() == 2);
  CHECK(read.history[0] == json{{"loss", 2}, {"accuracy", 3}, {"_step", 5}, {"_runtime", 7.5}, {"_timestamp", 101}});
  CHECK(read.history[1]["_step"] == 6);
}

TEST_CASE("The summary has the last values of all rows since the one before, and none if there are none") {
  Run run;
  WandBRows rows;
  for (int step = 0; step < 3; ++step) {
    rows.begin(step, 0);
    rows.put("loss") = std::to_string(step);
    if (step == 0) rows.put("once") = "9";
    rows.take_row(0);
  }
  const std::optional<WandBContent> summary = rows.take_summary();
  REQUIRE(summary);
  run.write(*summary);
  CHECK_FALSE(rows.take_summary());
  const WandBFile read = run.read();
  CHECK(read.summary["loss"] == 2);
  CHECK(read.summary["once"] == 9);
}

TEST_CASE("Rows go back to a position, the unfinished row with them") {
  WandBRows rows;
  rows.begin(1, 10);
  rows.put("loss") = "1";
  const WandBPosition before = rows.position();
  CHECK(before.row == WandBItems{{"loss", "1"}});
  rows.take_row(0);
  rows.begin(2, 11);
  rows.put("other") = "2";
  rows.restore(before);
  CHECK_FALSE(rows.take_summary());
  CHECK(rows.position().row == before.row);
  CHECK(rows.step() == 1);
  rows.take_row(0);
  rows.begin(0, 12);
  CHECK(rows.step() == 2);
}

TEST_CASE("Records are numbered on over writes, those that could not be written aside") {
  Run run;
  CHECK(run.file.records() == 2);
  run.file.prepare();
  run.file.append(kId, row_of("1", 0));
  CHECK(run.file.records() == 3);
  CHECK(run.file.is_prepared());
  run.file.set_records(2);
  const std::int64_t size = run.file.size();
  run.write(row_of("2", 0));
  CHECK(run.file.records() == 3);
  CHECK(run.file.end() == run.file.size());
  CHECK(run.file.bytes_behind(size)->size() == static_cast<std::size_t>(run.file.size() - size));
  CHECK_FALSE(run.file.bytes_behind(size - 1));
  CHECK(run.read().history.at(0)["loss"] == 2);
}

TEST_CASE("An end that was given up stays in the file until other bytes replace it") {
  Run run;
  const std::int64_t size = run.file.size(), records = run.file.records();
  run.write(row_of("1", 0));
  run.file.give_up({size, *run.file.bytes_behind(size)});
  CHECK(run.file.gives_up());
  CHECK(run.file.size() == size);
  CHECK(run.read().history.size() == 1);
  run.file.set_records(records);
  run.write(row_of("234567890", 0));
  CHECK_FALSE(run.file.gives_up());
  const WandBFile read = run.read();
  REQUIRE(read.history.size() == 1);
  CHECK(read.history[0]["loss"] == 234567890);
}

TEST_CASE("A file that goes on is cut to where it was, and one that somebody writes is refused") {
  Run run;
  const std::int64_t size = run.file.size(), records = run.file.records();
  run.write(row_of("1", 0));
  CHECK_THROWS_AS(WandBRunFile().go_on(run.path, size, records), ConfigError);
  run.file.go_on(run.path, size, records);
  CHECK(run.file.size() == size);
  run.write(row_of("2", 0));
  CHECK(run.read().history.at(0)["loss"] == 2);
  CHECK_THROWS_AS(WandBRunFile().create(run.path), ConfigError);
}

TEST_CASE("Media are files below files/, and names of classes are said once, or again if that was lost") {
  const test::Folder folder;
  WandBFiles files(16);
  files.set_folder(folder / "run");
  const LogImages images{
      .images = at::zeros({1, 2, 2}), .masks = {{"truth", at::zeros({2, 2}, at::kLong)}}, .class_labels = {{0, "sky"}}};
  const WandBFiles::Added added = files.add_images("a/b", 3, images);
  CHECK(added.contents.size() == 2);
  CHECK_FALSE(added.json.empty());
  int found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "run/files")) found += entry.is_regular_file();
  CHECK(found == 2);
  CHECK(files.add_images("a/b", 4, images).contents.size() == 1);
  files.forget_labels();
  CHECK(files.add_images("a/b", 5, images).contents.size() == 2);
  CHECK_THROWS_AS(files.add_file({.path = "x", .name = "config.yaml"}), Error);
}

}  // namespace
}  // namespace composer::loggers::wandb_parts_test
