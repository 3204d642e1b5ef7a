#include "composer/loggers/in_memory_logger.h"

#include <algorithm>
#include <unordered_map>

#include <ATen/core/Tensor.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/record.h"
#include "composer/core/scalar.h"
#include "composer/loggers/string_map.h"
#include "composer/loggers/timeline.h"

namespace composer::loggers {
namespace {

LogValue to_log_value(const Scalar& scalar) {
  return std::visit([](const auto& value) -> LogValue { return value; }, scalar);
}

}  // namespace

struct InMemoryLogger::Column {
  Runs when;  // indices into the timeline
  Values values;
};

struct InMemoryLogger::Table {
  Timeline timeline;
  SequenceMap<Column> columns;
};

InMemoryLogger::InMemoryLogger() : table_(std::make_unique<Table>()) {}
InMemoryLogger::~InMemoryLogger() = default;
InMemoryLogger::InMemoryLogger(InMemoryLogger&&) noexcept = default;

void InMemoryLogger::log_record(const Record& record, const State&) {
  if (record.kind() == Record::Kind::METRICS) return add_metrics(record.entries(), record.timestamp());
  if (record.kind() != Record::Kind::HYPERPARAMETERS) return;
  for (const auto& [key, value] : record.entries())
    hyperparameters_.insert_or_assign(std::string(key), to_log_value(read_scalar(value)));
}

void InMemoryLogger::add_metrics(std::span<const LogEntry> metrics, const Timestamp& timestamp) {
  for (const auto& [key, value] : metrics)
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) check_scalar(key, *tensor);
  const std::int64_t when = table_->timeline.add(timestamp);
  for (const auto& [key, value] : metrics) {
    Column& column = table_->columns[key];
    column.when.add(when);
    if (const auto* number = std::get_if<double>(&value))
      column.values.add(*number);
    else if (const auto* count = std::get_if<std::int64_t>(&value))
      column.values.add(*count);
    else if (const auto* tensor = std::get_if<at::Tensor>(&value); tensor != nullptr && !tensor->is_cpu())
      column.values.add_pending(*tensor);
    else
      column.values.add(read_scalar(value));
  }
}

void InMemoryLogger::epoch_end(const State&, Logger&) {
  table_->columns.for_each([](const std::string&, Column& column) { column.values.read_pending(); });
}

std::vector<std::string> InMemoryLogger::keys() const {
  std::vector<std::string> keys;
  table_->columns.for_each([&](const std::string& key, const Column&) { keys.push_back(key); });
  std::ranges::sort(keys);
  return keys;
}

std::vector<LoggedPoint> InMemoryLogger::get_timeseries(std::string_view key) const {
  Column& column = find(key);
  column.values.read_pending();
  const std::vector<Timestamp> times = table_->timeline.all();
  const std::vector<std::int64_t> when = column.when.all();
  const std::vector<Scalar> values = column.values.all();
  std::vector<LoggedPoint> points;
  points.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    points.push_back({times[static_cast<std::size_t>(when[i])], to_log_value(values[i])});
  return points;
}

LoggedPoint InMemoryLogger::most_recent(std::string_view key) const {
  Column& column = find(key);
  column.values.read_pending();
  return {table_->timeline.at(column.when.last()), to_log_value(column.values.last())};
}

InMemoryLogger::Column& InMemoryLogger::find(std::string_view key) const {
  if (Column* column = table_->columns.find(key)) return *column;
  const std::string there = listed(keys());
  throw ConfigError("InMemoryLogger: nothing was logged as \"", key,
                    "\". Logged are: ", there.empty() ? "no metrics yet" : there);
}

namespace entries {

Entry<Loggers> in_memory() { return entry<InMemoryLogger>("in_memory", "Keeps metrics in memory"); }

}  // namespace entries
}  // namespace composer::loggers
