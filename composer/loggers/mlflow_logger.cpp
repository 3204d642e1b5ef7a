#include "composer/loggers/mlflow_logger.h"

#include <filesystem>
#include <utility>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/background_option.h"
#include "composer/loggers/mlflow_store.h"
#include "composer/loggers/mlflow_writer.h"
#include "composer/loggers/this_process.h"
#include "composer/net/http.h"
#include "composer/util/environment.h"

namespace composer::loggers {
namespace {

std::string or_else(std::string text, const std::string& otherwise) { return text.empty() ? otherwise : text; }

std::string tracking_uri(const MLFlowLoggerOptions& options) {
  return or_else(options.tracking_uri, or_else(environment("MLFLOW_TRACKING_URI"), "mlruns"));
}

std::string experiment_of(const MLFlowLoggerOptions& options) {
  return or_else(options.experiment_name, or_else(environment("MLFLOW_EXPERIMENT_NAME"), "my-mlflow-experiment"));
}

bool is_server(const std::string& uri) { return uri.starts_with("http://") || uri.starts_with("https://"); }

// The folder that a URI without a server refers to. Throws ConfigError if it refers to none.
std::string folder_of(const std::string& uri) {
  if (uri.starts_with("file:")) {
    std::string path = uri.substr(5);
    if (path.starts_with("//")) path.erase(0, 2);
    if (path.starts_with("localhost/")) path.erase(0, 9);
    if (!path.empty()) return net::percent_decoded(path);
  } else if (uri.find("://") == std::string::npos && !uri.starts_with("databricks")) {
    return uri;
  }
  throw ConfigError(kMLFlowLogger, ": tracking_uri must be a folder, file://FOLDER, http://HOST or https://HOST, got ",
                    uri);
}

std::unique_ptr<MlflowStore> store_at(const std::string& uri, std::int64_t attempts) {
  if (is_server(uri)) return mlflow_server_store(uri, attempts);
  return mlflow_file_store(folder_of(uri));
}

std::string shown(const std::string& uri) { return is_server(uri) ? net::shown_url(uri) : uri; }

MlflowTexts tags_of(const MLFlowLoggerOptions& options, const std::string& name, const std::string& run_name) {
  MlflowTexts tags = {{"mlflow.runName", name},
                      {"mlflow.source.type", "LOCAL"},
                      {"mlflow.source.name", path_of_program()},
                      {"mlflow.user", environment("USER")},
                      {"run_name", run_name},
                      {"run_group", options.run_group}};
  std::erase_if(tags, [](const auto& tag) { return tag.second.empty(); });
  for (const auto& [key, text] : options.tags) tags[key] = text;
  MlflowTexts allowed;
  for (const auto& [key, text] : tags) allowed[mlflow_key(key)] = mlflow_text(text, kMlflowTag);
  return allowed;
}

std::vector<Option<MLFlowLoggerOptions>> mlflow_logger_options() {
  using O = MLFlowLoggerOptions;
  const auto is_folder = [](const std::string& uri) { return uri.empty() || !is_server(uri); };
  return all_options(
      option("experiment_name", &O::experiment_name), option("run_name", &O::run_name), option("tags", &O::tags),
      option("run_group", &O::run_group),
      option("tracking_uri", &O::tracking_uri).refuses({"sqlite:///a.db", "databricks", "file:"}),
      option("fallback_folder", &O::fallback_folder).must("be a folder", is_folder).refuses({"http://a"}),
      option("rename_metrics", &O::rename_metrics).refuses({"a"}), option("ignore_metrics", &O::ignore_metrics),
      option("ignore_hyperparameters", &O::ignore_hyperparameters),
      option("log_duplicated_metric_every_n_steps", &O::log_duplicated_metric_every_n_steps).at_least(1),
      option("log_artifacts", &O::log_artifacts), option("max_images", &O::max_images).at_least(1),
      option("attempts", &O::attempts).from_to(1, 10), flush_interval_option(&O::flush_interval),
      on_failure_option(&O::on_failure), when_full_option(&O::when_full));
}

// The mark of an MLflow run in a checkpoint.
struct MlflowMark {
  std::string run_id;
  std::int64_t time = 0;  // no point so far is later; milliseconds since 1970
  void visit_state(StateVisitor& visit) {
    visit("run_id", run_id);
    visit("time", time);
  }
};

// A run in a folder or on a server, as the place of the log.
class MlflowPlace final : public MarkedPlace<MlflowMark> {
 public:
  MlflowPlace(MLFlowLoggerOptions options, const State& state)
      : options_(std::move(options)),
        uri_(tracking_uri(options_)),
        run_name_(state.run_name),
        name_(or_else(options_.run_name, run_name_)),
        writer_(std::make_shared<MlflowWriter>(options_, store_at(uri_, options_.attempts), shown(uri_))) {
    if (const std::string& folder = options_.fallback_folder; !folder.empty())
      fallback_folder_ = std::filesystem::absolute(folder_of(folder));
  }

  std::shared_ptr<RecordWriter> writer() const override { return writer_; }
  const std::shared_ptr<MlflowWriter>& mlflow_writer() const { return writer_; }
  bool is_remote() const override { return true; }
  void begin() override {
    start([this] { writer_->begin(experiment_of(options_), name_, tags_of(options_, name_, run_name_)); });
  }

 private:
  bool accepts(const MlflowMark& mark) override { return !mark.run_id.empty(); }
  bool go_on_at(const MlflowMark& mark) override {
    bool is_there = false;
    start([&] { is_there = writer_->resume(mark.run_id, mark.time); });
    if (!is_there)
      warn(join(kMLFlowLogger, ": ", writer_->where(), " has no run ", mark.run_id,
                ", which the checkpoint names; a new run is begun"));
    return is_there;
  }
  MlflowMark mark() override { return {writer_->run_id(), writer_->end_of_points()}; }
  template <class Start>
  void start(const Start& start);

  const MLFlowLoggerOptions options_;
  const std::string uri_, run_name_, name_;
  std::string fallback_folder_;  // absolute path
  const std::shared_ptr<MlflowWriter> writer_;
};

// Begins or continues the run. If the server cannot be reached, uses the fallback folder, if there is one.
template <class Start>
void MlflowPlace::start(const Start& start) {
  try {
    try {
      start();
    } catch (const net::HttpError& error) {
      if (!error.may_pass || fallback_folder_.empty())
        throw ConfigError(kMLFlowLogger, ": ", error.what(),
                          error.may_pass ? "; start the server, or set fallback_folder to a folder for such runs" : "");
      warn(join(kMLFlowLogger, ": ", error.what(), "; the run is written to ", options_.fallback_folder));
      writer_->use(mlflow_file_store(fallback_folder_));
      start();
    }
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {
    throw ConfigError(kMLFlowLogger, ": a run cannot be begun at ", shown(uri_), ": ", error.what());
  }
}

}  // namespace

MLFlowLogger::MLFlowLogger(MLFlowLoggerOptions options)
    : RunLogger(
          kMLFlowLogger,
          {.when_full = options.when_full, .flush_interval = options.flush_interval, .on_failure = options.on_failure}),
      options_(checked(kMLFlowLogger, std::move(options), mlflow_logger_options())) {
  if (!options_.tracking_uri.empty() && !is_server(options_.tracking_uri)) folder_of(options_.tracking_uri);
  if (options_.experiment_name.size() > 500)
    throw ConfigError(kMLFlowLogger, ": experiment_name must have at most 500 bytes, got ",
                      options_.experiment_name.size());
}
MLFlowLogger::~MLFlowLogger() = default;
MLFlowLogger::MLFlowLogger(MLFlowLogger&&) noexcept = default;

std::unique_ptr<LogPlace> MLFlowLogger::make_place(const State& state) {
  writer_.reset();
  if (state.rank != 0) return nullptr;
  auto place = std::make_unique<MlflowPlace>(options_, state);
  writer_ = place->mlflow_writer();
  return place;
}

void MLFlowLogger::close(const State& state, Logger& logger) {
  if (const auto writer = std::move(writer_)) writer->set_status(status());
  RunLogger::close(state, logger);
}

std::string MLFlowLogger::run_id() const { return writer_ && is_open() ? writer_->run_id() : ""; }
std::string MLFlowLogger::experiment_id() const { return writer_ && is_open() ? writer_->experiment_id() : ""; }

namespace entries {

Entry<Loggers> mlflow() {
  return entry<MLFlowLogger>("mlflow", "Writes a run of MLflow, into a folder or to a server", mlflow_logger_options());
}

}  // namespace entries
}  // namespace composer::loggers
