#include "composer/loggers/event_writer.h"

#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/loggers/event_names.h"
#include "composer/loggers/format.h"
#include "composer/loggers/this_process.h"
#include "composer/util/png.h"

namespace composer::loggers {
namespace {

// In a cell of a table of Markdown.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n')
      escaped += "<br>";
    else if (c == '|')
      escaped += "\\|";
    else
      escaped += c;
  }
  return escaped;
}

std::string markdown(const LogTable& table) {
  std::string text = "|", rule = "|";
  for (const std::string& column : table.columns) (text += ' ') += cell(column) + " |", rule += "---|";
  (text += '\n') += rule + '\n';
  for (const std::vector<LogValue>& row : table.rows) {
    text += '|';
    for (const LogValue& value : row) (text += ' ') += cell(format_unquoted(value)) + " |";
    text += '\n';
  }
  return text;
}

std::string describe_classes(const LogImages& images) {
  return listed(images.class_labels, [](const auto& label) { return join(label.first, ": ", label.second); });
}

std::span<const double> doubles_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<double>(), static_cast<std::size_t>(tensor.numel())};
}

Scalar to_scalar(const LogValue& value) { return read_scalar(value); }

}  // namespace

EventWriter::EventWriter(std::string folder, std::string run_name, std::string end,
                         const TensorBoardLoggerOptions& options)
    : folder_(std::move(folder)),
      run_name_(std::move(run_name)),
      end_(std::move(end)),
      simple_values_(options.simple_values),
      max_images_(options.max_images) {}

void EventWriter::begin() {
  const std::string name = new_event_file_name(folder_, end_);
  file_ = std::make_unique<util::OutputFile>("TensorBoardLogger", folder_ + '/' + name, util::FileMode::CREATE,
                                             util::Writers::ONE);
  file_name_ = name;
  tags_.clear();
  session_is_written_ = false;
  written_ = 0;
}

void EventWriter::begin_again() {
  const std::int64_t gone = written_;
  const std::string name = file_name_;
  begin();
  lose(gone, join("TensorBoardLogger: ", folder_, '/', name, " was removed; the next records are in ", file_name_));
}

bool EventWriter::is_first(std::string_view tag) { return !std::exchange(tags_[tag], true); }

void EventWriter::write(std::span<const LogRecord> records) {
  if (file_->is_removed()) begin_again();
  events_.clear();
  for (const LogRecord& record : records) append(record);
  write_events();
  written_ += static_cast<std::int64_t>(records.size());
}

void EventWriter::write_events() {
  if (file_->size() == 0) {
    std::string first;
    append_framed(first, version_event(seconds_since_1970()));
    events_.insert(0, first);
  }
  try {
    file_->write(events_);
  } catch (const Error&) {
    tags_.clear();  // kinds of tags are written again
    session_is_written_ = false;
    throw;
  }
}

void EventWriter::append(const LogRecord& record) {
  const EventTime time{record.wall_time, record.step};
  if (record.kind == LogRecord::Kind::HYPERPARAMETERS) return add_hyperparameters(record);
  if (!session_is_written_) append_session(record.wall_time);
  for (const auto& [key, value] : record.fields) append_value(time, *key, value);
  if (const auto* images = std::get_if<LogImages>(&record.content)) append_images(time, record.key->encoded, *images);
  if (const auto* table = std::get_if<LogTable>(&record.content))
    append(text_event(time, record.key->encoded, markdown(*table), is_first(record.key->encoded)));
  if (const auto* histogram = std::get_if<LogHistogram>(&record.content))
    append(histogram_event(time, record.key->encoded, doubles_of(histogram->counts), doubles_of(histogram->edges),
                           is_first(record.key->encoded)));
}

void EventWriter::append_value(const EventTime& time, const LogKey& key, const LogValue& value) {
  if (const auto* text = std::get_if<std::string>(&value))
    append(text_event(time, key.encoded, *text, is_first(key.encoded)));
  else
    append_number(time, key.encoded, to_number(value));
}

void EventWriter::append_number(const EventTime& time, const std::string& tag, double value) {
  if (simple_values_)
    put_simple(event_, time, tag, value);
  else
    put_scalar(event_, time, tag, value, is_first(tag));
  append(event_);
}

void EventWriter::append_images(const EventTime& time, const std::string& key, const LogImages& images) {
  const auto append_all = [&](const std::string& tag, const util::Pngs& pngs, const std::string& description) {
    append(image_event(time, tag, pngs.files, pngs.width, pngs.height, description, is_first(tag)));
  };
  append_all(key, util::png_files(images, max_images_), "");
  for (const auto& [name, classes] : images.masks)
    append_all(join(key, "/masks/", valid_utf8(name)), util::mask_png_files(classes, max_images_),
               describe_classes(images));
}

// TensorBoard reads the hyperparameters of a session from one record, which is written before the first metric. Those
// that are logged later become texts.
void EventWriter::add_hyperparameters(const LogRecord& record) {
  for (const auto& [key, value] : record.fields) {
    hyperparameters_[key->encoded] = to_scalar(value);
    const std::string tag = "hyperparameters/" + key->encoded;
    if (session_is_written_)
      append(text_event({record.wall_time, record.step}, tag, format_unquoted(value), is_first(tag)));
  }
}

void EventWriter::append_session(double wall_time) {
  append(session_start_event(wall_time, hyperparameters_, valid_utf8(run_name_)));
  session_is_written_ = true;
}

void EventWriter::close() {
  events_.clear();
  if (!session_is_written_) append_session(seconds_since_1970());
  append(session_end_event(seconds_since_1970(), status_));
  write_events();
  file_->close();
}

}  // namespace composer::loggers
