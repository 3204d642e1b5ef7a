#include <cmath>
#include <filesystem>
#include <optional>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/loggers/json_text.h"
#include "composer/loggers/logged_file.h"
#include "composer/loggers/mlflow_store.h"
#include "composer/loggers/number_text.h"
#include "composer/net/http.h"
#include "composer/util/environment.h"
#include "composer/util/json.h"
#include "composer/util/temporary.h"

namespace composer::loggers {
namespace {

using std::chrono_literals::operator""s;

using nlohmann::json;

// JSON has no NaN and no infinities, so they become texts that MLflow reads.
void append_json_number(std::string& json, double value) {
  if (std::isfinite(value))
    append_number(json, value);
  else
    json += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
}

const char* name_of(RunStatus status) {
  switch (status) {
    case RunStatus::FINISHED:
      return "FINISHED";
    case RunStatus::FAILED:
      return "FAILED";
    case RunStatus::KILLED:
      break;
  }
  return "KILLED";
}

// `total_limit`: limits the whole request, also if the answer comes byte by byte.
net::HttpOptions mlflow_http_options(std::int64_t attempts, std::chrono::seconds total_limit) {
  net::HttpOptions options;
  options.total_limit = total_limit;
  options.stall_limit = std::chrono::seconds(30);
  options.retry.attempts = static_cast<int>(attempts);
  options.retry.longest_retry_after = std::chrono::seconds(10);
  return options;
}

class ServerStore final : public MlflowStore {
 public:
  ServerStore(std::string url, std::int64_t attempts)
      : url_(std::move(url)), calls_(mlflow_http_options(attempts, 60s)), files_(mlflow_http_options(attempts, 0s)) {
    while (url_.ends_with('/')) url_.pop_back();
    if (const std::string token = environment("MLFLOW_TRACKING_TOKEN"); !token.empty())
      authorization_ = join("Bearer ", token);
  }

  std::string where() const override { return net::shown_url(url_); }
  std::string experiment_id() const override { return experiment_; }

  std::string begin(const std::string& experiment, const std::string& name, const MlflowTexts& tags,
                    std::int64_t time) override {
    return reading([&] {
      experiment_ = find_or_make_experiment(experiment);
      const json answer =
          post("runs/create",
               {{"experiment_id", experiment_}, {"run_name", name}, {"start_time", time}, {"tags", items(tags)}},
               /*repeat=*/false);  // repeating the request would create another run
      return open(answer.at("run").at("info"));
    });
  }

  bool resume(const std::string& run_id, std::int64_t, MlflowPast& past) override {
    return reading([&] { return resume(run_id, past.params); });
  }

  MlflowLost log_metrics(std::span<const MlflowMetric> metrics) override {
    log_in_batches("metrics", metrics, 1000, [](std::string& body, const MlflowMetric& metric) {
      (body += R"({"key":)") += json_text(metric.key);
      append_json_number(body += R"(,"value":)", metric.value);
      append_number(body += R"(,"timestamp":)", metric.time);
      append_number(body += R"(,"step":)", metric.step);
      body += '}';
    });
    return {};
  }

  void log_params(const MlflowTexts& params) override { log_texts("params", params); }
  void set_tags(const MlflowTexts& tags) override { log_texts("tags", tags); }

  void log_artifact(const MlflowArtifact& artifact) override {
    if (!artifact.overwrite && reading([&] { return exists_alike(artifact); })) return;
    net::HttpRequest request{.method = "PUT", .url = artifact_url(artifact.path)};
    request.headers = headers("application/octet-stream");
    if (artifact.file.empty())
      request.body = artifact.data;
    else
      request.body = net::FilePart{.path = artifact.file};
    send(std::move(request), files_);
  }

  void end(RunStatus status, std::int64_t time) override {
    post("runs/update", {{"run_id", id_}, {"status", name_of(status)}, {"end_time", time}});
  }

 private:
  // Converts the error for an answer that lacks MLflow's fields into an Error.
  template <class Read>
  std::invoke_result_t<Read> reading(const Read& read) const {
    try {
      return read();
    } catch (const json::exception& error) {
      throw Error(kMLFlowLogger, ": ", where(), " did not answer as MLflow does: ", error.what());
    }
  }

  bool resume(const std::string& run_id, MlflowTexts& params) {
    try {
      const json run = get("runs/get?run_id=" + net::percent_encoded(run_id)).at("run");
      if (run.at("info").value("lifecycle_stage", "active") != "active") return false;
      experiment_ = run.at("info").at("experiment_id");
      open(run.at("info"));
      for (const json& param : run.value("data", json::object()).value("params", json::array()))
        params[param.at("key")] = param.value("value", "");
    } catch (const net::HttpError& error) {
      if (error.code == "RESOURCE_DOES_NOT_EXIST" || error.code == "INVALID_PARAMETER_VALUE") return false;
      throw;
    }
    post("runs/update", {{"run_id", id_}, {"status", "RUNNING"}});
    return true;
  }

  // Whether the server has the file. Throws if it has a different file with this name.
  bool exists_alike(const MlflowArtifact& artifact) {
    const std::optional<std::uint64_t> size = artifact_size(artifact.path);
    if (!size) return false;
    if (*size != size_of_file(artifact.file) || !has_contents_of(artifact))
      reject_other_contents(join(where(), ": ", artifact.path));
    return true;
  }

  std::optional<std::uint64_t> artifact_size(const std::string& path) {
    const auto slash = path.rfind('/');
    std::string query = "artifacts/list?run_id=" + net::percent_encoded(id_);
    if (slash != std::string::npos) query += "&path=" + net::percent_encoded(path.substr(0, slash), true);
    const json answer = get(query);
    for (const json& file : answer.value("files", json::array()))
      if (file.at("path").get<std::string>() == path) return file.value("file_size", std::uint64_t{0});
    return {};
  }

  bool has_contents_of(const MlflowArtifact& artifact) {
    const util::Temporary there(util::TemporaryKind::FILE, "composer-");
    net::HttpRequest request{.url = artifact_url(artifact.path)};
    request.headers = headers("application/octet-stream");
    request.to_file = there.path();
    send(std::move(request), files_);
    return same_contents(artifact.file, there.path());
  }

  static json items(const MlflowTexts& texts) {
    json all = json::array();
    for (const auto& [key, text] : texts) all.push_back({{"key", key}, {"value", text}});
    return all;
  }

  std::string open(const json& info) {
    id_ = info.at("run_id");
    artifacts_ = info.value("artifact_uri", "");
    return id_;
  }

  std::string find_or_make_experiment(const std::string& name) {
    if (const std::string found = find_experiment(name); !found.empty()) return found;
    try {
      return post("experiments/create", {{"name", name}}).at("experiment_id");
    } catch (const net::HttpError& error) {
      if (error.code != "RESOURCE_ALREADY_EXISTS") throw;
      return find_experiment(name);  // another process has created it first
    }
  }

  std::string find_experiment(const std::string& name) {
    json experiment;
    try {
      experiment = get("experiments/get-by-name?experiment_name=" + net::percent_encoded(name)).at("experiment");
    } catch (const net::HttpError& error) {
      if (error.code == "RESOURCE_DOES_NOT_EXIST") return {};
      throw;
    }
    if (experiment.value("lifecycle_stage", "active") != "active")
      throw ConfigError(kMLFlowLogger, ": experiment ", name, " of ", where(),
                        " is deleted; restore it, delete it permanently, or choose another experiment_name");
    return experiment.at("experiment_id");
  }

  void log_texts(const char* kind, const MlflowTexts& texts) {
    log_in_batches(kind, texts, 100, [](std::string& body, const auto& text) {
      (body += R"({"key":)") += json_text(text.first);
      ((body += R"(,"value":)") += json_text(text.second)) += '}';
    });
  }

  // MLflow rejects longer requests as a whole.
  template <class Items, class Append>
  void log_in_batches(const char* kind, const Items& items, std::size_t most, const Append& append) {
    constexpr std::size_t kMostBytes = 900'000;
    const std::string begin = join(R"({"run_id":)", json_text(id_), R"(,")", kind, R"(":[)");
    std::string body = begin, item;
    std::size_t count = 0;
    const auto send_batch = [&] {
      if (count > 0) call("POST", "runs/log-batch", std::exchange(body, begin) + "]}", /*repeat=*/true);
      count = 0;
    };
    for (const auto& one : items) {
      item.clear();
      append(item, one);
      if (count == most || body.size() + item.size() > kMostBytes) send_batch();
      if (count++ > 0) body += ',';
      body += item;
    }
    send_batch();
  }

  std::string artifact_url(const std::string& path) const {
    constexpr std::string_view kScheme = "mlflow-artifacts:";
    if (!artifacts_.starts_with(kScheme))
      throw Error(kMLFlowLogger, ": ", where(), " keeps artifacts at ", artifacts_,
                  ", where only Python's client writes; start ", "the server with --serve-artifacts");
    std::string root = artifacts_.substr(kScheme.size());
    // The root names the server.
    if (root.starts_with("//")) root = root.substr(std::min(root.find('/', 2), root.size()));
    return join(url_, "/api/2.0/mlflow-artifacts/artifacts", net::percent_encoded(root + '/' + path, true));
  }

  std::vector<net::HttpHeader> headers(const char* type) const {
    std::vector<net::HttpHeader> all = {{"Content-Type", type}};
    if (!authorization_.empty()) all.push_back({"Authorization", authorization_});
    return all;
  }

  // While the server cannot be reached, requests are not repeated, so that records do not pile up.
  net::HttpResponse send(net::HttpRequest request, net::HttpClient& client) {
    if (is_away_) request.repeat = false;
    try {
      net::HttpResponse response = client.send(request);
      is_away_ = false;
      return response;
    } catch (const net::HttpError& error) {
      is_away_ = error.may_pass;
      throw;
    }
  }

  json call(const char* method, const std::string& path, std::string body, bool repeat) {
    net::HttpRequest request{.method = method, .url = join(url_, "/api/2.0/mlflow/", path)};
    request.headers = headers("application/json");
    request.repeat = repeat;
    if (!body.empty()) request.body = std::move(body);
    const std::string answer = send(std::move(request), calls_).body;
    const json parsed = util::parse_json_or_discard<json>(answer.empty() ? std::string("{}") : answer);
    if (parsed.is_discarded() || !parsed.is_object())
      throw Error(kMLFlowLogger, ": ", where(), " did not answer ", path, " with JSON; is it a server of MLflow?");
    return parsed;
  }
  json get(const std::string& path) { return call("GET", path, {}, true); }
  json post(const char* path, const json& body, bool repeat = true) {
    return call("POST", path, body.dump(-1, ' ', false, json::error_handler_t::replace), repeat);
  }

  std::string url_, authorization_, experiment_, id_, artifacts_;
  net::HttpClient calls_, files_;
  bool is_away_ = true;  // true until the server has answered
};

}  // namespace

std::unique_ptr<MlflowStore> mlflow_server_store(const std::string& url, std::int64_t attempts) {
  return std::make_unique<ServerStore>(url, attempts);
}

}  // namespace composer::loggers
