#include "composer/loggers/json_lines_logger.h"

#include <utility>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/scalar.h"
#include "composer/core/state.h"
#include "composer/loggers/background_option.h"
#include "composer/loggers/json_text.h"
#include "composer/loggers/key_texts.h"
#include "composer/loggers/line_options.h"

namespace composer::loggers {
namespace {

class JsonFormat final : public LineFormat {
 public:
  explicit JsonFormat(const std::string& run_name) : hyperparameters_(begin_of_hyperparameters(run_name)) {}

  void append(std::string& lines, const Record& record) override {
    const bool is_metrics = record.kind() == Record::Kind::METRICS;
    if (is_metrics)
      append_position(lines, record);
    else
      lines += hyperparameters_;
    for (bool is_first = true; const auto& [key, value] : record.entries()) {
      if (is_metrics || !std::exchange(is_first, false)) lines += ',';
      (lines += is_metrics ? names_[key] : json_text(key)) += ':';
      append_json(lines, read_scalar(value));
    }
    lines += is_metrics ? "}\n" : "}}\n";
  }

  std::string_view noun() const override { return "lines"; }

  // Whether the run has logged hyperparameters near the beginning of the file, as a Trainer does, or was killed while
  // it wrote the first line.
  bool is_begun_by(std::string_view run_name, std::string_view beginning, bool) const override {
    const std::string line = begin_of_hyperparameters(std::string(run_name));
    return std::string_view(line).starts_with(beginning) || beginning.starts_with(line) ||
           beginning.find('\n' + line) != std::string_view::npos;
  }

 private:
  static std::string name_of(std::string_view key) {
    const bool taken = key == "step" || key == "epoch" || key == "batch" || key == "time";
    return json_text(taken ? join("metric/", key) : std::string(key));
  }

  static std::string begin_of_hyperparameters(const std::string& run_name) {
    const std::string name = run_name.empty() ? "" : join("\"run_name\":", json_text(run_name), ',');
    return join('{', name, "\"hyperparameters\":{");
  }

  static void append_position(std::string& line, const Record& record) {
    line += "{\"step\":";
    append_json(line, record.step());
    line += ",\"epoch\":";
    append_json(line, record.timestamp().epoch);
    line += ",\"batch\":";
    append_json(line, record.timestamp().batch);
    line += ",\"time\":";
    append_json(line, record.timestamp().total_wct.count());
  }

  const std::string hyperparameters_;
  KeyTexts names_{&name_of};
};

}  // namespace

JsonLinesLogger::JsonLinesLogger(JsonLinesLoggerOptions options)
    : LineFileLogger("JsonLinesLogger", line_options(options)) {}
JsonLinesLogger::~JsonLinesLogger() = default;
JsonLinesLogger::JsonLinesLogger(JsonLinesLogger&&) noexcept = default;

std::unique_ptr<LineFormat> JsonLinesLogger::make_format(const State& state) {
  return std::make_unique<JsonFormat>(state.run_name);
}

namespace entries {

Entry<Loggers> json_lines() {
  using O = JsonLinesLoggerOptions;
  return entry<JsonLinesLogger, O>(
      "json_lines", "Writes metrics to a file, one JSON object a line",
      all_options(option("path", &O::path).refuses({"", "{epoch}.jsonl"}), option("append", &O::append),
                  option("overwrite", &O::overwrite), flush_interval_option(&O::flush_interval),
                  on_failure_option(&O::on_failure), when_full_option(&O::when_full)));
}

}  // namespace entries
}  // namespace composer::loggers
