#include "composer/core/logger.h"

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "composer/core/error.h"
#include "composer/core/plugins.h"
#include "composer/core/shared_copy.h"
#include "composer/core/state.h"
#include "composer/util/name_format.h"
#include "composer/util/utf8.h"

namespace composer {
namespace {

// Removes a file that nobody needs any more.
struct Remove {
  std::string path;
  ~Remove() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

// Programs write a plot or a table again and again under one name, while files wait to be sent.
void keep_contents(LogFile& file) {
  constexpr std::uintmax_t kLargest = std::uintmax_t{64} << 20;
  std::error_code error;
  if (std::filesystem::file_size(file.path, error) > kLargest || error) return;
  std::string place = std::filesystem::temp_directory_path(error).string();
  if (!error) {
    place += "/composer-upload-XXXXXX";
    const int made = ::mkstemp(place.data());
    if (made >= 0) {
      ::close(made);
      auto copy = std::make_shared<const Remove>(Remove{place});
      std::filesystem::copy_file(file.path, place, std::filesystem::copy_options::overwrite_existing, error);
      if (!error) {
        file.path = place;
        file.copy = std::move(copy);
        return;
      }
    }
  }
  warn(join("upload_file: there is no room for a copy of ", file.path, " in the folder for temporary files",
            error ? ": " + error.message() : "", "; it must not be changed until it is uploaded"));
}

void check_keys(std::span<const LogEntry> entries) {
  for (const LogEntry& entry : entries)
    if (entry.key.empty()) throw DataError("Logger: a key must not be empty");
}

// Entries that are being handed out.
class Call {
 public:
  explicit Call(std::span<const LogEntry> entries) : entries_(entries), outer_(std::exchange(innermost, this)) {}
  ~Call() { innermost = outer_; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  static std::shared_ptr<KeptEntries>* copy_of(std::span<const LogEntry> entries) {
    const bool is_same = innermost != nullptr && innermost->entries_.data() == entries.data() &&
                         innermost->entries_.size() == entries.size();
    return is_same ? &innermost->copy_ : nullptr;
  }

 private:
  static inline thread_local Call* innermost = nullptr;
  const std::span<const LogEntry> entries_;
  Call* const outer_;
  std::shared_ptr<KeptEntries> copy_;
};

}  // namespace

std::shared_ptr<KeptEntries>* shared_copy(std::span<const LogEntry> entries) { return Call::copy_of(entries); }

LoggerDestination::~LoggerDestination() = default;
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

void Logger::log_metrics(std::span<const LogEntry> metrics, std::optional<std::int64_t> step) {
  check_keys(metrics);
  const Call call(metrics);
  for (LoggerDestination* destination : destinations_) destination->log_metrics(metrics, step_or_batch(step), state_);
}

void Logger::log_metrics(std::initializer_list<LogEntry> metrics, std::optional<std::int64_t> step) {
  log_metrics(std::span(metrics.begin(), metrics.size()), step);
}

void Logger::log_hyperparameters(std::span<const LogEntry> hyperparameters) {
  check_keys(hyperparameters);
  for (const LogEntry& entry : hyperparameters) {  // a checkpoint cannot hold texts that are not UTF-8
    LogValue& kept = hyperparameters_[util::valid_utf8(entry.key)] = entry.value;
    if (auto* text = std::get_if<std::string>(&kept)) *text = util::valid_utf8(*text);
  }
  const Call call(hyperparameters);
  for (LoggerDestination* destination : destinations_) destination->log_hyperparameters(hyperparameters, state_);
}

void Logger::log_hyperparameters(std::initializer_list<LogEntry> hyperparameters) {
  log_hyperparameters(std::span(hyperparameters.begin(), hyperparameters.size()));
}

void Logger::log_images(std::string_view key, const LogImages& images, std::optional<std::int64_t> step) {
  check(key, images);
  for (LoggerDestination* destination : destinations_)
    destination->log_images(key, images, step_or_batch(step), state_);
}

void Logger::log_table(std::string_view key, const LogTable& table, std::optional<std::int64_t> step) {
  check(key, table);
  for (LoggerDestination* destination : destinations_) destination->log_table(key, table, step_or_batch(step), state_);
}

void Logger::log_histogram(std::string_view key, const LogHistogram& histogram, std::optional<std::int64_t> step) {
  check(key, histogram);
  for (LoggerDestination* destination : destinations_)
    destination->log_histogram(key, histogram, step_or_batch(step), state_);
}

void Logger::upload_file(const LogFile& file) {
  check(file);
  LogFile named = file;
  named.name = util::format_name(file.name, state_, &state_.timestamp, "upload_file");
  named.path = std::filesystem::absolute(file.path);  // the program may change its working directory meanwhile
  if (!destinations_.empty()) keep_contents(named);
  for (LoggerDestination* destination : destinations_) destination->upload_file(named, state_);
}

void Logger::log_traces(std::span<const LogEntry> traces) {
  const Call call(traces);
  for (LoggerDestination* destination : tracing_) destination->log_traces(traces, state_);
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
