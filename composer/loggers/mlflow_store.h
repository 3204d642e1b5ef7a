#pragma once
// Where runs of MLflow are kept, and what MLflow allows.
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "composer/loggers/run_logger.h"

namespace composer::loggers {

inline constexpr const char* kMLFlowLogger = "MLFlowLogger";  // begins the texts of errors

struct MlflowMetric {
  std::string_view key;
  double value = 0;
  std::int64_t time = 0, step = 0;  // milliseconds since 1970
};

using MlflowTexts = std::map<std::string, std::string>;  // of params or tags, by key

// A file of a run, from memory or from the disk.
struct MlflowArtifact {
  std::string path;  // in the run, below artifacts/
  std::string data;
  std::string file;       // its path if it is not in memory
  bool overwrite = true;  // false: if one exists, it must have the same contents
};

// The key that MLflow allows: other characters than letters, digits, "_-.: /" become "_", parts of a path that are
// empty, "." or ".." are left out, a part has at most 250 bytes, and at most 250 characters remain.
std::string mlflow_key(std::string_view key);
// At most `most` characters of UTF-8. Other bytes become "?".
std::string mlflow_text(std::string_view text, std::size_t most);
inline constexpr std::size_t kMlflowParam = 6000, kMlflowTag = 8000;  // characters

std::int64_t mlflow_time(double seconds);  // whole milliseconds

// What could not be written, while the rest was.
struct MlflowLost {
  std::int64_t metrics = 0;
  std::string reason;  // of the first
};

struct MlflowPoint {
  double value = 0;
  std::int64_t step = 0;
};

// Of a run that goes on.
struct MlflowPast {
  MlflowTexts params;
  std::map<std::string, MlflowPoint> last;  // of each metric; empty if the store does not know what follows
};

// One run. All functions throw Error, and begin() and resume() ConfigError for what the user can mend.
class MlflowStore {
 public:
  MlflowStore() = default;
  MlflowStore(const MlflowStore&) = delete;
  MlflowStore& operator=(const MlflowStore&) = delete;
  virtual ~MlflowStore() = default;

  virtual std::string where() const = 0;
  // Begins a run and returns its id.
  virtual std::string begin(const std::string& experiment, const std::string& name, const MlflowTexts& tags,
                            std::int64_t time) = 0;
  // Continues a run, and removes points of metrics later than `time` where that is possible. False: there is no such
  // run.
  virtual bool resume(const std::string& run_id, std::int64_t time, MlflowPast& past) = 0;
  virtual std::string experiment_id() const = 0;

  virtual MlflowLost log_metrics(std::span<const MlflowMetric> metrics) = 0;
  virtual void log_params(const MlflowTexts& params) = 0;
  virtual void set_tags(const MlflowTexts& tags) = 0;
  virtual void log_artifact(const MlflowArtifact& artifact) = 0;
  virtual void sync() {}
  virtual void end(RunStatus status, std::int64_t time) = 0;
};

// A folder mlruns/ as MLflow's file store writes it.
std::unique_ptr<MlflowStore> mlflow_file_store(const std::string& folder);
// A tracking server. `url` is http:// or https://; each request is sent `attempts` times at most, but once until the
// server has answered the first, and while it is away.
std::unique_ptr<MlflowStore> mlflow_server_store(const std::string& url, std::int64_t attempts);

}  // namespace composer::loggers
