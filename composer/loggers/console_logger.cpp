#include "composer/loggers/console_logger.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/record.h"
#include "composer/core/state.h"
#include "composer/loggers/batch_means.h"
#include "composer/loggers/format.h"
#include "composer/loggers/held_lines.h"
#include "composer/loggers/metric_buffer.h"
#include "composer/loggers/number_text.h"
#include "composer/loggers/stream_option.h"
#include "composer/util/letters.h"

namespace composer::loggers {
namespace {

constexpr const char* kRule = "******************************\n";

// "3/7", or "3" if the total is unknown.
std::string of(std::int64_t count, std::optional<std::int64_t> total) {
  return total ? join(count, '/', *total) : join(count);
}

std::string unit_name(TimeUnit unit) { return util::lower(kTimeUnitNames[static_cast<std::size_t>(unit)].name); }

// The position in training: "[epoch=2][batch=3/7]", or "[sample=16/100]" if max_duration is in samples.
std::string progress(const State& state) {
  std::string text;
  const auto append = [&text](const std::string& unit, std::int64_t count, std::optional<std::int64_t> total = {}) {
    append_number(((text += '[') += unit) += '=', count);
    if (total) append_number(text += '/', *total);
    text += ']';
  };
  if (!state.max_duration) return text;
  const Timestamp& now = state.timestamp;
  const TimeUnit unit = state.max_duration->unit();
  if (unit != TimeUnit::EPOCH) {
    append(unit_name(unit), now.get(unit).count(), state.max_duration->count());
  } else if (now.batch_in_epoch > 0 || now.epoch == 0) {
    append("epoch", now.epoch + 1);
    append("batch", now.batch_in_epoch, state.dataloader_len);
  } else {  // the epoch has just been counted: show its end, not the beginning of the next
    const std::int64_t trained = state.previous_timestamp ? state.previous_timestamp->batch_in_epoch : 0;
    append("epoch", now.epoch);
    append("batch", state.dataloader_len.value_or(trained), state.dataloader_len);
  }
  return text;
}

// The batches of an evaluation after which progress is printed, last first. They are eleven evenly spaced batches
// without the last one, whose end is the end of the evaluation.
std::vector<std::int64_t> batches_to_print(std::optional<std::int64_t> total) {
  std::vector<std::int64_t> batches;
  if (!total) return batches;
  if (*total < 11)
    for (std::int64_t i = *total - 1; i >= 1; --i) batches.push_back(i);
  else
    for (int i = 9; i >= 0; --i)
      batches.push_back(std::llrint(1 + static_cast<double>(*total - 1) * (static_cast<double>(i) / 10)));
  return batches;
}

std::vector<Option<ConsoleLoggerOptions>> console_logger_options() {
  using O = ConsoleLoggerOptions;
  return all_options(option("log_interval", &O::log_interval)
                         .in({TimeUnit::EPOCH, TimeUnit::BATCH})
                         .at_least(1)
                         .worded("be at least 1")
                         .refuses({"3sp"}),
                     stream_option(&O::stream), option("log_traces", &O::log_traces));
}

}  // namespace

struct ConsoleLogger::Buffers {
  explicit Buffers(const TextStream& stream) : lines(stream) {}

  HeldLines lines;
  MetricBuffer metrics;
  BatchMeans means;  // for an interval in epochs
  // Lines by key: all lines, and those that have not been printed yet.
  std::map<std::string, std::string> hyperparameters, news;
};

ConsoleLogger::ConsoleLogger(ConsoleLoggerOptions options)
    : options_(checked("ConsoleLogger", std::move(options), console_logger_options())),
      buffers_(std::make_unique<Buffers>(options_.stream)) {
  options_.stream.check("ConsoleLogger");
}
ConsoleLogger::~ConsoleLogger() = default;
ConsoleLogger::ConsoleLogger(ConsoleLogger&&) noexcept = default;

void ConsoleLogger::log_record(const Record& record, const State&) {
  if (record.kind() == Record::Kind::METRICS) return add_metrics(record.entries());
  if (record.kind() == Record::Kind::HYPERPARAMETERS) return add_hyperparameters(record.entries());
  for (const auto& [key, value] : record.entries())
    buffers_->lines.write(join("[trace]: ", key, ':', format_log_value(value), "\n\n"));
}

void ConsoleLogger::add_metrics(std::span<const LogEntry> metrics) {
  const bool in_epochs = options_.log_interval.unit() == TimeUnit::EPOCH;
  for (const auto& [key, value] : metrics) {
    if (is_mean_of_epoch(key)) continue;
    buffers_->metrics.set(key, value);
    if (in_epochs && buffers_->means.takes(key)) buffers_->means.set(key, value);
  }
}

void ConsoleLogger::add_hyperparameters(std::span<const LogEntry> hyperparameters) {
  for (const auto& [key, value] : hyperparameters) {
    const std::string line = format_yaml(key, value), name(key);
    if (std::exchange(buffers_->hyperparameters[name], line) != line) buffers_->news[name] = line;
  }
}

void ConsoleLogger::fit_start(const State& state, Logger&) {
  print_hyperparameters();
  printed_at_.fit_begins(state.timestamp.batch);
  buffers_->means.begin_fit(state);
}
void ConsoleLogger::predict_start(const State&, Logger&) { print_hyperparameters(); }

void ConsoleLogger::batch_end(const State& state, Logger&) {
  buffers_->lines.write_arrived();
  const Time interval = options_.log_interval;
  if (interval.unit() != TimeUnit::BATCH) return buffers_->means.count_batch(state);
  if (printed_at_.number() < 0 || state.timestamp.batch % interval.count() == 0) print_training(state);
}

void ConsoleLogger::epoch_end(const State& state, Logger&) {
  flush();
  const Time interval = options_.log_interval;
  if (interval.unit() != TimeUnit::EPOCH) return;
  buffers_->means.end_epoch();
  if (printed_at_.number() < 0 || state.timestamp.epoch % interval.count() == 0) print_training(state);
}

void ConsoleLogger::fit_end(const State& state, Logger&) {
  if (printed_at_.number() != state.timestamp.batch) print_training(state);
  flush();
  buffers_->metrics.clear();
}

void ConsoleLogger::close(const State&, Logger&) { flush(); }
void ConsoleLogger::flush() { buffers_->lines.write_held(); }

void ConsoleLogger::eval_start(const State& state, Logger&) {
  print_hyperparameters();
  buffers_->metrics.clear();
  eval_batches_to_print_ = batches_to_print(state.dataloader_len);
}

void ConsoleLogger::eval_batch_end(const State& state, Logger&) {
  const std::int64_t batch = state.eval_timestamp.batch;
  if (eval_batches_to_print_.empty() || eval_batches_to_print_.back() != batch) return;
  eval_batches_to_print_.pop_back();
  buffers_->lines.write(
      join("[Eval batch=", of(batch, state.dataloader_len), "] Eval on ", state.dataloader_label, " data\n"));
}

void ConsoleLogger::eval_end(const State& state, Logger&) {
  print_metrics(join("[Eval batch=", of(state.eval_timestamp.batch, state.dataloader_len), "] Eval on ",
                     state.dataloader_label, " data:"),
                "Eval ");
  flush();
}

void ConsoleLogger::print_training(const State& state) {
  printed_at_.set(state.timestamp.batch);
  print_metrics(progress(state) + ':', "Train ");
  buffers_->means.clear();
}

void ConsoleLogger::print_metrics(std::string text, const char* kind) {
  std::vector<HeldLines::Part> parts;
  for (const auto* entry : buffers_->metrics.entries()) {
    text.append("\n\t ").append(kind).append(entry->key).append(": ");
    parts.push_back({std::exchange(text, {}), buffers_->means.mean_of(entry->key, entry->value)});
  }
  buffers_->lines.hold(std::move(parts), std::move(text));
  buffers_->metrics.clear();
}

void ConsoleLogger::print_hyperparameters() {
  const auto news = std::exchange(buffers_->news, {});
  if (std::exchange(hyperparameters_printed_, true) && news.empty()) return;
  std::string text = join(kRule, "Config:\n");
  for (const auto& [key, line] : news) text += line + '\n';
  buffers_->lines.write(text += join('\n', kRule));
}

namespace entries {

Entry<Loggers> console() { return entry<ConsoleLogger>("console", "Prints metrics", console_logger_options()); }

}  // namespace entries
}  // namespace composer::loggers
