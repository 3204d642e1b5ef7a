// Misuse of times, events, batches, loggers, callbacks and models.
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "composer/callbacks/registry.h"
#include "composer/core/event.h"
#include "composer/core/interval.h"
#include "composer/core/state_dict.h"
#include "composer/data/data_spec.h"
#include "composer/loggers/console_logger.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/loggers/progress_bar.h"
#include "composer/models/classifier.h"
#include "composer/optim/optimizer.h"
#include "tests/replay/messages.h"

namespace composer::replay {
namespace {

Json event_properties() {
  Json rows = Json::array();
  for (int i = 0; i < kEventCount; ++i) {
    const auto event = static_cast<Event>(i);
    rows.push_back({name(event), to_string(event), canonical_name(event), is_before_event(event), is_after_event(event),
                    is_predict(event), is_eval(event)});
  }
  return rows;
}

// The shape of the only tensor of each part.
Json shapes_of_parts(std::int64_t samples, std::int64_t microbatch_size) {
  Json shapes = Json::array();
  for (const Batch& part : split_batch(at::zeros({samples}), microbatch_size))
    shapes.push_back(part.only().sizes().vec());
  return shapes;
}

// A tensor (its shape), a list of numbers and a number, which in a batch are tensors all three.
Json parts_of_mapping() {
  const Batch batch = {
      {"tensor", at::zeros({5})}, {"list", at::arange(1, 6, at::kLong)}, {"number", at::scalar_tensor(7, at::kLong)}};
  Json parts = Json::array();
  for (const Batch& part : split_batch(batch, 2)) {
    const at::Tensor& list = part.at("list");
    parts.push_back({part.at("tensor").sizes().vec(),
                     std::vector<std::int64_t>(list.const_data_ptr<std::int64_t>(),
                                               list.const_data_ptr<std::int64_t>() + list.numel()),
                     part.at("number").item<std::int64_t>()});
  }
  return parts;
}

Batch batch_of(std::initializer_list<std::pair<const char*, std::int64_t>> numbers) {
  Batch batch;
  for (const auto& [name, value] : numbers) batch.set(name, at::scalar_tensor(value, at::kLong));
  return batch;
}

Json batch_json(const Batch& batch) {
  Json numbers = Json::object();
  for (const auto& [name, value] : batch) numbers[name] = value.item<std::int64_t>();
  return numbers;
}

Json load_incomplete_timestamp() {
  StateDict saved;
  Timestamp timestamp;
  StateVisitor::saving(saved)("timestamp", timestamp);
  std::get<StateDict>(saved["timestamp"]).erase("batch");
  StateVisitor::loading(saved, "")("timestamp", timestamp);
  return {};
}

Json make_callback(const char* name, const Settings& settings) {
  return callbacks::registry().find(name).make(settings), Json();
}

Json made_optimizer(const optim::AnyOptimizer& optimizer) {
  return optimizer.make(optim::parameters_of(*torch::nn::Linear(4, 3))), Json();
}

}  // namespace

const Misuses& misuses_of_parts() {
  static const Misuses table = {
      {"event_unknown", [] { return parse_event("nope"), Json(); }},
      {"event_properties", event_properties},
      {"state_load_wrong_dict", load_incomplete_timestamp},
      {"state_batch_get_bad_key",
       [] {
         return batch_of({{"input", 1}, {"target", 2}}).at("foo"), Json();
       }},
      {"time_bad_string", [] { return Time::parse("5 epochs"), Json(); }},
      {"time_compare_units", [] { return Json(Time(1, TimeUnit::EPOCH) < Time(1, TimeUnit::BATCH)); }},
      {"evaluator_interval_unit", [] { return Interval(Time::parse("3foo")), Json(); }},
      {"split_small", [] { return shapes_of_parts(3, 5); }},
      {"split_tensor", [] { return shapes_of_parts(7, 3); }},
      {"split_mapping", parts_of_mapping},
      {"batch_get_2",
       [] {
         return Json(batch_of({{"a", 1}, {"b", 2}}).at("b").item<std::int64_t>());
       }},
      {"batch_set_3",
       [] {
         Batch batch = batch_of({{"a", 1}});
         batch.set("z", at::scalar_tensor(7, at::kLong));
         return batch_json(batch);
       }},
      {"console_logger_unit", [] { return loggers::ConsoleLogger({.log_interval = "3sp"}), Json(); }},
      {"console_logger_stream", [] { return loggers::ConsoleLogger({.stream = "foo"}), Json(); }},
      {"progress_bar_stream_p", [] { return loggers::ProgressBar({.stream = "STDIN"}), Json(); }},
      {"in_memory_missing_metric", [] { return loggers::InMemoryLogger().get_timeseries("foo"), Json(); }},
      {"speed_monitor_unit",
       [] {
         return make_callback("speed_monitor", {{"time_unit", "weeks"}});
       }},
      {"image_visualizer_mode",
       [] {
         return make_callback("image_visualizer", {{"mode", "foo"}});
       }},
      {"activation_monitor_unit",
       [] {
         return make_callback("activation_monitor", {{"interval", "3sp"}});
       }},
      {"runtime_estimator_unit_p",
       [] {
         return make_callback("runtime_estimator", {{"time_unit", "Seconds"}});
       }},
      {"early_stopper_comp",
       [] {
         return make_callback("early_stopper", {{"monitor", "m"}, {"dataloader_label", "eval"}, {"better", "foo"}});
       }},
      {"threshold_stopper_comp",
       [] {
         return make_callback("threshold_stopper",
                              {{"monitor", "m"}, {"dataloader_label", "eval"}, {"threshold", "1"}, {"better", "foo"}});
       }},
      {"decoupled_sgdw_no_lr", [] { return made_optimizer(optim::decoupled_sgdw({})); }},
      {"decoupled_sgdw_nesterov", [] { return made_optimizer(optim::decoupled_sgdw({.lr = 0.1, .nesterov = true})); }},
      {"decoupled_adamw_bad_eps", [] { return made_optimizer(optim::decoupled_adamw({.eps = -1})); }},
      {"classifier_no_classes", [] { return models::Classifier(torch::nn::Linear(4, 3), {}), Json(); }},
  };
  return table;
}

}  // namespace composer::replay
