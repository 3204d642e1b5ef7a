#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/loggers/logged_file.h"
#include "composer/loggers/mlflow_store.h"
#include "composer/loggers/number_text.h"
#include "composer/loggers/string_map.h"
#include "composer/util/checksum.h"
#include "composer/util/environment.h"
#include "composer/util/new_file.h"
#include "composer/util/output_file.h"
#include "composer/util/random_text.h"
#include "composer/util/text.h"

namespace composer::loggers {
namespace {

namespace fs = std::filesystem;

// Puts the text into YAML's single quotes, whose only escape is ''. Control characters become spaces.
std::string quoted(const std::string& text) {
  std::string all = "'";
  for (const char c : text) {
    if (c == '\'') all += '\'';
    all += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return all + '\'';
}

std::string unquoted(std::string_view text) {
  if (text.size() < 2 || text.front() != '\'' || text.back() != '\'') return std::string(text);
  std::string all;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '\'') ++i;
    all += text[i];
  }
  return all;
}

// The value after a key at the beginning of a line; empty if there is none.
std::string value_in(const std::string& yaml, std::string_view key) {
  util::InText lines(yaml);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key) && line.compare(key.size(), 2, ": ") == 0) return unquoted(line.substr(key.size() + 2));
  return {};
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  util::OutText text;
  text << file.rdbuf();
  return text.str();
}

// Reads a line "time value step".
MlflowPoint point_of(const std::string& line) {
  MlflowPoint point;
  const std::size_t value = std::min(line.find(' '), line.size()),
                    step = std::min(line.find(' ', value + 1), line.size());
  const char* const end = line.data() + line.size();
  std::from_chars(std::min(line.data() + value + 1, end), end, point.value);
  std::from_chars(std::min(line.data() + step + 1, end), end, point.step);
  return point;
}

void replace_file(const fs::path& path, std::string_view content) {
  util::NewFile file(path);
  file.write(content);
  file.commit();
}

class FileStore final : public MlflowStore {
 public:
  explicit FileStore(const std::string& folder) : root_(fs::absolute(folder).lexically_normal()) {}

  std::string where() const override { return root_; }
  std::string experiment_id() const override { return experiment_; }

  std::string begin(const std::string& experiment, const std::string& name, const MlflowTexts& tags,
                    std::int64_t time) override {
    try {
      experiment_ = find_experiment(experiment);
      if (experiment_.empty()) make_experiment(experiment, time);
      id_ = util::random_text(32);
      run_ = root_ / experiment_ / id_;
      for (const char* part : {"metrics", "params", "tags", "artifacts"}) fs::create_directories(run_ / part);
      name_ = name;
      began_ = time;
      write_meta(1, "null");
      set_tags(tags);
    } catch (const ConfigError&) {
      throw;
    } catch (const std::exception& error) {
      throw ConfigError(kMLFlowLogger, ": ", root_.string(), " cannot be written: ", error.what());
    }
    return id_;
  }

  bool resume(const std::string& run_id, std::int64_t time, MlflowPast& past) override {
    std::error_code error;
    if (run_id.empty() || run_id.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
    for (fs::directory_iterator it(root_, error), end; !error && it != end; it.increment(error)) {
      const std::string meta = content_of(it->path() / run_id / "meta.yaml");
      if (value_in(meta, "run_id") != run_id || value_in(meta, "lifecycle_stage") != "active") continue;
      experiment_ = it->path().filename();
      id_ = run_id;
      run_ = it->path() / run_id;
      name_ = value_in(meta, "run_name");
      began_ = std::strtoll(value_in(meta, "start_time").c_str(), nullptr, 10);
      drop_later(time);
      read_last(past.last);
      read_params(past.params);
      write_meta(1, "null");
      return true;
    }
    return false;
  }

  MlflowLost log_metrics(std::span<const MlflowMetric> metrics) override {
    std::vector<Points*> some;
    for (const MlflowMetric& metric : metrics) {
      Points& points = points_[metric.key];
      if (points.lines.empty()) some.push_back(&points);
      if (points.key.empty()) points.key = metric.key;
      append_number(points.lines, metric.time);
      append_number(points.lines += ' ', metric.value);
      append_number(points.lines += ' ', metric.step);
      points.lines += '\n';
    }
    MlflowLost lost;
    for (Points* points : some) {
      try {
        append(*points);
      } catch (const std::exception& error) {
        lost.metrics += std::ranges::count(points->lines, '\n');
        if (lost.reason.empty()) lost.reason = error.what();
      }
      points->lines.clear();
    }
    return lost;
  }

  void log_params(const MlflowTexts& params) override { write_texts("params", params); }
  void set_tags(const MlflowTexts& tags) override { write_texts("tags", tags); }

  void log_artifact(const MlflowArtifact& artifact) override {
    const fs::path target = run_ / "artifacts" / artifact.path;
    if (artifact.file.empty()) return replace_file(target, artifact.data);
    copy_logged_file({artifact.file, artifact.path, artifact.overwrite}, target);
  }

  void end(RunStatus status, std::int64_t time) override {
    for (auto& [key, points] : points_)
      if (points.file) close(points);
    write_meta(status == RunStatus::FINISHED ? 3 : status == RunStatus::FAILED ? 4 : 5, std::to_string(time));
  }

 private:
  // The file of a metric, and what is to be written to it.
  struct Points {
    std::string key, lines;  // lines: to be written
    std::optional<util::OutputFile> file;
  };

  std::string find_experiment(const std::string& name) const {
    std::error_code error;
    for (fs::directory_iterator it(root_, error), end; !error && it != end; it.increment(error)) {
      const std::string meta = content_of(it->path() / "meta.yaml");
      if (!meta.empty() && value_in(meta, "name") == name && value_in(meta, "lifecycle_stage") == "active")
        return it->path().filename();
    }
    return {};
  }

  void make_experiment(const std::string& name, std::int64_t time) {
    experiment_ = util::random_text(1, "123456789") + util::random_text(17, "0123456789");
    const fs::path folder = root_ / experiment_;
    replace_file(folder / "meta.yaml",
                 join("artifact_location: ", quoted("file://" + folder.string()), "\ncreation_time: ", time,
                      "\nexperiment_id: ", quoted(experiment_), "\nlast_update_time: ", time,
                      "\nlifecycle_stage: active\nname: ", quoted(name), '\n'));
  }

  void write_meta(int status, const std::string& end) const {
    replace_file(run_ / "meta.yaml",
                 join("artifact_uri: ", quoted("file://" + (run_ / "artifacts").string()), "\nend_time: ", end,
                      "\nentry_point_name: ''\nexperiment_id: ", quoted(experiment_), "\nlifecycle_stage: active",
                      "\nrun_id: ", quoted(id_), "\nrun_name: ", quoted(name_),
                      "\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: ", began_,
                      "\nstatus: ", status, "\ntags: []\nuser_id: ", quoted(environment("USER")), '\n'));
  }

  void write_texts(const char* part, const MlflowTexts& texts) const {
    for (const auto& [key, text] : texts) replace_file(file_of(part, key), text);
  }

  // The path of a key's file. A key may be the folder of other keys ("loss" beside "loss/train"), or lie below one
  // ("loss/train" beside "loss"); one of the two then gets another name.
  fs::path file_of(const char* part, const std::string& key) const {
    const fs::path folder = run_ / part, file = folder / key;
    if (fs::is_directory(file)) return folder / other_name(key);
    for (fs::path above = file.parent_path(); above != folder; above = above.parent_path())
      if (const auto status = fs::status(above); fs::exists(status) && !fs::is_directory(status))
        return folder / other_name(key);
    return file;
  }

  // A name that no other key has, whichever key comes first.
  static std::string other_name(const std::string& key) {
    util::Checksum sum;
    sum.update(key.data(), key.size());
    std::string flat = key;
    std::ranges::replace(flat, '/', '_');
    return join(flat, '_', sum.text().substr(sum.text().find(':') + 1));
  }

  // Opening a file costs much more than writing to it, so the files of the first metrics stay open.
  void append(Points& points) {
    constexpr std::int64_t kMostOpen = 64;
    std::optional<util::OutputFile>& file = points.file;
    if (file && file->is_removed()) close(points);
    if (!file) open(points);
    file->write(points.lines);
    if (open_ > kMostOpen) close(points);
  }

  // MLflow lets any program append to a run: a trainer may continue a run while the first one's logger has not been
  // closed.
  void open(Points& points) {
    try {
      points.file.emplace(kMLFlowLogger, file_of("metrics", points.key), util::FileMode::APPEND, util::Writers::MANY);
      ++open_;
    } catch (const ConfigError& error) {  // an error about options, but here the disk has failed
      throw Error(error.what());
    }
  }

  void close(Points& points) {
    points.file->close();
    points.file.reset();
    --open_;
  }

  // Removes the points of metrics after that time; the run logs them again.
  void drop_later(std::int64_t time) const {
    for (const auto& entry : fs::recursive_directory_iterator(run_ / "metrics")) {
      if (!entry.is_regular_file()) continue;
      util::InText lines(content_of(entry.path()));
      std::string kept;
      bool all = true;
      for (std::string line; std::getline(lines, line);) {
        if (std::strtoll(line.c_str(), nullptr, 10) <= time)
          (kept += line) += '\n';
        else
          all = false;
      }
      if (!all && !kept.empty()) replace_file(entry.path(), kept);
      if (!all && kept.empty()) fs::remove(entry.path());  // MLflow rejects an empty file
    }
  }

  void read_last(std::map<std::string, MlflowPoint>& last) const {
    for (const auto& entry : fs::recursive_directory_iterator(run_ / "metrics")) {
      if (!entry.is_regular_file()) continue;
      MlflowPoint& point = last[entry.path().lexically_relative(run_ / "metrics")];
      util::InText lines(content_of(entry.path()));
      for (std::string line; std::getline(lines, line);) point = point_of(line);
    }
  }

  void read_params(MlflowTexts& params) const {
    for (const auto& entry : fs::recursive_directory_iterator(run_ / "params"))
      if (entry.is_regular_file()) params[entry.path().lexically_relative(run_ / "params")] = content_of(entry.path());
  }

  const fs::path root_;
  fs::path run_;
  std::string experiment_, id_, name_;
  std::int64_t began_ = 0;
  StringMap<Points> points_;  // by metric
  std::int64_t open_ = 0;     // number of open files
};

}  // namespace

std::unique_ptr<MlflowStore> mlflow_file_store(const std::string& folder) {
  return std::make_unique<FileStore>(folder);
}

}  // namespace composer::loggers
