#include "composer/loggers/json_lines_logger.h"

#include <array>
#include <charconv>
#include <cmath>
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
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
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
    if (run_name.empty()) throw ConfigError("JsonLinesLogger: path ", path, " needs a run_name, and this run has none");
    path.replace(at, kPlaceholder.size(), run_name);
  }
  return path;
}

void check(const JsonLinesLoggerOptions& options) {
  const auto& [path, append, overwrite, flush_interval] = options;
  if (path.empty()) throw ConfigError("JsonLinesLogger: path must not be empty");
  if (append && overwrite)
    throw ConfigError("JsonLinesLogger: append and overwrite exclude each other, got both for ", path);
  if (!(flush_interval.count() >= 0 && flush_interval.count() <= 86'400))
    throw ConfigError("JsonLinesLogger: flush_interval must be from 0 to 86400 seconds, got ", flush_interval.count());
  for (auto at = path.find('{'); at != std::string::npos; at = path.find('{', at + 1))
    if (path.compare(at, kPlaceholder.size(), kPlaceholder) != 0)
      throw ConfigError("JsonLinesLogger: path may have the placeholder {run_name} only, got ", path);
}

}  // namespace

struct JsonLinesLogger::Writer {
  Writer(const std::string& path, util::FileMode mode, Seconds delay)
      : file("JsonLinesLogger", path, mode),
        queue(
            [this](std::span<Record> records) {
              lines.clear();
              for (const Record& record : records) append(lines, record);
              file.write(lines);
            },
            delay, kCapacity) {}

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

  util::OutputFile file;
  std::string lines;
  StringMap<std::string> keys;  // quoted
  bool told = false;
  bool resumes = false;
  util::BackgroundQueue<Record> queue;  // last: its thread uses the others
};

JsonLinesLogger::JsonLinesLogger(JsonLinesLoggerOptions options) : options_(std::move(options)) { check(options_); }
JsonLinesLogger::~JsonLinesLogger() = default;
JsonLinesLogger::JsonLinesLogger(JsonLinesLogger&&) noexcept = default;

JsonLinesLogger::Writer& JsonLinesLogger::open(const State& state) {
  if (writer_) return *writer_;
  const std::string path = expand(options_.path, state.run_name);
  auto mode = options_.overwrite ? util::FileMode::OVERWRITE : util::FileMode::CREATE;
  if (options_.append || path == written_ || state.resumes) mode = util::FileMode::APPEND;
  writer_ = std::make_unique<Writer>(path, mode, options_.flush_interval);
  writer_->resumes = state.resumes;
  written_ = path;
  return *writer_;
}

void JsonLinesLogger::init(const State& state, Logger&) { open(state); }

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
  writer.telling([&] { writer.queue.send(std::move(record)); });
}

void JsonLinesLogger::log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state) {
  Record record;
  record.text = "{\"hyperparameters\":{";
  for (const auto& [key, value] : hyperparameters) {
    (record.text += &key == &hyperparameters.front().key ? "" : ",") += json_text(key) + ':';
    append(record.text, value);
  }
  record.text += "}}\n";
  Writer& writer = open(state);
  writer.telling([&] { writer.queue.send(std::move(record)); });
}

void JsonLinesLogger::visit_state(StateVisitor& visit) {
  if (!writer_) return;
  flush();  // a checkpoint must not know of lines that are not in the file yet
  std::int64_t size = writer_->file.size();
  const std::int64_t now = size;
  visit("size", size);
  if (!visit.is_loading() || !writer_->resumes) return;  // another run's log is not this one's
  if (size > now) warn(join("JsonLinesLogger: ", written_, " is shorter than when the checkpoint was written"));
  if (size < now) writer_->file.cut(size);
}

void JsonLinesLogger::flush() {
  if (writer_) writer_->telling([&] { writer_->queue.sync(); });
}

void JsonLinesLogger::epoch_end(const State&, Logger&) {
  if (writer_) writer_->queue.hurry();
}

void JsonLinesLogger::fit_end(const State&, Logger&) { flush(); }

void JsonLinesLogger::close(const State&, Logger&) {
  const std::unique_ptr<Writer> writer = std::move(writer_);
  if (!writer || writer->told) return;
  writer->queue.sync();
  writer->file.close();
}

namespace entries {

Entry<Loggers> json_lines() {
  using O = JsonLinesLoggerOptions;
  return entry<JsonLinesLogger, O>(
      "json_lines", "Writes metrics to a file, one JSON object a line",
      {option("path", &O::path).refuses({"", "{rank}.jsonl"}), option("append", &O::append),
       option("overwrite", &O::overwrite), option("flush_interval", &O::flush_interval).refuses({"-1", "nan", "inf"})});
}

}  // namespace entries
}  // namespace composer::loggers
