#include "composer/loggers/csv_logger.h"

#include <utility>

#include "composer/core/entry.h"
#include "composer/core/scalar.h"
#include "composer/loggers/background_option.h"
#include "composer/loggers/json_text.h"
#include "composer/loggers/key_texts.h"
#include "composer/loggers/line_options.h"
#include "composer/loggers/number_text.h"

namespace composer::loggers {
namespace {

// Replaces bytes that are not UTF-8, and NUL, by U+FFFD: they would keep programs from reading the file.
std::string csv_field(std::string_view given) {
  std::string text = valid_utf8(given);
  for (auto at = text.find('\0'); at != std::string::npos; at = text.find('\0', at))
    text.replace(at, 1, "\xEF\xBF\xBD");
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) (field += c == '"' ? "\"" : "") += c;
  return field + '"';
}

struct AppendCsv {
  std::string& line;
  void operator()(std::int64_t value) const { append_number(line, value); }
  void operator()(bool value) const { line += value ? '1' : '0'; }
  void operator()(const std::string& value) const { line += csv_field(value); }
  void operator()(double value) const { append_number(line, value); }
};

class CsvFormat final : public LineFormat {
 public:
  std::string header() const override { return "step,epoch,batch,time,key,value\n"; }

  void append(std::string& lines, const Record& record) override {
    std::string begin;
    for (const std::int64_t count : {record.step(), record.timestamp().epoch, record.timestamp().batch})
      append_number(begin, count), begin += ',';
    append_number(begin, record.timestamp().total_wct.count());
    begin += ',';
    for (const auto& [key, value] : record.entries()) {
      ((lines += begin) += names_[key]) += ',';
      std::visit(AppendCsv{lines}, read_scalar(value));
      lines += '\n';
    }
  }

  bool takes(const Record& record) const override { return record.kind() == Record::Kind::METRICS; }

 private:
  KeyTexts names_{&csv_field};
};

}  // namespace

CsvLogger::CsvLogger(CsvLoggerOptions options) : LineFileLogger("CsvLogger", line_options(options)) {}
CsvLogger::~CsvLogger() = default;
CsvLogger::CsvLogger(CsvLogger&&) noexcept = default;

std::unique_ptr<LineFormat> CsvLogger::make_format(const State&) { return std::make_unique<CsvFormat>(); }

namespace entries {

Entry<Loggers> csv() {
  using O = CsvLoggerOptions;
  return entry<CsvLogger, O>(
      "csv", "Writes metrics to a CSV file, one line a value",
      all_options(option("path", &O::path).refuses({"", "{epoch}.csv"}), option("append", &O::append),
                  option("overwrite", &O::overwrite), flush_interval_option(&O::flush_interval),
                  on_failure_option(&O::on_failure), when_full_option(&O::when_full)));
}

}  // namespace entries
}  // namespace composer::loggers
