#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/mlflow_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/http_server.h"
#include "tests/support/in_child.h"
#include "tests/support/warnings.h"

namespace composer::loggers::mlflow_server_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::HttpCall;
using test::HttpReply;

// As much of MLflow's server as the logger needs, with its limits.
class Tracking {
 public:
  std::string url() const { return server_.url(); }
  std::vector<HttpCall> calls() const { return server_.calls(); }

  std::atomic<bool> away = false;                   // answers 503
  std::string stage = "active";                     // of the experiment
  std::string artifacts = "mlflow-artifacts:/1/r";  // where the server keeps them
  std::string experiment, status;
  json run, metrics = json::array(), params = json::object(), tags = json::object();
  std::map<std::string, std::string> files;
  int runs = 0, batches = 0;
  std::string odd_path, odd;  // requests whose path begins so get this answer

 private:
  static HttpReply refuse(int status, const char* code) {
    return {status, json{{"error_code", code}, {"message", "refused"}}.dump()};
  }

  HttpReply answer(const HttpCall& call) {
    if (away) return refuse(503, "TEMPORARILY_UNAVAILABLE");
    const std::string root = "/api/2.0/mlflow/";
    if (call.method == "PUT") {
      files[call.target] = call.body;
      return {200, "{}"};
    }
    if (files.contains(call.target)) return {200, files[call.target]};
    if (!call.target.starts_with(root)) return refuse(404, "ENDPOINT_NOT_FOUND");
    const std::string path = call.target.substr(root.size());
    if (!odd_path.empty() && path.starts_with(odd_path)) return {200, odd};
    if (path.starts_with("artifacts/list?run_id=r1")) return list_artifacts(path);
    if (path.starts_with("experiments/get-by-name?experiment_name=")) {
      if (experiment.empty()) return refuse(404, "RESOURCE_DOES_NOT_EXIST");
      return {200, json{{"experiment", {{"experiment_id", "1"}, {"lifecycle_stage", stage}}}}.dump()};
    }
    if (path.starts_with("runs/get?run_id=")) {
      if (path != "runs/get?run_id=r1") return refuse(404, "RESOURCE_DOES_NOT_EXIST");
      json all = json::array();
      for (const auto& [key, value] : params.items()) all.push_back({{"key", key}, {"value", value}});
      return {200, json{{"run", {{"info", info()}, {"data", {{"params", all}}}}}}.dump()};
    }
    if (call.headers.at("content-type") != "application/json") return refuse(400, "BAD_REQUEST");
    const json body = json::parse(call.body);
    if (path == "experiments/create") {
      experiment = body.at("name");
      return {200, R"({"experiment_id":"1"})"};
    }
    if (path == "runs/create") {
      run = body;
      ++runs;
      status = "RUNNING";
      return {200, json{{"run", {{"info", info()}}}}.dump()};
    }
    if (path == "runs/update") {
      status = body.at("status");
      return {200, "{}"};
    }
    if (path == "runs/log-batch") return log_batch(body);
    return refuse(404, "ENDPOINT_NOT_FOUND");
  }

  // As MLflow: of one folder, with names below the run.
  HttpReply list_artifacts(const std::string& path) const {
    const std::string query = "&path=", root = "/api/2.0/mlflow-artifacts/artifacts/1/r/";
    const auto at = path.find(query);
    const std::string folder = at == std::string::npos ? "" : path.substr(at + query.size()) + '/';
    json all = json::array();
    for (const auto& [target, data] : files)
      if (const std::string name = target.substr(root.size()); name.starts_with(folder))
        all.push_back({{"path", name}, {"is_dir", false}, {"file_size", data.size()}});
    return {200, json{{"root_uri", artifacts}, {"files", all}}.dump()};
  }

  json info() const { return {{"run_id", "r1"}, {"experiment_id", "1"}, {"artifact_uri", artifacts}}; }

  HttpReply log_batch(const json& body) {
    ++batches;
    const auto list = [&](const char* key) { return body.value(key, json::array()); };
    if (list("metrics").size() > 1000 || list("params").size() > 100 || list("tags").size() > 100 ||
        body.dump().size() > 1'000'000)
      return refuse(400, "INVALID_PARAMETER_VALUE");
    for (const json& param : list("params"))
      if (param.at("key") == "refused") return refuse(400, "INVALID_PARAMETER_VALUE");
    for (const json& metric : list("metrics")) metrics.push_back(metric);
    for (const json& param : list("params")) params[param.at("key")] = param.at("value");
    for (const json& tag : list("tags")) tags[tag.at("key")] = tag.at("value");
    return {200, "{}"};
  }

  test::HttpServer server_{[this](const HttpCall& call) { return answer(call); }};
};

struct Run {
  explicit Run(MLFlowLoggerOptions options) : mlflow(std::move(options)) { state.run_name = "r"; }
  explicit Run(const Tracking& server)
      : Run(MLFlowLoggerOptions{.experiment_name = "e e", .tracking_uri = server.url(), .attempts = 1}) {}
  void init() { mlflow.init(state, logger); }
  void close() { mlflow.close(state, logger); }
  void fire(Event event) { mlflow.run_event(event, state, logger); }
  State state;
  MLFlowLogger mlflow;
  Logger logger{state, {&mlflow}};
};

TEST_CASE("MLFlowLogger makes the experiment of a server once, and a run for each fit") {
  Tracking server;
  for (int i = 0; i < 2; ++i) {
    Run run(server);
    run.init();
    CHECK(run.mlflow.run_id() == "r1");
    CHECK(run.mlflow.experiment_id() == "1");
    CHECK(server.status == "RUNNING");
    run.close();
    CHECK(server.status == "FINISHED");
  }
  CHECK(server.experiment == "e e");
  CHECK(server.runs == 2);
  CHECK(server.calls()[0].target == "/api/2.0/mlflow/experiments/get-by-name?experiment_name=e%20e");
  CHECK(server.run["run_name"] == "r");
  CHECK(server.run["experiment_id"] == "1");
  CHECK(server.run["start_time"] > 1'700'000'000'000);
  CHECK(server.run["tags"].dump().find("mlflow.source.type") != std::string::npos);
}

TEST_CASE("MLFlowLogger sends metrics with time and step, and what JSON cannot express as text") {
  Tracking server;
  Run run(server);
  run.fire(Event::FIT_START);
  run.logger.log_metrics({{"a", at::full({}, 0.25)}, {"nan", std::nan("")}}, 3);
  run.logger.log_metrics({{"inf", std::numeric_limits<double>::infinity()}}, 4);
  run.close();
  REQUIRE(server.metrics.size() == 3);
  CHECK(server.metrics[0]["key"] == "a");
  CHECK(server.metrics[0]["value"] == 0.25);
  CHECK(server.metrics[0]["step"] == 3);
  CHECK(server.metrics[0]["timestamp"] > 1'700'000'000'000);
  CHECK(server.metrics[1]["value"] == "NaN");
  CHECK(server.metrics[2]["value"] == "Infinity");
  CHECK(server.status == "FAILED");
}

TEST_CASE("MLFlowLogger stays within the limits of a call") {
  Tracking server;
  Run run(server);
  for (std::int64_t step = 0; step < 2500; ++step) run.logger.log_metrics({{"a", step}}, step);
  for (int i = 0; i < 250; ++i) {
    const std::string key = join("p", i);
    run.logger.log_hyperparameters({{key, std::string(7000, 'x')}});
  }
  run.close();
  CHECK(server.metrics.size() == 2500);
  CHECK(server.params.size() == 250);
  CHECK(std::string(server.params["p7"]).size() == 6000);
  CHECK(server.batches >= 6);
}

TEST_CASE("Texts of many bytes are sent by MLFlowLogger in calls that MLflow takes") {
  Tracking server;
  Run run(server);
  std::string text;
  for (int i = 0; i < 8000; ++i) text += "ä";
  for (int i = 0; i < 100; ++i) {
    const std::string key = join("t", i);
    run.logger.log_metrics({{key, text}}, 1);
  }
  run.close();
  CHECK(server.batches >= 2);
  for (int i = 0; i < 100; ++i) CHECK(server.tags[join("t", i)] == text);
}

TEST_CASE("MLFlowLogger sends artifacts through the server also if it names itself where it keeps them") {
  Tracking server;
  server.artifacts = "mlflow-artifacts://host:5000/1/r";
  Run run(server);
  run.logger.log_images("i", {.images = at::zeros({2, 2})}, 7);
  run.close();
  REQUIRE(server.files.size() == 1);
  CHECK(server.files.begin()->first == "/api/2.0/mlflow-artifacts/artifacts/1/r/images/i/7_0.png");
}

TEST_CASE("MLFlowLogger sends artifacts through the server, with encoded names") {
  Tracking server;
  Run run(server);
  run.logger.log_images("eval/ä b", {.images = at::zeros({2, 2})}, 7);
  run.close();
  REQUIRE(server.files.size() == 1);
  const auto& [target, data] = *server.files.begin();
  CHECK(target == "/api/2.0/mlflow-artifacts/artifacts/1/r/images/eval/%C3%A4%20b/7_0.png");
  CHECK(data.starts_with("\x89PNG"));
}

TEST_CASE("A file that a server of MLflow has is replaced with overwrite, and without may have the same contents") {
  const test::Folder folder;
  const auto write = [&](const char* name, const char* text) {
    std::ofstream(folder / name) << text;
    return folder / name;
  };
  for (const std::string name : {"x", "plots/x"}) {
    CAPTURE(name);
    Tracking server;
    const test::Warnings warnings;
    Run run({.tracking_uri = server.url(), .log_artifacts = true, .attempts = 1, .flush_interval = Seconds(3600)});
    run.init();
    const std::string one = write("a", "one"), two = write("b", "two"), three = write("c", "three");
    for (const std::string& path : {one, one, two, three}) run.logger.upload_file({.path = path, .name = name});
    run.logger.log_metrics({{"a", 1.0}}, 7);
    run.mlflow.flush();
    CHECK(server.files.at("/api/2.0/mlflow-artifacts/artifacts/1/r/" + name) == "one");
    run.logger.upload_file({.path = two, .name = name, .overwrite = true});
    run.close();
    CHECK(server.files.at("/api/2.0/mlflow-artifacts/artifacts/1/r/" + name) == "two");
    CHECK(server.metrics.size() == 1);
    CHECK(warnings.say(name + " exists with other contents"));
    CHECK(warnings.say("2 records could not be written"));
  }
}

TEST_CASE("Answers that are not MLflow's are errors at INIT, and later cost records and not the run") {
  struct Row {
    const char *path, *answer;
  };
  for (const auto& [path, answer] : {Row{"experiments/get-by-name", R"({"experiment":null})"},
                                     {"experiments/get-by-name", R"({"experiment":{"experiment_id":7}})"},
                                     {"experiments/get-by-name", R"({"experiment":{"lifecycle_stage":null}})"},
                                     {"runs/create", "{}"},
                                     {"runs/create", R"({"run":{"info":{"run_id":null}}})"},
                                     {"runs/create", R"({"run":{"info":{"run_id":"r1","artifact_uri":null}}})"}}) {
    CAPTURE(answer);
    Tracking server;
    server.experiment = "e e";
    server.odd_path = path;
    server.odd = answer;
    Run run(server);
    CHECK_THROWS_WITH_AS(run.init(), doctest::Contains("did not answer"), ConfigError);
  }
  const test::Folder folder;
  std::ofstream(folder / "a") << "one";
  for (const auto& [path, answer] : {Row{"artifacts/list", R"({"files":7})"},
                                     {"artifacts/list", R"({"files":[7]})"},
                                     {"artifacts/list", R"({"files":[{"path":null}]})"},
                                     {"artifacts/list", R"({"files":[{"path":"x","file_size":"y"}]})"}}) {
    CAPTURE(answer);
    Tracking server;
    const test::Warnings warnings;
    Run run({.tracking_uri = server.url(), .log_artifacts = true, .attempts = 1});
    run.init();
    server.odd_path = path;
    server.odd = answer;
    run.logger.upload_file({.path = folder / "a", .name = "x"});
    run.logger.log_metrics({{"a", 1.0}}, 7);
    run.close();
    CHECK(server.metrics.size() == 1);
    CHECK(server.status == "FINISHED");
    CHECK(warnings.say("did not answer"));
    CHECK(warnings.say("1 records could not be written"));
  }
}

TEST_CASE("Artifacts that only Python's client could write are missing, and the metrics are not") {
  Tracking server;
  server.artifacts = "s3://bucket/1/r";
  const test::Warnings warnings;
  Run run(server);
  run.logger.log_images("i", {.images = at::zeros({2, 2})}, 7);
  run.logger.log_metrics({{"a", 1.0}}, 7);
  run.mlflow.flush();
  run.close();
  CHECK(server.metrics.size() == 1);
  CHECK(warnings.say("s3://bucket/1/r"));
  CHECK(warnings.say("1 records could not be written"));
}

TEST_CASE("A call that MLflow refuses is missing, and what follows is not") {
  Tracking server;
  const test::Warnings warnings;
  Run run(server);
  run.logger.log_hyperparameters({{"refused", 1.0}});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.mlflow.flush();
  run.close();
  CHECK(server.metrics.size() == 1);
  CHECK(warnings.say("INVALID_PARAMETER_VALUE"));
  CHECK(warnings.say("1 records could not be written"));
  CHECK(server.status == "FINISHED");
}

TEST_CASE("A server that goes away costs records, which are counted, and not the run") {
  Tracking server;
  const test::Warnings warnings;
  Run run(server);
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.mlflow.flush();
  server.away = true;
  run.logger.log_metrics({{"a", 2.0}}, 2);
  run.logger.log_metrics({{"a", 3.0}}, 3);
  run.mlflow.flush();
  CHECK(warnings.say("training continues, and records are dropped"));
  server.away = false;
  run.logger.log_metrics({{"a", 4.0}}, 4);
  run.close();
  REQUIRE(server.metrics.size() == 2);
  CHECK(server.metrics[1]["step"] == 4);
  CHECK(warnings.say("2 records could not be written and are missing in http://127.0.0.1"));
  CHECK(server.status == "FINISHED");
}

TEST_CASE("A request is sent once to a server that has not answered yet, whatever attempts says") {
  Tracking server;
  server.away = true;
  Run run(MLFlowLoggerOptions{.tracking_uri = server.url(), .attempts = 2});
  CHECK_THROWS(run.init());
  CHECK(server.calls().size() == 1);
}

TEST_CASE("With on_failure FAIL a server that goes away ends the run") {
  Tracking server;
  const test::Warnings warnings;
  Run run(MLFlowLoggerOptions{.tracking_uri = server.url(), .attempts = 1, .on_failure = LogFailure::FAIL});
  run.init();
  server.away = true;
  run.logger.log_metrics({{"a", 2.0}}, 2);
  CHECK_THROWS_AS(run.mlflow.flush(), Error);
  run.close();
}

TEST_CASE("A server that is away at the start is an error at INIT, or the run goes to fallback_folder") {
  const std::string url = test::refusing_url();
  Run strict(MLFlowLoggerOptions{.tracking_uri = url});
  CHECK_THROWS_WITH_AS(strict.init(), doctest::Contains("set fallback_folder"), ConfigError);
  strict.close();
  const test::Folder folder;
  const test::Warnings warnings;
  Run run(MLFlowLoggerOptions{.tracking_uri = url, .fallback_folder = folder / "mlruns"});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  const std::string id = run.mlflow.run_id();
  run.close();
  CHECK(warnings.say("the run is written to"));
  bool found = false;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "mlruns"))
    found = found || entry.path().string().ends_with(id + "/metrics/a");
  CHECK(found);
}

// In a child, because the working directory is the process's.
TEST_CASE("The fallback_folder of a resumed run is that of the working directory at INIT") {
  const std::string url = test::refusing_url();
  const test::Folder folder;
  fs::create_directories(folder / "elsewhere");
  const int status = test::status_of_child([&] {
    const test::Warnings quiet;
    fs::current_path(folder.path());
    Run run(MLFlowLoggerOptions{.tracking_uri = url, .fallback_folder = "mlruns"});
    run.state.resumes = true;
    run.init();
    fs::current_path(folder / "elsewhere");
    run.fire(Event::FIT_START);
    run.logger.log_metrics({{"a", 1.0}}, 1);
    run.close();
  });
  CHECK(test::ended_well(status));
  CHECK(fs::is_empty(folder / "elsewhere"));
  CHECK(fs::exists(folder / "mlruns"));
}

TEST_CASE("What is no server of MLflow, and a deleted experiment, are errors that say so") {
  const test::HttpServer other([](const HttpCall&) { return HttpReply{200, "<html>"}; });
  Run run(MLFlowLoggerOptions{.tracking_uri = other.url(), .attempts = 1});
  CHECK_THROWS_WITH_AS(run.init(), doctest::Contains("is it a server of MLflow?"), ConfigError);
  const test::HttpServer odd([](const HttpCall&) { return HttpReply{200, "{}"}; });
  Run strange(MLFlowLoggerOptions{.tracking_uri = odd.url(), .attempts = 1});
  CHECK_THROWS_WITH_AS(strange.init(), doctest::Contains("a run cannot be begun"), ConfigError);
  Tracking server;
  server.experiment = "e e";
  server.stage = "deleted";
  Run deleted(server);
  CHECK_THROWS_WITH_AS(deleted.init(), doctest::Contains("is deleted; restore it"), ConfigError);
}

TEST_CASE("MLFlowLogger sends the token of the environment, and messages show no password") {
  Tracking server;
  Run run(server);
  ::setenv("MLFLOW_TRACKING_TOKEN", "secret", 1);
  run.init();
  ::unsetenv("MLFLOW_TRACKING_TOKEN");
  run.close();
  for (const HttpCall& call : server.calls()) CHECK(call.headers.at("authorization") == "Bearer secret");
  const std::string url = test::refusing_url();
  Run away(MLFlowLoggerOptions{.tracking_uri = "http://me:word@" + url.substr(7)});
  try {
    away.init();
    FAIL("nothing was thrown");
  } catch (const ConfigError& error) {
    CHECK(std::string(error.what()).find("word") == std::string::npos);
  }
}

TEST_CASE("A resumed run continues the run of its checkpoint at the server, and begins another if that is gone") {
  Tracking server;
  Run killed(server);
  killed.logger.log_hyperparameters({{"lr", 0.5}});
  killed.mlflow.flush();
  StateDict checkpoint;
  StateVisitor saving = StateVisitor::saving(checkpoint);
  killed.mlflow.visit_state(saving);
  killed.close();
  for (const bool is_there : {true, false}) {
    if (!is_there) checkpoint["run_id"] = std::string("gone");
    const test::Warnings warnings;
    Run resumed(server);
    resumed.state.resumes = true;
    resumed.init();
    StateVisitor loading = StateVisitor::loading(checkpoint, "ck");
    resumed.mlflow.visit_state(loading);
    resumed.fire(Event::AFTER_LOAD);
    resumed.fire(Event::FIT_START);
    CHECK(server.status == "RUNNING");
    CHECK(server.runs == (is_there ? 1 : 2));
    CHECK(warnings.say("a new run is begun") != is_there);
    resumed.logger.log_hyperparameters({{"lr", 0.25}});
    resumed.fire(Event::FIT_END);
    resumed.close();
    CHECK(server.params["lr"] == (is_there ? "0.5" : "0.25"));
    if (is_there) CHECK(server.tags["lr"] == "0.25");
  }
}

}  // namespace
}  // namespace composer::loggers::mlflow_server_test
