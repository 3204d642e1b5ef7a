#include "composer/core/record_destination.h"

#include "composer/core/state.h"

namespace composer {

void RecordDestination::log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state) {
  log_record({Record::Kind::METRICS, metrics, step, state.timestamp}, state);
}

void RecordDestination::log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state) {
  log_record({Record::Kind::HYPERPARAMETERS, hyperparameters, state.timestamp.batch, state.timestamp}, state);
}

void RecordDestination::log_images(std::string_view key, const LogImages& images, std::int64_t step,
                                   const State& state) {
  log_record({key, &images, step, state.timestamp}, state);
}

void RecordDestination::log_table(std::string_view key, const LogTable& table, std::int64_t step, const State& state) {
  log_record({key, &table, step, state.timestamp}, state);
}

void RecordDestination::log_histogram(std::string_view key, const LogHistogram& histogram, std::int64_t step,
                                      const State& state) {
  log_record({key, &histogram, step, state.timestamp}, state);
}

void RecordDestination::upload_file(const LogFile& file, const State& state) {
  log_record({file.name, &file, state.timestamp.batch, state.timestamp}, state);
}

void RecordDestination::log_traces(std::span<const LogEntry> traces, const State& state) {
  log_record({Record::Kind::TRACES, traces, state.timestamp.batch, state.timestamp}, state);
}

}  // namespace composer
