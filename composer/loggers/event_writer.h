#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "composer/loggers/background_logger.h"
#include "composer/loggers/event_file.h"
#include "composer/loggers/json_text.h"
#include "composer/loggers/key_texts.h"
#include "composer/loggers/string_map.h"
#include "composer/loggers/tensorboard_logger.h"
#include "composer/util/output_file.h"

namespace composer::loggers {

// Writes records into one event file.
class EventWriter final : public RecordWriter {
 public:
  // `end`: the end of the names of its files.
  EventWriter(std::string folder, std::string run_name, std::string end, const TensorBoardLoggerOptions& options);

  std::string where() const override { return folder_; }
  bool takes(const Record& record) const override {
    return record.kind() != Record::Kind::TRACES && record.get<LogFile>() == nullptr;
  }
  void set_status(SessionStatus status) { status_ = status; }  // status of the fit; may be called from any thread

  // The following are for the thread that trains, while the background thread is idle.
  // Begins a file, which is locked while it is written; throws ConfigError if the folder does not allow one.
  void begin();
  void sync() override { file_->sync(); }
  const std::string& file_name() const { return file_name_; }
  std::int64_t size() const { return file_->size(); }

 private:
  void write(Records records) override;
  void close() override;
  void begin_again();
  void append(const Record& record);
  void append_value(const EventTime& time, const std::string& tag, const LogValue& value);
  void append_number(const EventTime& time, const std::string& tag, double value);
  void append_images(const EventTime& time, const std::string& tag, const LogImages& images);
  void append_session(double wall_time);
  void add_hyperparameters(const Record& record);
  void append(const Protobuf& event) { append_framed(events_, event); }
  bool is_first(std::string_view tag);  // whether this is the first value of the tag in the file
  void write_events();

  const std::string folder_, run_name_, end_;
  const bool simple_values_;
  const std::int64_t max_images_;
  std::atomic<SessionStatus> status_ = SessionStatus::SUCCESS;
  std::string file_name_;
  std::unique_ptr<util::OutputFile> file_;
  std::string events_;           // to be written
  Protobuf event_;               // member, so that its memory is reused
  KeyTexts names_{&valid_utf8};  // invalid UTF-8 in a text would make the rest of the file unreadable
  SequenceMap<bool> tags_;       // whether the tag is in the file
  Hyperparameters hyperparameters_;
  bool session_is_written_ = false;
  std::int64_t written_ = 0;  // number of records in the file
};

}  // namespace composer::loggers
