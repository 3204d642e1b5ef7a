#include "composer/core/logger.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/plugins.h"
#include "composer/core/state.h"

namespace composer {
namespace {

struct ToNumber {
  double operator()(std::int64_t value) const { return static_cast<double>(value); }
  double operator()(double value) const { return value; }
  double operator()(bool value) const { return value ? 1 : 0; }
  double operator()(const std::string& value) const { throw DataError("expected a number, got \"", value, '"'); }
  double operator()(const at::Tensor& value) const { return value.item<double>(); }
};

}  // namespace

double to_number(const LogValue& value) { return std::visit(ToNumber{}, value); }

LoggerDestination::~LoggerDestination() = default;
void LoggerDestination::log_metrics(std::span<const LogEntry>, std::int64_t, const State&) {}
void LoggerDestination::log_hyperparameters(std::span<const LogEntry>, const State&) {}
void LoggerDestination::log_traces(std::span<const LogEntry>, const State&) {}
void LoggerDestination::flush() {}
bool LoggerDestination::wants_traces() const { return false; }

Logger::Logger(const State& state, std::vector<LoggerDestination*> destinations)
    : state_(state), destinations_(std::move(destinations)) {
  for (LoggerDestination* destination : destinations_)
    if (destination->wants_traces()) tracing_.push_back(destination);
}

void Logger::log_metrics(std::span<const LogEntry> metrics, std::optional<std::int64_t> step) {
  for (LoggerDestination* destination : destinations_)
    destination->log_metrics(metrics, step.value_or(state_.timestamp.batch), state_);
}

void Logger::log_metrics(std::initializer_list<LogEntry> metrics, std::optional<std::int64_t> step) {
  log_metrics(std::span(metrics.begin(), metrics.size()), step);
}

void Logger::log_hyperparameters(std::initializer_list<LogEntry> hyperparameters) {
  for (const LogEntry& entry : hyperparameters) hyperparameters_[std::string(entry.key)] = entry.value;
  for (LoggerDestination* destination : destinations_)
    destination->log_hyperparameters(std::span(hyperparameters.begin(), hyperparameters.size()), state_);
}

void Logger::log_traces(std::span<const LogEntry> traces) {
  for (LoggerDestination* destination : tracing_) destination->log_traces(traces, state_);
}

void Logger::flush() {
  for (LoggerDestination* destination : destinations_) {
    try {
      destination->flush();
    } catch (const std::exception& error) {
      warn(join(class_name(typeid(*destination)), " could not write what it had: ", describe(error)));
    }
  }
}

}  // namespace composer
