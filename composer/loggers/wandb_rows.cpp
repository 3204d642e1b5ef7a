#include "composer/loggers/wandb_rows.h"

#include <algorithm>
#include <utility>

#include "composer/core/state_dict.h"

namespace composer::loggers {

void WandBPosition::visit_state(StateVisitor& visit) {
  visit("records", records);
  visit("next_step", next_step);
  visit("row_step", row_step);
  visit("row", row);
  visit("row_time", row_time);
}

void WandBRows::begin(std::int64_t step, double time) {
  if (row_.empty()) position_.row_step = std::max(step, position_.next_step);
  position_.row_time = time;
}

std::string& WandBRows::put(const std::string& key) {
  Value& value = values_[key];
  if (!std::exchange(value.in_row, true)) row_.push_back(&value);
  if (value.key.empty()) value.key = key;
  value.json.clear();
  return value.json;
}

WandBContent WandBRows::take_row(double runtime) {
  append_wandb_json(put("_step"), position_.row_step);
  append_wandb_json(put("_runtime"), runtime);
  append_wandb_json(put("_timestamp"), position_.row_time);
  WandBContent content = wandb_history(items_of(row_, &Value::json), position_.row_step);
  for (Value* value : row_) {
    value->in_row = false;
    value->last = value->json;
    if (!std::exchange(value->is_new, true)) new_.push_back(value);
  }
  row_.clear();
  position_.next_step = position_.row_step + 1;
  return content;
}

std::optional<WandBContent> WandBRows::take_summary() {
  if (new_.empty()) return std::nullopt;
  WandBContent content = wandb_summary(items_of(new_, &Value::last));
  for (Value* value : std::exchange(new_, {})) value->is_new = false;
  return content;
}

std::vector<WandBItem> WandBRows::items_of(const std::vector<Value*>& values, std::string Value::*json) {
  std::vector<WandBItem> items;
  items.reserve(values.size());
  for (const Value* value : values) items.push_back({value->key, value->*json});
  return items;
}

WandBPosition WandBRows::position() const {
  WandBPosition all = position_;
  for (const Value* value : row_) all.row[value->key] = value->json;
  return all;
}

void WandBRows::restore(WandBPosition position) {
  for (Value* value : std::exchange(row_, {})) value->in_row = false;
  for (Value* value : std::exchange(new_, {})) value->is_new = false;
  for (const auto& [key, json] : std::exchange(position.row, {})) put(key) = json;
  position_ = std::move(position);
}

}  // namespace composer::loggers
