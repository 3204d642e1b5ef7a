// A run without a trainer: fires at one logger the events of training and evaluation that loggers listen to, and logs
// what the trainer logs.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "composer/core/logger.h"
#include "composer/core/state.h"

namespace composer::loggers {

struct ScriptedRun {
  explicit ScriptedRun(LoggerDestination& destination) : to(destination), logger(state, {&destination}) {
    state.has_dataloader = true;
    state.dataloader_label = "train";
  }

  void fit_start(OptionalTime max_duration, std::optional<std::int64_t> batches_per_epoch) {
    state.max_duration = max_duration;
    state.dataloader_len = batches_per_epoch;
    fire(Event::FIT_START);
  }
  void epoch_start() {
    fire(Event::EPOCH_START);
    logger.log_metrics({{"time/epoch", state.timestamp.epoch}});
  }
  void batch(LogValue loss, LogValue accuracy = 0.5, std::int64_t samples = 4) {
    fire(Event::BATCH_START);
    log_time();
    logger.log_metrics({{"trainer/device_train_microbatch_size", samples}});
    logger.log_metrics({{"loss/train/total", std::move(loss)}});
    logger.log_metrics({{"metrics/train/MulticlassAccuracy", std::move(accuracy)}});
    const Timestamp before = state.timestamp;
    state.timestamp = before.to_next_batch(samples, 0, batch_takes);
    state.previous_timestamp = before;
    during_batch();
    fire(Event::BATCH_END);
  }
  void epoch_end(LogValue accuracy = 0.5) {
    logger.log_metrics({{"metrics/train/MulticlassAccuracy", std::move(accuracy)}});
    state.previous_timestamp = state.timestamp;
    state.timestamp = state.timestamp.to_next_epoch();
    fire(Event::EPOCH_END);
  }
  void fit_end() {
    logger.log_metrics({{"time/epoch", state.timestamp.epoch}});
    log_time();
    fire(Event::FIT_END);
  }
  void eval(const std::string& label, std::optional<std::int64_t> batches, std::int64_t trained,
            std::vector<std::pair<std::string, double>> metrics) {
    const auto loader = std::pair(state.dataloader_label, state.dataloader_len);
    state.dataloader_label = label;
    state.dataloader_len = batches;
    state.eval_timestamp = {};
    fire(Event::EVAL_START);
    for (std::int64_t i = 0; i < trained; ++i) {
      state.eval_timestamp = state.eval_timestamp.to_next_batch(4, 0, batch_takes);
      during_batch();
      fire(Event::EVAL_BATCH_END);
    }
    for (const auto& [key, value] : metrics) logger.log_metrics({{key, value}});
    fire(Event::EVAL_END);
    std::tie(state.dataloader_label, state.dataloader_len) = loader;
  }
  void log_time() {
    const Timestamp& now = state.timestamp;
    logger.log_metrics({{"time/batch", now.batch},
                        {"time/sample", now.sample},
                        {"time/batch_in_epoch", now.batch_in_epoch},
                        {"time/sample_in_epoch", now.sample_in_epoch}});
  }
  void fire(Event event) { to.run_event(event, state, logger); }
  void close() {
    to.close(state, logger);
    to.post_close();
  }

  State state;
  LoggerDestination& to;
  Logger logger;
  Seconds batch_takes{0.5};
  std::function<void()> during_batch = [] {};  // time passes
};

}  // namespace composer::loggers
