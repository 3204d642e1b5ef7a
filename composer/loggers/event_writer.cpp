#include "composer/loggers/event_writer.h"

#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/loggers/event_names.h"
#include "composer/loggers/format.h"
#include "composer/util/png.h"
#include "composer/util/wall_clock.h"

namespace composer::loggers {
namespace {

// Escapes a text for a cell of a Markdown table.
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

void EventWriter::write(Records records) {
  if (file_->is_removed()) begin_again();
  events_.clear();
  for (const Record* record : records) append(*record);
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
    tags_.clear();  // so that the kinds of tags are written again
    session_is_written_ = false;
    throw;
  }
}

void EventWriter::append(const Record& record) {
  const EventTime time{record.wall_time(), record.step()};
  if (record.kind() == Record::Kind::HYPERPARAMETERS) return add_hyperparameters(record);
  if (!session_is_written_) append_session(record.wall_time());
  for (const auto& [key, value] : record.entries()) append_value(time, names_[key], value);
  if (record.kind() != Record::Kind::CONTENT) return;
  const std::string& tag = names_[record.key()];
  if (const auto* images = record.get<LogImages>()) append_images(time, tag, *images);
  if (const auto* table = record.get<LogTable>()) append(text_event(time, tag, markdown(*table), is_first(tag)));
  if (const auto* histogram = record.get<LogHistogram>())
    append(histogram_event(time, tag, doubles_of(histogram->counts), doubles_of(histogram->edges), is_first(tag)));
}

void EventWriter::append_value(const EventTime& time, const std::string& tag, const LogValue& value) {
  if (const auto* text = std::get_if<std::string>(&value))
    append(text_event(time, tag, *text, is_first(tag)));
  else
    append_number(time, tag, to_number(value));
}

void EventWriter::append_number(const EventTime& time, const std::string& tag, double value) {
  if (simple_values_)
    put_simple(event_, time, tag, value);
  else
    put_scalar(event_, time, tag, value, is_first(tag));
  append(event_);
}

void EventWriter::append_images(const EventTime& time, const std::string& tag, const LogImages& images) {
  const auto append_all = [&](const std::string& name, const util::Pngs& pngs, const std::string& description) {
    append(image_event(time, name, pngs.files, pngs.width, pngs.height, description, is_first(name)));
  };
  append_all(tag, util::png_files(images, max_images_), "");
  for (const auto& [name, classes] : images.masks)
    append_all(join(tag, "/masks/", valid_utf8(name)), util::mask_png_files(classes, max_images_),
               describe_classes(images));
}

// TensorBoard reads the hyperparameters of a session from one record, which is written before the first metric.
// Hyperparameters that are logged later become texts.
void EventWriter::add_hyperparameters(const Record& record) {
  for (const auto& [key, value] : record.entries()) {
    const std::string& name = names_[key];
    hyperparameters_[name] = to_scalar(value);
    const std::string tag = "hyperparameters/" + name;
    if (session_is_written_)
      append(text_event({record.wall_time(), record.step()}, tag, format_unquoted(value), is_first(tag)));
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
