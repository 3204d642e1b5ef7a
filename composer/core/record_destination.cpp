#include "composer/core/record_destination.h"

#include <memory>

#include "composer/core/state.h"

namespace composer {
namespace {

void hand_on(RecordDestination& to, std::string_view key, const LogContent& content, std::int64_t step,
             const State& state) {
  to.log_record({key, std::make_shared<const LogContent>(content), step, state.timestamp}, state);
}

}  // namespace

void RecordDestination::log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state) {
  log_record({Record::Kind::METRICS, metrics, step, state.timestamp}, state);
}

void RecordDestination::log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state) {
  log_record({Record::Kind::HYPERPARAMETERS, hyperparameters, state.timestamp.batch, state.timestamp}, state);
}

void RecordDestination::log_images(std::string_view key, const LogImages& images, std::int64_t step,
                                   const State& state) {
  hand_on(*this, key, images, step, state);
}

void RecordDestination::log_table(std::string_view key, const LogTable& table, std::int64_t step, const State& state) {
  hand_on(*this, key, table, step, state);
}

void RecordDestination::log_histogram(std::string_view key, const LogHistogram& histogram, std::int64_t step,
                                      const State& state) {
  hand_on(*this, key, histogram, step, state);
}

void RecordDestination::upload_file(const LogFile& file, const State& state) {
  hand_on(*this, file.name, file, state.timestamp.batch, state);
}

void RecordDestination::log_traces(std::span<const LogEntry> traces, const State& state) {
  log_record({Record::Kind::TRACES, traces, state.timestamp.batch, state.timestamp}, state);
}

}  // namespace composer
