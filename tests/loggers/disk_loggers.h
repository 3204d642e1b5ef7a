#pragma once
// Every logger that writes a log to a disk, and what its log says, without times.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/loggers/csv_logger.h"
#include "composer/loggers/file_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/mlflow_logger.h"
#include "composer/loggers/tensorboard_logger.h"
#include "composer/loggers/wandb_logger.h"
#include "composer/trainer/trainer.h"
#include "tests/loggers/wandb_reader.h"
#include "tests/support/text.h"

namespace composer::test::logs {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;  // of a log

struct DiskLogger {
  std::string name;
  std::function<void(Loggers&, const fs::path& folder)> add;
  std::function<Lines(const fs::path& folder)> read;
};

// The first line that differs; empty if there is none.
inline std::string difference(const Lines& got, const Lines& expected) {
  const auto [a, b] = std::ranges::mismatch(got, expected);
  const auto text = [](const Lines& lines, const auto& at) { return at == lines.end() ? "the end" : *at; };
  if (a == got.end() && b == expected.end()) return "";
  return join("line ", a - got.begin() + 1, " is ", text(got, a), " instead of ", text(expected, b), "; ", got.size(),
              " lines instead of ", expected.size());
}

inline Lines lines_of(const fs::path& file) {
  Lines lines;
  std::istringstream text(text_of(file));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

// step,epoch,batch,time,key,value
inline Lines csv_lines(const fs::path& file) {
  Lines lines = lines_of(file);
  for (std::string& line : lines) {
    std::size_t time = 0;
    for (int i = 0; i < 3; ++i) time = line.find(',', time) + 1;
    if (time > 0) line.erase(time, line.find(',', time) - time);
  }
  return lines;
}

inline Lines json_lines(const fs::path& file) {
  Lines lines = lines_of(file);
  for (std::string& line : lines) {
    auto json = nlohmann::json::parse(line);
    json.erase("time");
    json.erase("run_name");  // of a run without one it is made of the time
    line = json.dump();
  }
  return lines;
}

// Of all files of a run's folder: in which of them a point is, nobody sees. Of the run that got furthest; one without a
// name that was killed before its first checkpoint has another folder.
inline Lines tensorboard_points(const fs::path& board) {
  Lines most;
  for (const auto& run : fs::directory_iterator(board)) {
    Lines points;
    for (const fs::path& file : event_files(run.path()))
      for (const auto& value : read_events(file).values)
        if (!value.tag.starts_with("_hparams_") && value.strings.empty())
          points.push_back(join(value.step, ' ', value.tag, ' ', value.single));
    std::ranges::sort(points);
    if (points.size() > most.size()) most = points;
  }
  return most;
}

// Of the run that has ended; one that was killed before its first checkpoint stays beside it.
inline Lines wandb_rows(const fs::path& folder) {
  Lines rows;
  for (const fs::path& run : wandb_runs(folder)) {
    const auto file = read_wandb_file(wandb_file_in(run));
    if (file.exit_code() != 0) continue;
    for (nlohmann::json row : file.history) {
      row.erase("_runtime"), row.erase("_timestamp");
      rows.push_back(row.dump());
    }
  }
  return rows;
}

// Likewise.
inline Lines mlflow_points(const fs::path& folder) {
  Lines points;
  for (const auto& meta : fs::recursive_directory_iterator(folder)) {
    if (meta.path().filename() != "meta.yaml") continue;
    if (text_of(meta.path()).find("\nstatus: 3\n") == std::string::npos) continue;
    const fs::path metrics = meta.path().parent_path() / "metrics";
    for (const auto& file : fs::recursive_directory_iterator(metrics))
      if (file.is_regular_file())
        for (const std::string& line : lines_of(file.path()))
          points.push_back(join(file.path().lexically_relative(metrics).string(), line.substr(line.find(' '))));
  }
  std::ranges::sort(points);
  return points;
}

// All that is logged is on its way to the disk at once. The name of the run is in no path.
inline std::vector<DiskLogger> disk_loggers() {
  constexpr Seconds at_once(0);
  return {
      {"CsvLogger",
       [=](Loggers& to, const fs::path& in) {
         to.add(loggers::CsvLogger({.path = in / "log.csv", .flush_interval = at_once}));
       },
       [](const fs::path& in) { return csv_lines(in / "log.csv"); }},
      {"FileLogger",
       [=](Loggers& to, const fs::path& in) {
         to.add(loggers::FileLogger({.path = in / "log.txt", .flush_interval = at_once}));
       },
       [](const fs::path& in) { return lines_of(in / "log.txt"); }},
      {"JsonLinesLogger",
       [=](Loggers& to, const fs::path& in) {
         to.add(loggers::JsonLinesLogger({.path = in / "log.jsonl", .flush_interval = at_once}));
       },
       [](const fs::path& in) { return json_lines(in / "log.jsonl"); }},
      {"TensorBoardLogger",
       [=](Loggers& to, const fs::path& in) {
         to.add(loggers::TensorBoardLogger({.folder = in / "board/{run_name}", .flush_interval = at_once}));
       },
       [](const fs::path& in) { return tensorboard_points(in / "board"); }},
      {"WandBLogger",
       [=](Loggers& to, const fs::path& in) {
         to.add(loggers::WandBLogger({.folder = in, .flush_interval = at_once}));
       },
       [](const fs::path& in) { return wandb_rows(in); }},
      {"MLFlowLogger",
       [=](Loggers& to, const fs::path& in) {
         to.add(loggers::MLFlowLogger({.tracking_uri = in / "mlruns", .flush_interval = at_once}));
       },
       [](const fs::path& in) { return mlflow_points(in / "mlruns"); }},
  };
}

}  // namespace composer::test::logs
