#include "composer/loggers/json_lines_logger.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <nlohmann/json.hpp>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/log_mark.h"
#include "composer/loggers/scalar.h"
#include "composer/loggers/string_map.h"
#include "composer/util/background_queue.h"
#include "composer/util/output_file.h"

namespace composer::loggers {
namespace {

constexpr std::size_t kCapacity = 65'536;
constexpr std::string_view kPlaceholder = "{run_name}";

struct Field {
  const std::string* key;  // quoted
  LogValue value;
};

// A line to be.
struct Record {
  std::int64_t step = 0, epoch = 0, batch = 0;
  double time = 0;
  std::vector<Field> fields;
  std::optional<c10::Stream> stream;  // on which the tensors among the fields are computed
  std::string text;                   // instead of all the above
};

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string quoted_key(std::string_view key) {
  const bool taken = key == "step" || key == "epoch" || key == "batch" || key == "time";
  return json_text(taken ? join("metric/", key) : std::string(key));
}

void append(std::string& line, std::int64_t value) { line += std::to_string(value); }
void append(std::string& line, bool value) { line += value ? "true" : "false"; }
void append(std::string& line, const std::string& value) { line += json_text(value); }
void append(std::string& line, double value) {
  if (std::isnan(value)) {
    line += "\"nan\"";
  } else if (std::isinf(value)) {
    line += value > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    std::array<char, 32> digits{};
    line.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
  }
}
void append(std::string& line, const LogValue& value) {
  std::visit([&](const auto& held) { append(line, held); }, read_scalar(value));
}

void append(std::string& lines, const Record& record) {
  if (!record.text.empty()) {
    lines += record.text;
    return;
  }
  std::optional<c10::StreamGuard> on_stream;
  if (record.stream) on_stream.emplace(*record.stream);
  lines += "{\"step\":";
  append(lines, record.step);
  lines += ",\"epoch\":";
  append(lines, record.epoch);
  lines += ",\"batch\":";
  append(lines, record.batch);
  lines += ",\"time\":";
  append(lines, record.time);
  for (const auto& [key, value] : record.fields) {
    ((lines += ',') += *key) += ':';
    append(lines, value);
  }
  lines += "}\n";
}

std::string expand(std::string path, const std::string& run_name) {
  for (auto at = path.find(kPlaceholder); at != std::string::npos; at = path.find(kPlaceholder, at + run_name.size())) {
    if (run_name.empty())
      throw ConfigError("JsonLinesLogger: path ", path, " requires a run_name, and this run has none");
    path.replace(at, kPlaceholder.size(), run_name);
  }
  return path;
}

std::string begin_of_hyperparameters(const std::string& run_name) {
  const std::string name = run_name.empty() ? "" : join("\"run_name\":", json_text(run_name), ',');
  return join('{', name, "\"hyperparameters\":{");
}

// Whether that run has logged hyperparameters near the beginning of the file, as a Trainer does, or was killed while it
// wrote the first.
bool is_begun_by(const std::string& run_name, const std::string& path) {
  constexpr std::size_t kBytes = 1 << 16;
  std::error_code error;
  if (run_name.empty() || !std::filesystem::is_regular_file(path, error)) return false;
  std::string text(kBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), kBytes);
  text.resize(static_cast<std::size_t>(file.gcount()));
  const std::string begin = begin_of_hyperparameters(run_name);
  return begin.starts_with(text) || text.starts_with(begin) || text.find('\n' + begin) != std::string::npos;
}

// Gives the file a name that is free.
void set_aside(const std::string& path) {
  for (int number = 1;; ++number) {
    const std::string aside = join(path, '.', number);
    if (std::filesystem::exists(std::filesystem::symlink_status(aside))) continue;
    std::error_code error;
    std::filesystem::rename(path, aside, error);
    if (error) throw ConfigError("JsonLinesLogger: ", path, " cannot be renamed to ", aside, ": ", error.message());
    warn(join("JsonLinesLogger: ", path, " is the log of an earlier process of this run, of which no checkpoint is ",
              "left; it is kept as ", aside));
    return;
  }
}

void check(const JsonLinesLoggerOptions& options) {
  const auto& [path, append, overwrite, flush_interval, on_failure] = options;
  if (path.empty()) throw ConfigError("JsonLinesLogger: path must not be empty");
  if (append && overwrite)
    throw ConfigError("JsonLinesLogger: append and overwrite exclude each other, got both for ", path);
  if (!(flush_interval.count() >= 0 && flush_interval.count() <= 86'400))
    throw ConfigError("JsonLinesLogger: flush_interval must be from 0 to 86400 seconds, got ", flush_interval.count());
  for (auto at = path.find('{'); at != std::string::npos; at = path.find('{', at + 1))
    if (path.compare(at, kPlaceholder.size(), kPlaceholder) != 0)
      throw ConfigError("JsonLinesLogger: the only placeholder of path is {run_name}, got ", path);
}

}  // namespace

// Writes on its own thread, which tells of failures through the fields that are locked.
struct JsonLinesLogger::Writer {
  Writer(std::string path_of_file, const JsonLinesLoggerOptions& options)
      : path(std::move(path_of_file)),
        drops(options.on_failure == LogFailure::CONTINUE),
        queue([this](std::span<Record> records) { write(records); }, options.flush_interval, kCapacity) {}

  void open(util::FileMode mode) {
    std::error_code error;
    is_regular = std::filesystem::is_regular_file(path, error) || !std::filesystem::exists(path, error);
    file.emplace("JsonLinesLogger", path, mode);
    for (Record& record : held) queue.send(std::move(record));
    held.clear();
  }

  void send(Record record) {
    if (!file) return held.push_back(std::move(record));
    telling([&] { queue.send(std::move(record)); });
    warn_once();
  }

  void flush() {
    if (!file) return;
    telling([&] { queue.sync(); });
    warn_once();
  }

  void sync() {
    flush();
    attempt([&] { file->sync(); }, 0);
    warn_once();
  }

  void close() {
    if (!file && !held.empty())
      warn(join("JsonLinesLogger: ", held.size(), " records are not written to ", path,
                ", the log of a run that was not trained here; choose another path to log evaluations"));
    if (!file || told) return;
    queue.sync();
    attempt([&] { file->close(); }, 0);
    warn_once();
    if (lost > 0) warn(join("JsonLinesLogger: ", lost, " lines could not be written and are missing in ", path));
  }

  void write(std::span<const Record> records) {
    lines.clear();
    for (const Record& record : records) append(lines, record);
    const std::int64_t whole = drops && is_regular ? file->size() : -1;
    if (attempt([&] { file->write(lines); }, static_cast<std::int64_t>(records.size())) || whole < 0) return;
    try {
      file->cut(whole);       // half a line
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the disk has been complained of
    }
  }

  // False: it failed, and that is to be dropped.
  template <class Call>
  bool attempt(const Call& call, std::int64_t records) {
    try {
      call();
      return true;
    } catch (const Error& error) {
      if (!drops) throw;
      const std::lock_guard lock(mutex);
      if (reason.empty()) reason = error.what();
      lost += records;
      failed = true;
      return false;
    }
  }

  // By the thread that trains: warnings of others are not seen by who handles the trainer's.
  void warn_once() {
    if (!failed || std::exchange(warned, true)) return;
    const std::lock_guard lock(mutex);
    warn(join(reason, "; training continues, and lines are dropped until writing works again"));
  }

  // Whatever it throws was then told to the user, and close() need not repeat it.
  template <class Call>
  void telling(const Call& call) {
    try {
      call();
    } catch (...) {
      told = true;
      throw;
    }
  }

  const std::string path;
  const bool drops;
  std::optional<util::OutputFile> file;  // may be opened at FIT_START only
  std::vector<Record> held;              // until then
  std::optional<LogMark> mark;           // what the checkpoint knows of the log, if it is that
  bool is_regular = true;
  std::string lines;
  StringMap<std::string> keys;  // quoted
  bool told = false, warned = false;
  bool resumes = false;
  bool waits = false;  // until FIT_START, since it overwrites the file or gives it another name

  std::atomic<bool> failed = false;
  std::mutex mutex;    // of the following
  std::string reason;  // of the first failure
  std::int64_t lost = 0;

  util::BackgroundQueue<Record> queue;  // last: its thread uses the others
};

JsonLinesLogger::JsonLinesLogger(JsonLinesLoggerOptions options) : options_(std::move(options)) { check(options_); }
JsonLinesLogger::~JsonLinesLogger() = default;
JsonLinesLogger::JsonLinesLogger(JsonLinesLogger&&) noexcept = default;

JsonLinesLogger::Writer& JsonLinesLogger::open(const State& state) {
  if (writer_) return *writer_;
  const std::string path = expand(options_.path, state.run_name);
  writer_ = std::make_unique<Writer>(path, options_);
  writer_->resumes = state.resumes;
  writer_->waits = waits_for_fit(state);
  if (!state.resumes && !writer_->waits) open_as_new(path == written_);
  written_ = path;
  return *writer_;
}

// Another process may be training this run, and have begun the file.
bool JsonLinesLogger::waits_for_fit(const State& state) const {
  const std::string& path = writer_->path;
  std::error_code error;
  if (path == written_ || !std::filesystem::is_regular_file(path, error)) return false;
  if (!state.resumes && !(state.run && state.run->is_resumable())) return false;
  return options_.overwrite || (!state.resumes && !options_.append && is_begun_by(state.run_name, path));
}

// As a run does that does not resume; `again`: this logger has written the file.
void JsonLinesLogger::open_as_new(bool again) {
  Writer& writer = *writer_;
  auto mode = options_.overwrite ? util::FileMode::OVERWRITE : util::FileMode::CREATE;
  if (options_.append || again) mode = util::FileMode::APPEND;
  if (writer.resumes && mode == util::FileMode::CREATE && std::filesystem::exists(writer.path))
    throw ConfigError("JsonLinesLogger: ", writer.path, " is not the log that the resumed run wrote; set another ",
                      "path, append or overwrite");
  try {
    writer.open(mode);
  } catch (...) {
    writer_.reset();
    throw;
  }
}

void JsonLinesLogger::init(const State& state, Logger&) { open(state); }

void JsonLinesLogger::after_load(const State&, Logger&) {
  if (writer_ && !writer_->file && !writer_->mark && !writer_->waits) open_as_new(false);
}

void JsonLinesLogger::fit_start(const State& state, Logger&) {
  if (!writer_ || writer_->file) return;
  if (writer_->mark) return open_own();
  if (!options_.overwrite && is_begun_by(state.run_name, writer_->path)) set_aside(writer_->path);
  open_as_new(false);
}

// The log of the resumed run, without what was logged after the checkpoint.
void JsonLinesLogger::open_own() {
  Writer& writer = *writer_;
  const LogMark::Match match = writer.mark->compare(writer.path);
  if (match == LogMark::Match::OTHER) return open_as_new(false);  // the file was replaced since
  if (match == LogMark::Match::SHORTER)
    warn(join("JsonLinesLogger: ", writer.path, " is shorter than when the checkpoint was written"));
  std::vector<Record> held = std::exchange(writer.held, {});
  writer.open(util::FileMode::APPEND);
  if (match == LogMark::Match::SAME) writer.file->cut(writer.mark->size);
  for (Record& record : held) writer.send(std::move(record));
}

void JsonLinesLogger::log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state) {
  Writer& writer = open(state);
  const Timestamp& now = state.timestamp;
  Record record{step, now.epoch, now.batch, now.total_wct.count(), {}, {}, {}};
  record.fields.reserve(metrics.size());
  for (const auto& [key, value] : metrics) {
    std::string& name = writer.keys[key];
    if (name.empty()) name = quoted_key(key);
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (tensor != nullptr) check_scalar(key, *tensor);
    if (tensor != nullptr && !tensor->is_cpu()) {
      record.stream = c10::impl::VirtualGuardImpl(tensor->device().type()).getStream(tensor->device());
      record.fields.push_back({&name, tensor->detach()});
    } else {
      record.fields.push_back({&name, std::visit([](auto held) -> LogValue { return held; }, read_scalar(value))});
    }
  }
  writer.send(std::move(record));
}

void JsonLinesLogger::log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state) {
  Record record;
  record.text = begin_of_hyperparameters(state.run_name);
  for (const auto& [key, value] : hyperparameters) {
    (record.text += &key == &hyperparameters.front().key ? "" : ",") += json_text(key) + ':';
    append(record.text, value);
  }
  record.text += "}}\n";
  open(state).send(std::move(record));
}

void JsonLinesLogger::visit_state(StateVisitor& visit) {
  if (!writer_) return;
  LogMark mark;
  if (visit.is_loading()) {
    mark.visit_state(visit);
    if (writer_->file || !writer_->resumes) return;  // another run's log is not this one's
    if (mark.compare(writer_->path) == LogMark::Match::OTHER) return;
    writer_->mark = std::move(mark);
    writer_->held.clear();  // the log has them
  } else if (writer_->file) {
    writer_->sync();  // a checkpoint must not know of lines that a loss of power takes away
    mark = LogMark::of(writer_->path, writer_->is_regular ? writer_->file->size() : 0);
    mark.visit_state(visit);
  } else if (writer_->mark) {
    writer_->mark->visit_state(visit);
  }
}

void JsonLinesLogger::flush() {
  if (writer_) writer_->flush();
}

void JsonLinesLogger::epoch_end(const State&, Logger&) {
  if (writer_) writer_->queue.hurry();
}

void JsonLinesLogger::fit_end(const State&, Logger&) { flush(); }

void JsonLinesLogger::close(const State&, Logger&) {
  if (const std::unique_ptr<Writer> writer = std::move(writer_)) writer->close();
}

namespace entries {

Entry<Loggers> json_lines() {
  using O = JsonLinesLoggerOptions;
  return entry<JsonLinesLogger, O>(
      "json_lines", "Writes metrics to a file, one JSON object a line",
      {option("path", &O::path).refuses({"", "{rank}.jsonl"}), option("append", &O::append),
       option("overwrite", &O::overwrite), option("flush_interval", &O::flush_interval).refuses({"-1", "nan", "inf"}),
       option("on_failure", &O::on_failure, {{"continue", LogFailure::CONTINUE}, {"fail", LogFailure::FAIL}})});
}

}  // namespace entries
}  // namespace composer::loggers
