#include "composer/loggers/file_logger.h"

#include <span>
#include <utility>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/scalar.h"
#include "composer/loggers/background_option.h"
#include "composer/loggers/format.h"
#include "composer/loggers/json_text.h"
#include "composer/loggers/key_texts.h"
#include "composer/loggers/line_options.h"
#include "composer/loggers/number_text.h"
#include "composer/loggers/output_capture.h"
#include "composer/util/text.h"

namespace composer::loggers {
namespace {

// Replaces line breaks by \n, and characters that a terminal would interpret by escapes such as \x1b.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : valid_utf8(text)) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n')
      line += "\\n";
    else if (c == '\r')
      line += "\\r";
    else if ((code < ' ' && c != '\t') || code == 0x7F)
      line += util::printed("\\x%02x", static_cast<unsigned>(code));
    else
      line += c;
  }
  return line;
}

std::string text_on_one_line(const LogValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? one_line(*text) : format_log_value(value);
}

class TextFormat final : public LineFormat {
 public:
  void append(std::string& lines, const Record& record) override {
    if (record.kind() == Record::Kind::TRACES && record.entries().front().key.starts_with("[std")) {
      for (const auto& [key, value] : record.entries()) lines += join(key, ": ", text_on_one_line(value), '\n');
      return;
    }
    std::string at = "[batch=";
    append_number(at, record.step());
    at += "]: ";
    const auto append_line = [&](std::string_view begin, std::string_view key, const std::string& value) {
      ((((lines += begin) += names_[key]) += ": ") += value) += '\n';
    };
    if (const auto* table = record.get<LogTable>()) return append_line("[table]" + at, record.key(), json_text(*table));
    const std::string begin = record.kind() == Record::Kind::HYPERPARAMETERS ? "[hyperparameter]: "
                              : record.kind() == Record::Kind::TRACES        ? "[trace]" + at
                                                                             : "[metric]" + at;
    for (const auto& [key, value] : record.entries()) append_line(begin, key, text_on_one_line(value));
  }

  bool takes(const Record& record) const override {
    return record.kind() != Record::Kind::CONTENT || record.get<LogTable>() != nullptr;
  }

 private:
  KeyTexts names_{&one_line};
};

}  // namespace

FileLogger::FileLogger(FileLoggerOptions options)
    : LineFileLogger("FileLogger", line_options(options)),
      log_traces_(options.log_traces),
      capture_stdout_(options.capture_stdout),
      capture_stderr_(options.capture_stderr) {}
FileLogger::~FileLogger() = default;
FileLogger::FileLogger(FileLogger&&) noexcept = default;

bool FileLogger::wants_traces() const { return log_traces_; }

void FileLogger::init(const State& state, Logger& logger) {
  captured_.reset();
  LineFileLogger::init(state, logger);
  if (capture_stdout_ || capture_stderr_) captured_ = std::make_unique<OutputCapture>(capture_stdout_, capture_stderr_);
}

// Writes captured lines as traces, because only keys of traces cannot be mistaken for keys of metrics.
void FileLogger::write_captured(const State& state, bool rest) {
  if (!captured_) return;
  for (const auto& [stream, text] : captured_->take(rest)) {
    const std::string key = join('[', stream, ']');
    const LogEntry entry{key, text};
    const Record captured(Record::Kind::TRACES, std::span(&entry, 1), state.timestamp.batch, state.timestamp);
    LineFileLogger::log_record(captured, state);
  }
}

void FileLogger::log_record(const Record& record, const State& state) {
  if (record.kind() == Record::Kind::METRICS) write_captured(state);
  LineFileLogger::log_record(record, state);
}

void FileLogger::batch_end(const State& state, Logger&) { write_captured(state); }

void FileLogger::epoch_end(const State& state, Logger& logger) {
  write_captured(state);
  LineFileLogger::epoch_end(state, logger);
}

void FileLogger::eval_end(const State& state, Logger&) { write_captured(state); }

void FileLogger::fit_end(const State& state, Logger& logger) {
  write_captured(state);
  LineFileLogger::fit_end(state, logger);
}

void FileLogger::close(const State& state, Logger& logger) {
  write_captured(state, /*rest=*/true);
  captured_.reset();
  LineFileLogger::close(state, logger);
}
std::unique_ptr<LineFormat> FileLogger::make_format(const State&) { return std::make_unique<TextFormat>(); }

namespace entries {

Entry<Loggers> file() {
  using O = FileLoggerOptions;
  return entry<FileLogger, O>(
      "file", "Writes metrics to a file, one line of text a value",
      all_options(option("path", &O::path).refuses({"", "{epoch}.txt"}), option("append", &O::append),
                  option("overwrite", &O::overwrite), option("log_traces", &O::log_traces),
                  option("capture_stdout", &O::capture_stdout), option("capture_stderr", &O::capture_stderr),
                  flush_interval_option(&O::flush_interval), on_failure_option(&O::on_failure),
                  when_full_option(&O::when_full)));
}

}  // namespace entries
}  // namespace composer::loggers
