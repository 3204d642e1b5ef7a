#include "composer/loggers/wandb_writer.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <utility>

#include "composer/core/error.h"
#include "composer/core/scalar.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/json_text.h"
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
  return taken ? join("metric/", key) : valid_utf8(key);  // invalid UTF-8 would make the rest of the file unreadable
}

}  // namespace

void WandBMark::visit_state(StateVisitor& visit) {
  visit("folder", folder);
  visit("id", id);
  visit("rank", rank);
  visit("runtime", runtime);
  visit("file", file);
  visit("position", position);
}

WandBWriter::WandBWriter(WandBWriterOptions options)
    : options_(std::move(options)), names_(&wandb_key), files_(options_.max_images) {}

bool WandBWriter::takes(const Record& record) const {
  if (record.get<LogFile>() != nullptr) return options_.log_artifacts;
  return record.kind() != Record::Kind::TRACES;
}

void WandBWriter::begin() {
  began_at_ = seconds_since_1970();
  options_.run.id = random_id();
  options_.run.started_at = began_at_;
  folder_ = join(options_.base, "/offline-run-", local_time(began_at_), '-', id());
  files_.set_folder(folder_);
  file_.create(path());
  restore({});
  try {
    write_all([this] { append_start(); });
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    throw ConfigError(error.what());
  }
}

void WandBWriter::append_start() {
  file_.append_start();
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
  files_.set_folder(folder_);
  file_.go_on(path(), mark.file.size, mark.position.records);
  rows_.restore(mark.position);
}

WandBMark WandBWriter::mark() const {
  return {fs::path(folder_).filename(),
          id(),
          options_.rank,
          runtime(seconds_since_1970()),
          util::LogMark::of(path(), unfinished_ ? unfinished_->end.size : file_.size()),
          unfinished_ ? unfinished_->position : position()};
}

WandBPosition WandBWriter::position() const {
  WandBPosition all = rows_.position();
  all.records = file_.records();
  return all;
}

void WandBWriter::restore(WandBPosition position) {
  file_.set_records(position.records);
  rows_.restore(std::move(position));
}

// Writes one summary for all appended rows.
template <class Append>
void WandBWriter::write_all(const Append& append_all) {
  const WandBPosition before = position();
  file_.prepare();
  try {
    append_all();
    append_summary();
    if (!file_.is_prepared()) return;
    file_.write();
    if (!unfinished_) return;
    if (auto bytes = file_.bytes_behind(unfinished_->end.size)) unfinished_->end.bytes = std::move(*bytes);
  } catch (...) {
    restore(before);
    unfinished_.reset();
    files_.forget_labels();
    throw;
  }
}

void WandBWriter::write(Records records) {
  if (file_.is_removed()) begin_again();
  reopen_row(records);
  const bool goes_on = file_.gives_up();
  const std::int64_t step = rows_.step();
  std::vector<std::string> lost;  // reasons of lost records
  write_all([&] {
    for (const Record* record : records) {
      try {
        append(*record);
      } catch (const std::exception& error) {
        if (record->kind() != Record::Kind::CONTENT) throw;
        lost.push_back(describe(error));
      }
    }
    if (goes_on && file_.is_prepared() && rows_.step() == step) append_unfinished_row();
  });
  written_ += static_cast<std::int64_t>(records.size() - lost.size());
  for (const std::string& reason : lost) lose(1, reason);
}

void WandBWriter::flush() {
  if (rows_.is_empty()) return;
  write_all([this] { append_unfinished_row(); });
}

void WandBWriter::append_unfinished_row() {
  if (rows_.is_empty()) return;
  unfinished_ = {{.size = file_.end()}, position()};
  append_row();
}

// Continues a row that flush() has written, unless the next record begins another step. The row stays in the file until
// it is replaced.
void WandBWriter::reopen_row(Records records) {
  if (!unfinished_) return;
  Unfinished before = *std::exchange(unfinished_, std::nullopt);
  const Record& next = *records.front();
  if (next.kind() != Record::Kind::HYPERPARAMETERS && next.get<LogFile>() == nullptr &&
      next.step() > before.position.row_step)
    return;
  restore(std::move(before.position));
  file_.give_up(std::move(before.end));
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
  file_.close();
}

void WandBWriter::begin_again() {
  file_.create(path());
  unfinished_.reset();
  write_all([this] { append_start(); });
  lose(std::exchange(written_, 0), join(kWandBLogger, ": ", folder_, " was removed and is begun again"));
}

void WandBWriter::append(const Record& record) {
  if (record.kind() == Record::Kind::HYPERPARAMETERS) return append_config(record);
  if (const auto* file = record.get<LogFile>()) return append(files_.add_file(*file));
  if (record.step() > rows_.step()) append_row();  // a higher step begins a new row
  rows_.begin(record.step(), record.wall_time());
  for (const auto& [key, value] : record.entries()) append_wandb_json(rows_.put(names_[key]), read_scalar(value));
  if (const auto* images = record.get<LogImages>())
    append_added(record, files_.add_images(names_[record.key()], rows_.step(), *images));
  if (const auto* table = record.get<LogTable>())
    append_added(record, files_.add_media(wandb_table(names_[record.key()], rows_.step(), *table)));
  if (const auto* histogram = record.get<LogHistogram>()) rows_.put(names_[record.key()]) = wandb_histogram(*histogram);
}

void WandBWriter::append_added(const Record& record, const WandBFiles::Added& added) {
  for (const WandBContent& content : added.contents) append(content);
  rows_.put(names_[record.key()]) = added.json;
}

void WandBWriter::append_row() {
  if (!rows_.is_empty()) append(rows_.take_row(runtime(rows_.time())));
}

// Only the last summary counts, so one is written for many rows.
void WandBWriter::append_summary() {
  if (const std::optional<WandBContent> summary = rows_.take_summary()) append(*summary);
}

void WandBWriter::append_config(const Record& record) {
  WandBItems items;
  for (const auto& [key, value] : record.entries())
    items[names_[key]] = config_[names_[key]] = wandb_json(read_scalar(value));
  append(wandb_config(items));
}

}  // namespace composer::loggers
