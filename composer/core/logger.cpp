#include "composer/core/logger.h"

#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "composer/core/error.h"
#include "composer/core/plugins.h"
#include "composer/core/record.h"
#include "composer/core/scalar.h"
#include "composer/core/state.h"
#include "composer/util/name_format.h"
#include "composer/util/temporary.h"
#include "composer/util/utf8.h"

namespace composer {
namespace {

// Copies the file, because programs often write a plot or a table repeatedly under one name, while files wait to be
// sent.
void keep_contents(LogFile& file) {
  constexpr std::uintmax_t kLargest = std::uintmax_t{64} << 20;
  std::error_code error;
  if (std::filesystem::file_size(file.path, error) > kLargest || error) return;
  std::string why;
  try {
    auto copy = std::make_shared<const util::Temporary>(util::TemporaryKind::FILE, "composer-upload-");
    std::filesystem::copy_file(file.path, copy->path(), std::filesystem::copy_options::overwrite_existing, error);
    if (!error) {
      file.path = copy->path();
      file.copy = std::move(copy);
      return;
    }
    why = error.message();
  } catch (const Error& none) {
    why = none.what();
  }
  warn(join("upload_file: there is no room for a copy of ", file.path, " in the folder for temporary files: ", why,
            "; it must not be changed until it is uploaded"));
}

void check_keys(std::span<const LogEntry> entries) {
  for (const LogEntry& entry : entries)
    if (entry.key.empty()) throw DataError("Logger: a key must not be empty");
}

// Most destinations accept only numbers.
void check_values(std::span<const LogEntry> entries) {
  for (const auto& [key, value] : entries)
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) check_scalar(key, *tensor);
}

// The beginning of an error that blames a destination, and not the code that logged the record.
std::string failed(const LoggerDestination& destination, const Record& record) {
  const std::string key = record.entries().empty() ? std::string(record.key()) : std::string(record.entries()[0].key);
  return join(class_name(typeid(destination)), " failed to log ", key,
              record.entries().size() > 1 ? " and others" : "");
}

}  // namespace

LoggerDestination::~LoggerDestination() = default;
void LoggerDestination::log_record(const Record& record, const State& state) {
  switch (record.kind()) {
    case Record::Kind::METRICS:
      return log_metrics(record.entries(), record.step(), state);
    case Record::Kind::HYPERPARAMETERS:
      return log_hyperparameters(record.entries(), state);
    case Record::Kind::TRACES:
      return log_traces(record.entries(), state);
    case Record::Kind::CONTENT:
      break;
  }
  if (const auto* images = record.get<LogImages>()) log_images(record.key(), *images, record.step(), state);
  if (const auto* table = record.get<LogTable>()) log_table(record.key(), *table, record.step(), state);
  if (const auto* histogram = record.get<LogHistogram>()) log_histogram(record.key(), *histogram, record.step(), state);
  if (const auto* file = record.get<LogFile>()) upload_file(*file, state);
}

void LoggerDestination::log_metrics(std::span<const LogEntry>, std::int64_t, const State&) {}
void LoggerDestination::log_hyperparameters(std::span<const LogEntry>, const State&) {}
void LoggerDestination::log_images(std::string_view, const LogImages&, std::int64_t, const State&) {}
void LoggerDestination::log_table(std::string_view, const LogTable&, std::int64_t, const State&) {}
void LoggerDestination::log_histogram(std::string_view, const LogHistogram&, std::int64_t, const State&) {}
void LoggerDestination::upload_file(const LogFile&, const State&) {}
void LoggerDestination::log_traces(std::span<const LogEntry>, const State&) {}
void LoggerDestination::flush() {}
bool LoggerDestination::wants_traces() const { return false; }

Logger::Logger(const State& state, std::vector<LoggerDestination*> destinations)
    : state_(state), destinations_(std::move(destinations)) {
  for (LoggerDestination* destination : destinations_)
    if (destination->wants_traces()) tracing_.push_back(destination);
}

std::int64_t Logger::step_or_batch(std::optional<std::int64_t> step) const {
  return step.value_or(state_.timestamp.batch);
}

void Logger::hand_out(const Record& record, const std::vector<LoggerDestination*>& destinations) const {
  for (LoggerDestination* destination : destinations) try {
      destination->log_record(record, state_);
    } catch (const DataError&) {
      check_values(record.entries());  // throws if the code that logged the record is to blame
      throw_nested<DataError>(failed(*destination, record));
    } catch (const Error&) {
      throw;  // the error already names its source
    } catch (...) {
      throw_nested<Error>(failed(*destination, record));
    }
}

void Logger::log_metrics(std::span<const LogEntry> metrics, std::optional<std::int64_t> step) {
  check_keys(metrics);
  hand_out({Record::Kind::METRICS, metrics, step_or_batch(step), state_.timestamp, &block_}, destinations_);
}

void Logger::log_metrics(std::initializer_list<LogEntry> metrics, std::optional<std::int64_t> step) {
  log_metrics(std::span(metrics.begin(), metrics.size()), step);
}

void Logger::log_hyperparameters(std::span<const LogEntry> hyperparameters) {
  check_keys(hyperparameters);
  for (const LogEntry& entry : hyperparameters) {  // a checkpoint cannot store texts that are not UTF-8
    LogValue& kept = hyperparameters_[util::valid_utf8(entry.key)] = entry.value;
    if (auto* text = std::get_if<std::string>(&kept)) *text = util::valid_utf8(*text);
  }
  hand_out({Record::Kind::HYPERPARAMETERS, hyperparameters, state_.timestamp.batch, state_.timestamp, &block_},
           destinations_);
}

void Logger::log_hyperparameters(std::initializer_list<LogEntry> hyperparameters) {
  log_hyperparameters(std::span(hyperparameters.begin(), hyperparameters.size()));
}

void Logger::log(std::string_view key, const LogContent& content, std::optional<std::int64_t> step) {
  if (const auto* file = std::get_if<LogFile>(&content)) {
    LogFile named = *file;
    named.name = key;
    return upload_file(named);
  }
  std::visit([&](const auto& held) { log_checked(key, held, step); }, content);
}

template <class Content>
void Logger::log_checked(std::string_view key, const Content& content, std::optional<std::int64_t> step) const {
  check(key, content);
  if (destinations_.empty()) return;
  hand_out({key, &content, step_or_batch(step), state_.timestamp}, destinations_);
}

void Logger::log_images(std::string_view key, const LogImages& images, std::optional<std::int64_t> step) {
  log_checked(key, images, step);
}

void Logger::log_table(std::string_view key, const LogTable& table, std::optional<std::int64_t> step) {
  log_checked(key, table, step);
}

void Logger::log_histogram(std::string_view key, const LogHistogram& histogram, std::optional<std::int64_t> step) {
  log_checked(key, histogram, step);
}

void Logger::upload_file(const LogFile& file) {
  check(file.name, file);
  LogFile named = file;
  named.name = util::format_name(file.name, state_, &state_.timestamp, "upload_file");
  if (destinations_.empty()) return;
  named.path = std::filesystem::absolute(file.path);  // the program may change its working directory later
  keep_contents(named);
  hand_out({named.name, &named, state_.timestamp.batch, state_.timestamp}, destinations_);
}

void Logger::log_traces(std::span<const LogEntry> traces) {
  if (traces.empty()) return;
  hand_out({Record::Kind::TRACES, traces, state_.timestamp.batch, state_.timestamp, &block_}, tracing_);
}

void Logger::flush() {
  for (LoggerDestination* destination : destinations_) {
    try {
      destination->flush();
    } catch (...) {
      warn(
          join(class_name(typeid(*destination)), " could not write what it had: ", describe(std::current_exception())));
    }
  }
}

}  // namespace composer
