#include "composer/loggers/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/record.h"
#include "composer/core/state.h"
#include "composer/loggers/batch_means.h"
#include "composer/loggers/device_value.h"
#include "composer/loggers/format.h"
#include "composer/loggers/metric_buffer.h"
#include "composer/loggers/progress_line.h"
#include "composer/loggers/progress_screen.h"
#include "composer/loggers/stream_option.h"

namespace composer::loggers {
namespace {

constexpr std::string_view kLoss = "loss/train/", kMetric = "metrics/";

// A short name: "loss" for loss/train/total, "ce" for loss/train/ce, "Accuracy" for metrics/train/MulticlassAccuracy.
std::string short_name(std::string_view key) {
  if (key.starts_with(kLoss)) key.remove_prefix(kLoss.size());
  if (key == "total") return "loss";
  if (key.starts_with(kMetric)) key.remove_prefix(std::min(key.find('/', kMetric.size()), key.size() - 1) + 1);
  constexpr std::string_view kMulticlass = "Multiclass";
  if (key.starts_with(kMulticlass) && key != kMulticlass) key.remove_prefix(kMulticlass.size());
  return std::string(key);
}

// The duration of the run. Unset if the program decides when to stop: begin() without max_duration.
OptionalTime limit_of(const State& state) {
  const bool limited = state.max_duration &&
                       state.max_duration->as_double() < static_cast<double>(std::numeric_limits<std::int64_t>::max());
  return limited ? state.max_duration : OptionalTime();
}

// Whether a bar shows an epoch, rather than the run: if the run is counted in epochs, or has no max_duration.
bool counts_epochs(const State& state) {
  const OptionalTime limit = limit_of(state);
  return !limit || limit->unit() == TimeUnit::EPOCH;
}

// The title of an epoch: "epoch  2/10".
std::string epoch_title(const State& state, std::int64_t epoch) {
  const OptionalTime limit = limit_of(state);
  if (!limit) return join("epoch ", epoch);
  const std::string total = std::to_string(limit->count()), number = std::to_string(epoch);
  return join("epoch ", std::string(total.size() - std::min(total.size(), number.size()), ' '), number, '/', total);
}

std::string_view noun(TimeUnit unit) {
  switch (unit) {
    case TimeUnit::BATCH:
      return "batch";
    case TimeUnit::SAMPLE:
      return "sample";
    case TimeUnit::TOKEN:
      return "token";
    case TimeUnit::SECOND:
      return "time";
    case TimeUnit::ITERATION:
      return "iteration";
    case TimeUnit::EPOCH:
    case TimeUnit::DURATION:
      break;
  }
  return "epoch";
}

// The fraction of the run that is done, also within an epoch of `epoch_batches` batches; unset if unknown.
std::optional<double> share_of_run(const State& state, std::optional<std::int64_t> epoch_batches) {
  const OptionalTime limit = limit_of(state);
  if (!limit || limit->count() <= 0) return {};
  const TimeUnit unit = limit->unit();
  const Timestamp& now = state.timestamp;
  double done = now.get(unit).as_double();
  if (unit == TimeUnit::SECOND) done = now.total_wct.count();
  if (unit == TimeUnit::EPOCH && now.batch_in_epoch > 0) {
    if (epoch_batches.value_or(0) <= 0) return {};
    done += std::min(1.0, static_cast<double>(now.batch_in_epoch) / static_cast<double>(*epoch_batches));
  }
  return done / limit->as_double();
}

// The work done: samples if they are counted, otherwise batches.
double work(const Timestamp& now) { return static_cast<double>(now.sample > 0 ? now.sample : now.batch); }
const char* unit_of_work(const Timestamp& now) { return now.sample > 0 ? "samples" : "batches"; }

std::vector<Option<ProgressBarOptions>> progress_bar_options() {
  using O = ProgressBarOptions;
  return all_options(stream_option(&O::stream), option("redraw_interval", &O::redraw_interval).above(0, "seconds"),
                     option("line_interval", &O::line_interval).above(0, "seconds"));
}

}  // namespace

struct ProgressBar::Progress {
  Progress(TextStream stream, Terminal terminal, const ProgressBarOptions& options)
      : screen(std::move(stream), std::move(terminal), options.redraw_interval, options.line_interval) {}

  std::vector<ProgressLine::Metric> metrics_to_show();
  static std::vector<ProgressLine::Metric> read(const MetricBuffer& buffer);
  std::vector<ProgressLine::Metric> means_of_epoch();
  ProgressLine training_line(const State& state);
  ProgressLine loader_line(const State& state, std::string title, const Timestamp& now) const;
  std::optional<double> seconds_left(const State& state) const;
  void show_training(const State& state);
  void keep_epoch();

  ProgressScreen screen;
  MetricBuffer training, evaluation;
  BatchMeans means;  // over the epoch
  StringMap<DeviceValue> arriving;
  Rate rate;
  bool fitting = false, evaluating = false;
  // On the clock of the screen; loop_began: of an evaluation or prediction.
  double fit_began = 0, epoch_began = 0, loop_began = 0;
  double share_at_start = 0;
  std::optional<std::int64_t> epoch_batches;  // number of batches in the loader, otherwise in the last epoch
  std::size_t title_columns = 0;              // columns of the title in the last line about training
  std::int64_t kept_at = 0;                   // batch at which a line about training was last kept
  std::optional<ProgressLine> epoch;          // line of the epoch that has ended and waits for its evaluations
  std::optional<ProgressLine> skipped;        // line of the last epoch, if it was not kept
};

ProgressBar::ProgressBar(ProgressBarOptions options) : ProgressBar(options, Terminal::of(options.stream)) {}
ProgressBar::ProgressBar(ProgressBarOptions options, Terminal terminal) {
  options.stream.check("ProgressBar");
  check(options, progress_bar_options(), "ProgressBar: ", "");
  progress_ = std::make_unique<Progress>(options.stream, std::move(terminal), options);
}
ProgressBar::~ProgressBar() = default;
ProgressBar::ProgressBar(ProgressBar&&) noexcept = default;

void ProgressBar::log_record(const Record& record, const State& state) {
  if (record.kind() != Record::Kind::METRICS) return;
  for (const auto& [key, value] : record.entries()) {
    if (progress_->evaluating) {
      const std::string_view rest = key.starts_with(kMetric) ? key.substr(kMetric.size()) : "";
      const std::string& label = state.dataloader_label;
      if (rest.starts_with(label) && rest.substr(label.size()).starts_with('/')) progress_->evaluation.set(key, value);
    } else if (progress_->means.takes(key)) {
      progress_->training.set(key, value);
      progress_->means.set(key, value);
    }
  }
}

void ProgressBar::fit_start(const State& state, Logger&) {
  Progress& p = *progress_;
  p.fitting = true;
  p.fit_began = p.epoch_began = p.screen.now();
  p.epoch_batches = state.dataloader_len;
  p.share_at_start = share_of_run(state, p.epoch_batches).value_or(0);
  p.kept_at = state.timestamp.batch;
  p.rate.clear();
  p.rate.add(state.timestamp.total_wct.count(), work(state.timestamp));
  p.training.clear();
  p.means.begin_fit(state);
  p.epoch.reset();
  p.skipped.reset();
  if (p.screen.interactive())
    p.show_training(state);
  else
    p.screen.wait();
}

void ProgressBar::epoch_start(const State&, Logger&) {
  progress_->epoch_began = progress_->screen.now();
  progress_->means.clear();
}

void ProgressBar::batch_end(const State& state, Logger&) {
  progress_->means.count_batch(state);
  if (progress_->screen.due()) progress_->show_training(state);
}

void ProgressBar::epoch_end(const State& state, Logger&) {
  Progress& p = *progress_;
  p.means.end_epoch();
  if (!counts_epochs(state) || !state.previous_timestamp) return;
  const Timestamp& end = *state.previous_timestamp;  // the end of the epoch; state.timestamp begins the next one
  ProgressLine line;
  line.title = epoch_title(state, state.timestamp.epoch);
  line.done = end.batch_in_epoch;
  line.total = end.batch_in_epoch;
  line.counts = join(end.batch_in_epoch, end.batch_in_epoch == 1 ? " batch" : " batches");
  const auto count = static_cast<double>(end.sample > 0 ? end.sample_in_epoch : end.batch_in_epoch);
  line.rate = format_rate(count / end.epoch_wct.count(), unit_of_work(end));
  line.elapsed = p.screen.now() - p.epoch_began;
  p.epoch = std::move(line);
  p.epoch_batches = end.batch_in_epoch;
  p.kept_at = state.timestamp.batch;
}

void ProgressBar::epoch_checkpoint(const State& state, Logger&) {
  Progress& p = *progress_;
  if (!p.epoch) return;
  if (!p.screen.interactive()) p.epoch->left = p.seconds_left(state);
  if (p.screen.crowded() && p.epoch->evaluations.empty())
    p.skipped = std::exchange(p.epoch, std::nullopt);
  else
    p.keep_epoch();
}

void ProgressBar::fit_end(const State& state, Logger&) {
  Progress& p = *progress_;
  if (p.skipped && p.kept_at == state.timestamp.batch) p.epoch = std::move(p.skipped);
  p.keep_epoch();
  if (p.kept_at != state.timestamp.batch) {
    ProgressLine line = p.training_line(state);
    line.metrics = Progress::read(p.training);
    line.left = {};
    p.screen.keep(line);
    p.kept_at = state.timestamp.batch;
  }
  p.screen.clear();
  p.fitting = false;
}

void ProgressBar::eval_start(const State&, Logger&) {
  progress_->evaluating = true;
  progress_->evaluation.clear();
  progress_->loop_began = progress_->screen.now();
}

void ProgressBar::eval_batch_end(const State& state, Logger&) {
  Progress& p = *progress_;
  if (p.screen.due()) p.screen.show(p.loader_line(state, state.dataloader_label, state.eval_timestamp));
}

void ProgressBar::eval_end(const State& state, Logger&) {
  Progress& p = *progress_;
  p.evaluating = false;
  ProgressLine::Evaluation result{state.dataloader_label, Progress::read(p.evaluation)};
  if (p.epoch) {
    p.epoch->evaluations.push_back(std::move(result));
    return;
  }
  ProgressLine line = p.loader_line(state, state.dataloader_label, state.eval_timestamp);
  line.total = line.done;
  line.left = {};
  if (p.fitting) {
    line.title = join("batch ", state.timestamp.batch);
    line.counts.clear();
    line.rate.clear();
    line.evaluations.push_back(std::move(result));
  } else {
    line.metrics = std::move(result.metrics);
  }
  p.screen.keep(line);
}

void ProgressBar::predict_start(const State&, Logger&) { progress_->loop_began = progress_->screen.now(); }

void ProgressBar::predict_batch_end(const State& state, Logger&) {
  Progress& p = *progress_;
  if (p.screen.due()) p.screen.show(p.loader_line(state, "predict", state.predict_timestamp));
}

void ProgressBar::predict_end(const State& state, Logger&) {
  ProgressLine line = progress_->loader_line(state, "predict", state.predict_timestamp);
  line.total = line.done;
  line.left = {};
  progress_->screen.keep(line);
}

void ProgressBar::close(const State&, Logger&) { flush(); }

void ProgressBar::flush() {
  progress_->keep_epoch();
  progress_->screen.leave();
}

namespace {

// Lists losses first: after a resume, metrics may be logged before them.
std::vector<const MetricBuffer::Entry*> losses_first(const MetricBuffer& buffer) {
  std::vector<const MetricBuffer::Entry*> entries;
  for (const bool losses : {true, false})
    for (const auto* entry : buffer.entries())
      if (entry->key.starts_with(kLoss) == losses) entries.push_back(entry);
  return entries;
}

}  // namespace

// The metrics of training whose values have arrived.
std::vector<ProgressLine::Metric> ProgressBar::Progress::metrics_to_show() {
  std::vector<ProgressLine::Metric> metrics;
  for (const auto* entry : losses_first(training)) {
    std::string text;
    const auto* tensor = std::get_if<at::Tensor>(&entry->value);
    if (tensor == nullptr)
      text = format_short(entry->value);
    else if (const auto value = arriving[entry->key].look(*tensor))
      text = std::visit([](const auto& held) { return format_short(LogValue(held)); }, *value);
    if (!text.empty()) metrics.emplace_back(short_name(entry->key), std::move(text));
  }
  return metrics;
}

std::vector<ProgressLine::Metric> ProgressBar::Progress::read(const MetricBuffer& buffer) {
  std::vector<ProgressLine::Metric> metrics;
  for (const auto* entry : losses_first(buffer))
    metrics.emplace_back(short_name(entry->key), format_short(entry->value));
  return metrics;
}

// Means over the epoch, because the last batch may be small and not representative.
std::vector<ProgressLine::Metric> ProgressBar::Progress::means_of_epoch() {
  std::vector<ProgressLine::Metric> metrics;
  for (const auto* entry : losses_first(training))
    metrics.emplace_back(short_name(entry->key), format_short(means.mean_of(entry->key, entry->value)));
  return metrics;
}

ProgressLine ProgressBar::Progress::training_line(const State& state) {
  ProgressLine line;
  const Timestamp& now = state.timestamp;
  if (counts_epochs(state)) {
    line.title = epoch_title(state, now.epoch + 1);
    line.done = now.batch_in_epoch;
    line.total = state.dataloader_len;
  } else {
    const TimeUnit unit = state.max_duration->unit();
    line.title = noun(unit);
    line.done = now.get(unit).count();
    line.total = state.max_duration->count();
  }
  line.counts = line.total ? join(line.done, '/', *line.total) : join("batch ", line.done);
  title_columns = line.title.size();
  rate.add(now.total_wct.count(), work(now));
  line.rate = format_rate(rate.per_second(), unit_of_work(now));
  line.elapsed = screen.now() - fit_began;
  line.left = seconds_left(state);
  return line;
}

// The line of an evaluation or a prediction.
ProgressLine ProgressBar::Progress::loader_line(const State& state, std::string title, const Timestamp& now) const {
  ProgressLine line;
  line.title = std::move(title);
  if (fitting) line.title.resize(std::max(line.title.size(), title_columns), ' ');  // keeps the bar at its place
  line.evaluating = true;
  line.done = now.batch;
  line.total = state.dataloader_len;
  line.counts = line.total ? join(line.done, '/', *line.total) : join("batch ", line.done);
  const double elapsed = screen.now() - loop_began;
  line.rate = format_rate(work(now) / elapsed, unit_of_work(now));
  line.elapsed = elapsed;
  if (line.total && line.done > 0)
    line.left = elapsed * static_cast<double>(*line.total - line.done) / static_cast<double>(line.done);
  return line;
}

// The estimated remaining time of the run; unset before the first batch is done.
std::optional<double> ProgressBar::Progress::seconds_left(const State& state) const {
  const auto share = share_of_run(state, epoch_batches);
  if (!share || *share <= share_at_start || *share >= 1) return {};
  return (screen.now() - fit_began) * (1 - *share) / (*share - share_at_start);
}

void ProgressBar::Progress::show_training(const State& state) {
  ProgressLine line = training_line(state);
  line.metrics = metrics_to_show();
  screen.show(line);
}

void ProgressBar::Progress::keep_epoch() {
  if (!epoch) return;
  epoch->metrics = means_of_epoch();
  screen.keep(*std::exchange(epoch, std::nullopt));
  skipped.reset();
}

namespace entries {

Entry<Loggers> progress_bar() {
  return entry<ProgressBar>("progress_bar", "Shows progress, losses and metrics, redrawn in place on a terminal",
                            progress_bar_options());
}

}  // namespace entries
}  // namespace composer::loggers
