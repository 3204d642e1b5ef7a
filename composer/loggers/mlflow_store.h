#pragma once
// Storage of MLflow runs, and MLflow's limits.
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "composer/loggers/run_logger.h"

namespace composer::loggers {

inline constexpr const char* kMLFlowLogger = "MLFlowLogger";  // error texts begin with it

struct MlflowMetric {
  std::string_view key;
  double value = 0;
  std::int64_t time = 0, step = 0;  // time: milliseconds since 1970
};

using MlflowTexts = std::map<std::string, std::string>;  // params or tags by key

// A file of a run. Its content is in memory or on disk.
struct MlflowArtifact {
  std::string path;  // path in the run, below artifacts/
  std::string data;
  std::string file;       // path of the content; empty: the content is in `data`
  bool overwrite = true;  // false: if one exists, it must have the same contents
};

// Converts a key to one that MLflow allows. Characters other than letters, digits and "_-.: /" become "_". Parts of the
// path that are empty, "." or ".." are left out. A part has at most 250 bytes, and the key at most 250 characters.
std::string mlflow_key(std::string_view key);
// At most `most` characters of the UTF-8 text. Bytes that are not UTF-8 become "?".
std::string mlflow_text(std::string_view text, std::size_t most);
inline constexpr std::size_t kMlflowParam = 6000, kMlflowTag = 8000;  // limits in characters

std::int64_t mlflow_time(double seconds);  // in whole milliseconds

// Metrics that could not be written, although others were.
struct MlflowLost {
  std::int64_t metrics = 0;
  std::string reason;  // reason of the first one
};

struct MlflowPoint {
  double value = 0;
  std::int64_t step = 0;
};

// The earlier content of a continued run.
struct MlflowPast {
  MlflowTexts params;
  std::map<std::string, MlflowPoint> last;  // last point of each metric; empty if the store does not know it
};

// One MLflow run. All functions throw Error. begin() and resume() throw ConfigError for problems that the user can fix.
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
  // Continues a run, and removes points of metrics later than `time` where that is possible. Returns false if there is
  // no such run. `past` becomes the run's earlier content.
  virtual bool resume(const std::string& run_id, std::int64_t time, MlflowPast& past) = 0;
  virtual std::string experiment_id() const = 0;

  virtual MlflowLost log_metrics(std::span<const MlflowMetric> metrics) = 0;
  virtual void log_params(const MlflowTexts& params) = 0;
  virtual void set_tags(const MlflowTexts& tags) = 0;
  virtual void log_artifact(const MlflowArtifact& artifact) = 0;
  virtual void sync() {}
  virtual void end(RunStatus status, std::int64_t time) = 0;
};

// A folder such as mlruns/, in the format of MLflow's file store.
std::unique_ptr<MlflowStore> mlflow_file_store(const std::string& folder);
// A tracking server. `url` is http:// or https://. A request is tried up to `attempts` times; only once before the
// server has answered for the first time, and while it cannot be reached.
std::unique_ptr<MlflowStore> mlflow_server_store(const std::string& url, std::int64_t attempts);

}  // namespace composer::loggers
