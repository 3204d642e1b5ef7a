#include "composer/loggers/wandb_writer.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <set>
#include <utility>

#include "composer/core/error.h"
#include "composer/core/scalar.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/json_text.h"
#include "composer/loggers/logged_file.h"
#include "composer/loggers/wandb_media.h"
#include "composer/util/random_text.h"
#include "composer/util/wall_clock.h"

namespace composer::loggers {
namespace {

namespace fs = std::filesystem;

std::string random_id() { return util::random_text(8, "0123456789abcdefghijklmnopqrstuvwxyz"); }

std::string local_time(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  ::localtime_r(&time, &local);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &local)};
}

std::string wandb_key(std::string_view key) {
  const bool taken = key == "_step" || key == "_runtime" || key == "_timestamp" || key == "_wandb";
  return taken ? join("metric/", key) : valid_utf8(key);  // or nobody could read what follows
}

void write_file(const std::string& path, std::string_view data) {
  util::OutputFile file(kWandBLogger, path, util::FileMode::OVERWRITE, util::Writers::MANY);
  file.write(data);
  file.close();
}

}  // namespace

void WandBPosition::visit_state(StateVisitor& visit) {
  visit("records", records);
  visit("next_step", next_step);
  visit("row_step", row_step);
  visit("row", row);
  visit("row_time", row_time);
}

void WandBMark::visit_state(StateVisitor& visit) {
  visit("folder", folder);
  visit("id", id);
  visit("rank", rank);
  visit("runtime", runtime);
  visit("file", file);
  visit("position", position);
}

WandBWriter::WandBWriter(WandBWriterOptions options) : options_(std::move(options)), names_(&wandb_key) {}

bool WandBWriter::takes(const Record& record) const {
  if (record.get<LogFile>() != nullptr) return options_.log_artifacts;
  return record.kind() != Record::Kind::TRACES;
}

void WandBWriter::begin() {
  began_at_ = seconds_since_1970();
  options_.run.id = random_id();
  options_.run.started_at = began_at_;
  folder_ = join(options_.base, "/offline-run-", local_time(began_at_), '-', id());
  file_ = std::make_unique<util::OutputFile>(kWandBLogger, path(), util::FileMode::CREATE, util::Writers::ONE);
  go_to({});
  try {
    write_all([this] { append_start(); });
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    throw ConfigError(error.what());
  }
}

void WandBWriter::append_start() {
  bytes_ = wandb_file_start();
  append(wandb_header());
  append(wandb_run(options_.run, config_));
  append(wandb_environment(options_.run.started_at, id() + '-' + random_id()));
}

bool WandBWriter::can_continue(const WandBMark& mark) const {
  const bool is_name = fs::path(mark.folder).filename() == mark.folder && mark.folder.starts_with("offline-run-") &&
                       fs::path(mark.id).filename() == mark.id;  // a checkpoint may be forged
  return is_name && mark.rank == options_.rank &&
         mark.file.compare(join(options_.base, '/', mark.folder, "/run-", mark.id, ".wandb")) ==
             util::LogMark::Match::SAME;
}

void WandBWriter::continue_at(const WandBMark& mark) {
  options_.run.id = mark.id;
  folder_ = options_.base + '/' + mark.folder;
  began_at_ = seconds_since_1970();
  runtime_before_ = mark.runtime;
  options_.run.started_at = began_at_ - runtime_before_;
  file_.reset();
  file_ = std::make_unique<util::OutputFile>(kWandBLogger, path(), util::FileMode::APPEND, util::Writers::ONE);
  file_->cut(mark.file.size);
  go_to(mark.position);
}

WandBMark WandBWriter::mark() const {
  return {fs::path(folder_).filename(),
          id(),
          options_.rank,
          runtime(seconds_since_1970()),
          util::LogMark::of(path(), unfinished_ ? unfinished_->size : size()),
          unfinished_ ? unfinished_->position : position()};
}

WandBPosition WandBWriter::position() const {
  WandBPosition all = position_;
  for (const Value* value : row_) all.row[value->key] = value->json;
  return all;
}

void WandBWriter::go_to(WandBPosition position) {
  for (Value* value : std::exchange(row_, {})) value->in_row = false;
  for (Value* value : std::exchange(new_, {})) value->is_new = false;
  for (const auto& [key, json] : std::exchange(position.row, {})) put(key) = json;
  position_ = std::move(position);
}

// The summary of all rows is written once.
template <class Append>
void WandBWriter::write_all(const Append& append_all) {
  const WandBPosition before = position();
  size_ = size();
  bytes_.clear();
  try {
    append_all();
    append_summary();
    if (bytes_.empty()) return;
    if (outdated_)
      file_->replace_end(outdated_->size, bytes_, outdated_->bytes);
    else
      file_->write(bytes_);
    outdated_.reset();
    if (unfinished_ && unfinished_->size >= size_)
      unfinished_->bytes = bytes_.substr(static_cast<std::size_t>(unfinished_->size - size_));
  } catch (...) {
    go_to(before);
    unfinished_.reset();
    labels_.clear();
    throw;
  }
}

void WandBWriter::write(Records records) {
  if (file_->is_removed()) begin_again();
  reopen_row(records);
  const bool goes_on = outdated_.has_value();
  const std::int64_t step = position_.row_step;
  std::vector<std::string> lost;  // why
  write_all([&] {
    for (const Record* record : records) {
      try {
        append(*record);
      } catch (const std::exception& error) {
        if (record->kind() != Record::Kind::CONTENT) throw;
        lost.push_back(describe(error));
      }
    }
    if (goes_on && !bytes_.empty() && position_.row_step == step) append_unfinished_row();
  });
  written_ += static_cast<std::int64_t>(records.size() - lost.size());
  for (const std::string& reason : lost) lose(1, reason);
}

void WandBWriter::flush() {
  if (row_.empty()) return;
  write_all([this] { append_unfinished_row(); });
}

void WandBWriter::append_unfinished_row() {
  if (row_.empty()) return;
  unfinished_ = {size_ + static_cast<std::int64_t>(bytes_.size()), position()};
  append_row();
}

// A row that was flushed goes on, unless what follows begins with another step. The file keeps it until it is replaced.
void WandBWriter::reopen_row(Records records) {
  if (!unfinished_) return;
  Unfinished before = *std::exchange(unfinished_, std::nullopt);
  const Record& next = *records.front();
  if (next.kind() != Record::Kind::HYPERPARAMETERS && next.get<LogFile>() == nullptr &&
      next.step() > before.position.row_step)
    return;
  go_to(before.position);
  outdated_ = std::move(before);
}

void WandBWriter::close() {
  const RunStatus status = status_;
  write_all([&] {
    append_row();
    append_summary();
    const auto seconds = static_cast<std::int64_t>(runtime(seconds_since_1970()));
    append(wandb_summary_runtime(seconds));
    append(wandb_exit(status == RunStatus::FINISHED ? 0 : status == RunStatus::FAILED ? 1 : 255, seconds));
  });
  file_->close();
}

void WandBWriter::begin_again() {
  file_ = std::make_unique<util::OutputFile>(kWandBLogger, path(), util::FileMode::CREATE, util::Writers::ONE);
  unfinished_.reset();
  outdated_.reset();
  position_.records = 0;
  write_all([this] { append_start(); });
  lose(std::exchange(written_, 0), join(kWandBLogger, ": ", folder_, " was removed and is begun again"));
}

void WandBWriter::append(const WandBContent& content) {
  append_wandb_framed(bytes_, wandb_record(++position_.records, id(), content), size_);
}

void WandBWriter::append(const Record& record) {
  if (record.kind() == Record::Kind::HYPERPARAMETERS) return add_config(record);
  if (const auto* file = record.get<LogFile>()) return add_file(*file);
  begin_row(record);
  for (const auto& [key, value] : record.entries()) append_wandb_json(put(names_[key]), read_scalar(value));
  if (const auto* images = record.get<LogImages>()) add_images(record, *images);
  if (const auto* table = record.get<LogTable>())
    add_media(record, wandb_table(names_[record.key()], position_.row_step, *table));
  if (const auto* histogram = record.get<LogHistogram>()) put(names_[record.key()]) = wandb_histogram(*histogram);
}

// Ends the row of the step before, if this record begins another.
void WandBWriter::begin_row(const Record& record) {
  if (record.step() > position_.row_step) append_row();
  if (row_.empty()) position_.row_step = std::max(record.step(), position_.next_step);
  position_.row_time = record.wall_time();
}

std::string& WandBWriter::put(const std::string& key) {
  Value& value = values_[key];
  if (!std::exchange(value.in_row, true)) row_.push_back(&value);
  if (value.key.empty()) value.key = key;
  value.json.clear();
  return value.json;
}

void WandBWriter::append_row() {
  if (row_.empty()) return;
  append_wandb_json(put("_step"), position_.row_step);
  append_wandb_json(put("_runtime"), runtime(position_.row_time));
  append_wandb_json(put("_timestamp"), position_.row_time);
  append(wandb_history(items_of(row_, &Value::json), position_.row_step));
  for (Value* value : row_) {
    value->in_row = false;
    value->last = value->json;
    if (!std::exchange(value->is_new, true)) new_.push_back(value);
  }
  row_.clear();
  position_.next_step = position_.row_step + 1;
}

// Only the last summary counts, so one is written for many rows.
void WandBWriter::append_summary() {
  if (new_.empty()) return;
  append(wandb_summary(items_of(new_, &Value::last)));
  for (Value* value : new_) value->is_new = false;
  new_.clear();
}

std::vector<WandBItem> WandBWriter::items_of(const std::vector<Value*>& values, std::string Value::*json) {
  std::vector<WandBItem> items;
  items.reserve(values.size());
  for (const Value* value : values) items.push_back({value->key, value->*json});
  return items;
}

void WandBWriter::add_config(const Record& record) {
  WandBItems items;
  for (const auto& [key, value] : record.entries())
    items[names_[key]] = config_[names_[key]] = wandb_json(read_scalar(value));
  append(wandb_config(items));
}

void WandBWriter::add_media(const Record& record, const WandBMedia& media) {
  std::vector<std::string> paths;
  for (const auto& [path, data] : media.files) {
    write_file(join(folder_, "/files/", path), data);
    paths.push_back(path);
  }
  append(wandb_files(paths, WandBFileType::MEDIA));
  put(names_[record.key()]) = media.json;
}

void WandBWriter::add_images(const Record& record, const LogImages& images) {
  const std::string& key = names_[record.key()];
  add_media(record, wandb_images(key, position_.row_step, images, options_.max_images));
  if (images.class_labels.empty()) return;
  for (const LogMask& mask : images.masks) {
    const std::string labels_key = wandb_labels_key(key, mask);
    const std::string labels = wandb_labels(labels_key, images);
    if (std::exchange(labels_[labels_key], labels) != labels)
      append(wandb_nested_config({"_wandb", "mask/class_labels", labels_key}, labels));
  }
}

void WandBWriter::add_file(const LogFile& file) {
  static const std::set<std::string, std::less<>> of_wandb = {"config.yaml", "output.log", "requirements.txt",
                                                              "wandb-metadata.json", "wandb-summary.json"};
  const std::string path = valid_utf8(path_below(file.name));
  if (of_wandb.contains(path)) throw Error("W&B writes ", path, " itself; upload the file by another name");
  copy_logged_file(file, join(folder_, "/files/", path));
  append(wandb_files(std::span(&path, 1), WandBFileType::OTHER));
}

}  // namespace composer::loggers
