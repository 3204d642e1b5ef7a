#include "composer/callbacks/mlperf_callback.h"

#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <source_location>
#include <spawn.h>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include <c10/core/DeviceType.h>

#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "composer/callbacks/callback_files.h"
#include "composer/callbacks/direction.h"
#include "composer/callbacks/mlperf_system.h"
#include "composer/callbacks/stop_finished.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/logger.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/core/stop.h"
#include "composer/util/absolute_format.h"
#include "composer/util/log_mark.h"
#include "composer/util/new_file.h"
#include "composer/util/output_file.h"
#include "composer/util/set_aside.h"
#include "composer/util/text.h"
#include "composer/util/wall_clock.h"

namespace composer::callbacks {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string name_of(MLPerfBenchmark benchmark) { return benchmark == MLPerfBenchmark::RESNET ? "resnet" : "bert"; }
std::string name_of(MLPerfStatus status) {
  return status == MLPerfStatus::ONPREM ? "onprem" : status == MLPerfStatus::CLOUD ? "cloud" : "preview";
}

std::string json_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string system_name(const MLPerfCallbackOptions& options, const State& state) {
  if (!options.system_name.empty()) return options.system_name;
  return join(state.world_size, 'x', c10::DeviceTypeName(state.device.type(), /*lower_case=*/true), "_composer");
}

// Runs a program of $PATH and waits for it. Throws ConfigError unless it exits with 0.
void run_program(const std::string& command) {
  util::InText text(command);
  std::vector<std::string> words(std::istream_iterator<std::string>{text}, {});
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = 0;
  if (const int code = ::posix_spawnp(&process, arguments[0], nullptr, nullptr, arguments.data(), environ); code != 0)
    throw ConfigError("MLPerfCallback: cache_clear_cmd \"", command,
                      "\" cannot be run: ", std::generic_category().message(code));
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  throw ConfigError("MLPerfCallback: cache_clear_cmd \"", command, "\" failed with ",
                    WIFEXITED(status) ? join("status ", WEXITSTATUS(status)) : join("signal ", WTERMSIG(status)));
}

std::vector<Option<MLPerfCallbackOptions>> mlperf_callback_options() {
  using O = MLPerfCallbackOptions;
  return all_options(
      option("root_folder", &O::root_folder).example("mlperf").refuses({"", "{run_name"}),
      option("index", &O::index).example("0").at_least(0),
      option("benchmark", &O::benchmark, {{"resnet", MLPerfBenchmark::RESNET}, {"bert", MLPerfBenchmark::BERT}}),
      option("target", &O::target)
          .must("be finite", [](double target) { return std::isfinite(target); })
          .refuses({"inf"}),
      option("division", &O::division)
          .must("be \"open\"", [](const std::string& name) { return name == "open"; })
          .refuses({"closed"}),
      option("metric_name", &O::metric_name).not_empty(), option("metric_label", &O::metric_label).not_empty(),
      option("submitter", &O::submitter).not_empty(),
      option("system_name", &O::system_name)
          .must("not contain a slash", [](const std::string& name) { return name.find('/') == std::string::npos; })
          .refuses({"a/b"}),
      option("status", &O::status,
             {{"onprem", MLPerfStatus::ONPREM}, {"cloud", MLPerfStatus::CLOUD}, {"preview", MLPerfStatus::PREVIEW}}),
      option("cache_clear_cmd", &O::cache_clear_cmd)
          .must("name a program",
                [](const std::string& words) {
                  return words.empty() || words.find_first_not_of(' ') != std::string::npos;
                })
          .refuses({" "}),
      option("host_processors_per_node", &O::host_processors_per_node).at_least(0),
      option("train_samples", &O::train_samples).at_least(0), option("eval_samples", &O::eval_samples).at_least(0),
      option("exit_at_target", &O::exit_at_target));
}

MLPerfCallbackOptions checked_mlperf(MLPerfCallbackOptions options) {
  if (options.root_folder.empty()) throw ConfigError("MLPerfCallback: root_folder is required");
  check_file_names("MLPerfCallback", {{"root_folder", options.root_folder}});
  return checked("MLPerfCallback", std::move(options), mlperf_callback_options());
}

}  // namespace

// The file, and what was logged to it before.
struct MLPerfCallback::Log {
  enum class Type : std::uint8_t { POINT_IN_TIME, INTERVAL_START, INTERVAL_END };

  // `begins_again`: the file is of a process of this run that has left no checkpoint, unless the file is of a run that
  // has ended.
  Log(const std::string& given, bool resumes, bool begins_again) : path(given) {
    std::error_code ignored;
    const bool exists = fs::exists(path, ignored);
    read();
    if (exists && !resumes && (!begins_again || stopped))
      throw ConfigError("MLPerfCallback: the result ", path, " exists; choose another index or root_folder");
    is_resumed = resumes && started;
    is_left = exists && !resumes;
    if (!resumes) forget();
    if (!is_resumed && !is_left) open();  // otherwise another process may be training the run until FIT_START
  }

  void open() { file.emplace("MLPerfCallback", path, util::FileMode::APPEND, util::Writers::ONE); }

  void begin_again() {
    const std::string aside = util::set_aside("MLPerfCallback", path);
    warn(join("MLPerfCallback: ", path, " is the result of an earlier process of this run, of which no checkpoint is ",
              "left; it is kept as ", aside));
    open();
    file->write(std::exchange(held, {}));
  }

  // Continues the log of a resumed run.
  void open_own() {
    using enum util::LogMark::Match;
    const auto match = mark ? mark->compare(path) : SAME;  // older checkpoints have no mark
    if (match == OTHER)
      throw ConfigError("MLPerfCallback: ", path, " is not the result of this run, although it exists; choose another ",
                        "index or root_folder");
    if (match == SHORTER) warn(join("MLPerfCallback: ", path, " is shorter than when the checkpoint was written"));
    open();
    if (mark && mark->compare(path) == SAME) file->cut(mark->size);  // no other process writes to it now
    forget();
    read();
  }

  void forget() { started = stopped = has_batch_size = has_train_samples = has_eval_samples = false; }

  void read() {
    std::ifstream before(path);
    for (std::string line; std::getline(before, line);)
      for (auto [key, seen] :
           {std::pair("run_start", &started), std::pair("run_stop", &stopped),
            std::pair("global_batch_size", &has_batch_size), std::pair("train_samples", &has_train_samples),
            std::pair("eval_samples", &has_eval_samples)})
        if (line.find(join("\"key\": \"", key, '"')) != std::string::npos) *seen = true;
  }

  void write(const char* key, const Json& value = nullptr, Json metadata = Json::object(),
             Type type = Type::POINT_IN_TIME, const std::source_location& where = std::source_location::current()) {
    static constexpr std::array kTypes = {"POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"};
    metadata["file"] = "composer/callbacks/mlperf_callback.cpp";
    metadata["lineno"] = where.line();
    const std::string line =
        join(":::MLLOG {\"namespace\": \"\", \"time_ms\": ", static_cast<std::int64_t>(seconds_since_1970() * 1000),
             ", \"event_type\": \"", kTypes.at(static_cast<std::size_t>(type)), "\", \"key\": ", json_line(key),
             ", \"value\": ", json_line(value), ", \"metadata\": ", json_line(metadata), "}\n");
    if (file)
      file->write(line);
    else
      held += line;
  }

  void visit_state(StateVisitor& visit, util::LogMark& with) {
    with.visit_state(visit);
    visit("epoch", epoch);
    visit("first_sample", first_sample);
    visit("whole_epoch", whole_epoch);
  }

  bool running() const { return file && started && !stopped; }

  std::string path;
  std::optional<util::OutputFile> file;   // unset until FIT_START if the file exists at INIT
  std::string held;                       // lines to be written when the file is opened
  std::optional<util::LogMark> mark;      // as saved in the checkpoint
  bool is_resumed = false;                // the log existed at INIT
  bool is_left = false;                   // the log existed, and is of a process that has left no checkpoint
  bool started = false, stopped = false;  // whether the run has started and stopped
  bool has_batch_size = false, has_train_samples = false, has_eval_samples = false;
  std::int64_t epoch = 0;         // number of the current block
  std::int64_t first_sample = 0;  // of the current epoch
  bool whole_epoch = false;       // whether the epoch was seen from its beginning
};

MLPerfCallback::MLPerfCallback(MLPerfCallbackOptions options) : options_(checked_mlperf(std::move(options))) {}
MLPerfCallback::~MLPerfCallback() = default;
MLPerfCallback::MLPerfCallback(MLPerfCallback&&) noexcept = default;

std::string MLPerfCallback::path_in_root(const State& state, const char* folder) const {
  const std::string system = system_name(options_, state), results = "results";
  if (folder != results) return join(root_, '/', folder, '/', system, ".json");
  return join(root_, "/results/", system, '/', name_of(options_.benchmark), "/result_", options_.index, ".txt");
}

void MLPerfCallback::check_fit(const FitOutline& fit, const State& state) const {
  if (fit.sources.size() > 2)
    throw ConfigError("MLPerfCallback: a run has one evaluator, got ", fit.sources.size() - 1, ": ", fit.labels());
  if (!fit.check_metric("MLPerfCallback", options_.metric_label, options_.metric_name, state))
    throw ConfigError("MLPerfCallback: there is no evaluator \"", options_.metric_label, "\", but: ", fit.labels());
  if (!fit.epochs_end) throw ConfigError("MLPerfCallback: needs epochs, which a loop of step(batch) does not have");
}

void MLPerfCallback::init(const State& state, Logger&) {
  log_.reset();
  if (state.rank != 0) return;
  root_ = saving::format_name(util::absolute_format(options_.root_folder), state, nullptr);
  log_ = std::make_unique<Log>(path_in_root(state, "results"), state.resumes, state.run && state.run->begins_again());
  if (log_->started) return;
  const std::string status = name_of(options_.status);
  util::write_whole_file(path_in_root(state, "systems"),
                         mlperf_system_json({.submitter = options_.submitter,
                                             .division = options_.division,
                                             .status = status,
                                             .system_name = system_name(options_, state),
                                             .world_size = state.world_size,
                                             .has_accelerator = !state.device.is_cpu(),
                                             .host_processors_per_node = options_.host_processors_per_node}));
  if (options_.cache_clear_cmd.empty()) {
    warn("MLPerfCallback: no cache_clear_cmd is set, so the caches are not cleared; a submission requires it");
  } else {
    run_program(options_.cache_clear_cmd);
    log_->write("cache_clear", nullptr, Json::object(), Log::Type::INTERVAL_START);
  }
  log_->write("init_start", nullptr, Json::object(), Log::Type::INTERVAL_START);
  log_->write("submission_benchmark", name_of(options_.benchmark));
  log_->write("submission_division", options_.division);
  log_->write("submission_org", options_.submitter);
  log_->write("submission_platform", system_name(options_, state));
  log_->write("submission_status", status);
}

void MLPerfCallback::fit_start(const State& state, Logger&) {
  if (log_ && log_->is_resumed && !log_->file) log_->open_own();
  if (!log_ || log_->started) return;
  if (log_->is_left && !log_->file) log_->begin_again();
  log_->write("seed", state.seed);
  for (const auto& [key, samples, seen] :
       {std::tuple("train_samples", options_.train_samples, &log_->has_train_samples),
        std::tuple("eval_samples", options_.eval_samples, &log_->has_eval_samples)}) {
    if (samples == 0) continue;
    log_->write(key, samples);
    *seen = true;
  }
  log_->write("init_stop", nullptr, Json::object(), Log::Type::INTERVAL_END);
  log_->write("run_start");
  log_->started = true;
}

namespace {

std::int64_t epoch_num(MLPerfBenchmark benchmark, const Timestamp& now) {
  return benchmark == MLPerfBenchmark::RESNET ? now.epoch : now.sample;
}

}  // namespace

void MLPerfCallback::epoch_start(const State& state, Logger&) {
  if (!log_ || !log_->running()) return;
  log_->epoch = epoch_num(options_.benchmark, state.timestamp);
  log_->first_sample = state.timestamp.sample;
  log_->whole_epoch = true;
  log_->write("epoch_start", nullptr, {{"epoch_num", log_->epoch}});
  log_->write("block_start", nullptr, {{"first_epoch_num", log_->epoch}, {"epoch_count", 1}});
}

void MLPerfCallback::batch_start(const State& state, Logger&) {
  if (state.world_size == 1) write_batch_size(state, state.batch.front().size(0));
}

// The samples of all ranks are counted only at this event.
void MLPerfCallback::batch_end(const State& state, Logger&) {
  if (state.world_size > 1) write_batch_size(state, state.timestamp.sample - state.previous_timestamp->sample);
}

void MLPerfCallback::write_batch_size(const State& state, std::int64_t samples) {
  if (!log_ || log_->has_batch_size || !log_->running()) return;
  log_->has_batch_size = true;
  log_->write("global_batch_size", samples);
  log_->write("device_train_microbatch_size", state.device_train_microbatch_size);
}

void MLPerfCallback::epoch_end(const State& state, Logger&) {
  if (!log_ || !log_->running()) return;
  if (!log_->has_train_samples && log_->whole_epoch) {
    log_->has_train_samples = true;
    log_->write("train_samples", state.timestamp.sample - log_->first_sample);
  }
  log_->write("epoch_stop", nullptr, {{"epoch_num", log_->epoch}});
}

void MLPerfCallback::eval_start(const State& state, Logger&) {
  if (!log_ || !log_->running()) return;
  log_->write("eval_start", nullptr, {{"epoch_num", epoch_num(options_.benchmark, state.timestamp)}});
}

void MLPerfCallback::eval_end(const State& state, Logger&) {
  if (!log_ || !log_->file || !log_->started || state.dataloader_label != options_.metric_label) return;
  if (state.run && state.run->interrupted()) return;  // an interrupted evaluation has no metrics
  const double accuracy = state.metrics.at(options_.metric_label, options_.metric_name);
  const bool succeeds = accuracy > options_.target && is_judged(state, options_.metric_label, options_.metric_name);
  if (log_->running()) {
    if (!log_->has_eval_samples) {
      log_->has_eval_samples = true;
      log_->write("eval_samples", state.eval_timestamp.sample);
    }
    const Json epoch = {{"epoch_num", epoch_num(options_.benchmark, state.timestamp)}};
    log_->write("eval_stop", nullptr, epoch);
    log_->write("eval_accuracy", accuracy, epoch);
    log_->write("block_stop", nullptr, {{"first_epoch_num", log_->epoch}});
    if (succeeds) log_->write("run_stop", nullptr, {{"status", "success"}});
    log_->stopped = succeeds;
  }
  if (succeeds && options_.exit_at_target)
    stop_finished(state, join("MLPerfCallback: ", options_.metric_name, " is ", accuracy, ", greater than the target ",
                              options_.target));
}

void MLPerfCallback::visit_state(StateVisitor& visit) {
  if (!log_) return;
  if (visit.is_loading()) {
    // Ignores state from an older version or from another run.
    if (!visit.has("size") || !visit.is_of_this_run() || !log_->is_resumed || log_->file) return;
    log_->mark.emplace();
    log_->visit_state(visit, *log_->mark);
  } else if (log_->file) {
    log_->file->sync();  // a checkpoint must not refer to lines that a power failure removes
    util::LogMark mark = util::LogMark::of(log_->path, log_->file->size());
    log_->visit_state(visit, mark);
  } else if (log_->mark) {
    log_->visit_state(visit, *log_->mark);
  }
}

void MLPerfCallback::close(const State& state, Logger& logger) {
  if (!log_ || !log_->file) return;
  log_->file->sync();
  log_->file.reset();
  log_->stopped = true;
  for (const char* folder : {"results", "systems"}) {
    const std::string path = path_in_root(state, folder);
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;  // it remains after an error at INIT
    logger.upload_file({.path = path, .name = "{run_name}" + path.substr(root_.size()), .overwrite = true});
  }
}

StateDict MLPerfCallback::local_hparams() const { return describe(options_, mlperf_callback_options()); }

namespace entries {

Entry<Callbacks> mlperf() {
  return entry<MLPerfCallback>("mlperf", "Logs a run in the format of MLPerf Training", mlperf_callback_options());
}

}  // namespace entries
}  // namespace composer::callbacks
