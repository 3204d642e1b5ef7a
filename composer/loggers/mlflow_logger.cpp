#include "composer/loggers/mlflow_logger.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/background_option.h"
#include "composer/loggers/mlflow_store.h"
#include "composer/loggers/mlflow_writer.h"
#include "composer/loggers/no_writer.h"
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

// The folder that a URI without a server means. Throws ConfigError for one that means none.
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

}  // namespace

struct MLFlowLogger::Open {
  std::shared_ptr<MlflowWriter> writer;  // null for a rank other than 0
  std::string name, run_name;
  std::string fallback_folder;  // absolute
  std::string previous_id;      // of the checkpoint's run, to be continued
  std::int64_t previous_time = 0;
};

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

std::shared_ptr<RecordWriter> MLFlowLogger::make_writer(const State& state) {
  open_ = std::make_unique<Open>();
  if (state.rank != 0) return std::make_shared<NoWriter>();
  open_->run_name = state.run_name;
  open_->name = or_else(options_.run_name, state.run_name);
  if (const std::string& folder = options_.fallback_folder; !folder.empty())
    open_->fallback_folder = std::filesystem::absolute(folder_of(folder));
  const std::string uri = tracking_uri(options_);
  const auto writer = std::make_shared<MlflowWriter>(options_, store_at(uri, options_.attempts), shown(uri));
  open_->writer = writer;
  state.resumes ? hold() : begin();
  return writer;
}

// Begins or continues the run; in the other folder, if the server is away and there is one.
void MLFlowLogger::start(const std::function<void()>& start) {
  MlflowWriter& writer = *open_->writer;
  const std::string uri = tracking_uri(options_);
  try {
    try {
      start();
    } catch (const net::HttpError& error) {
      if (!error.may_pass || options_.fallback_folder.empty())
        throw ConfigError(kMLFlowLogger, ": ", error.what(),
                          error.may_pass ? "; start the server, or set fallback_folder to a folder for such runs" : "");
      warn(join(kMLFlowLogger, ": ", error.what(), "; the run is written to ", options_.fallback_folder));
      writer.use(mlflow_file_store(open_->fallback_folder));
      start();
    }
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {
    throw ConfigError(kMLFlowLogger, ": a run cannot be begun at ", shown(uri), ": ", error.what());
  }
}

void MLFlowLogger::begin() {
  start([&] {
    open_->writer->begin(experiment_of(options_), open_->name, tags_of(options_, open_->name, open_->run_name));
  });
}

void MLFlowLogger::resume() {
  start([&] {
    if (open_->writer->resume(open_->previous_id, open_->previous_time)) return;
    warn(join(kMLFlowLogger, ": ", open_->writer->where(), " has no run ", open_->previous_id,
              ", which the checkpoint names; a new run is begun"));
    open_->writer->begin(experiment_of(options_), open_->name, tags_of(options_, open_->name, open_->run_name));
  });
}

void MLFlowLogger::after_load(const State&, Logger&) {
  if (is_holding() && open_->previous_id.empty()) open_held([this] { begin(); });
}

void MLFlowLogger::fit_start(const State& state, Logger& logger) {
  RunLogger::fit_start(state, logger);
  if (is_holding()) open_held([this] { open_->previous_id.empty() ? begin() : resume(); });
}

void MLFlowLogger::close(const State& state, Logger& logger) {
  if (open_ && open_->writer) open_->writer->set_status(status());
  const std::unique_ptr<Open> open = std::move(open_);
  RunLogger::close(state, logger);
}

void MLFlowLogger::visit_state(StateVisitor& visit) {
  if (!open_ || !open_->writer) return;
  std::string id;
  std::int64_t time = 0;
  if (!visit.is_loading()) {
    if (!is_open() && open_->previous_id.empty()) return;
    // What precedes the checkpoint: a run that goes on from it does not log it again. Not sync(), which has no limit: a
    // server may be slow.
    flush();
    id = is_open() ? open_->writer->run_id() : open_->previous_id;
    time = is_open() ? open_->writer->end_of_points() : open_->previous_time;
  }
  visit("run_id", id);
  visit("time", time);
  if (!visit.is_loading()) return visit_missing(visit);
  if (!is_holding()) return;  // another run's is not this one's
  open_->previous_id = id;
  open_->previous_time = time;
  visit_missing(visit);
}

std::string MLFlowLogger::run_id() const { return open_ && open_->writer && is_open() ? open_->writer->run_id() : ""; }
std::string MLFlowLogger::experiment_id() const {
  return open_ && open_->writer && is_open() ? open_->writer->experiment_id() : "";
}

namespace entries {

Entry<Loggers> mlflow() {
  return entry<MLFlowLogger>("mlflow", "Writes a run of MLflow, into a folder or to a server", mlflow_logger_options());
}

}  // namespace entries
}  // namespace composer::loggers
