#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/loggers/background_logger.h"
#include "composer/loggers/key_texts.h"
#include "composer/loggers/run_logger.h"
#include "composer/loggers/string_map.h"
#include "composer/loggers/wandb_file.h"
#include "composer/loggers/wandb_media.h"
#include "composer/util/log_mark.h"
#include "composer/util/output_file.h"

namespace composer {
class StateVisitor;
}

namespace composer::loggers {

inline constexpr const char* kWandBLogger = "WandBLogger";  // begins the texts of errors

// How far an offline run is written.
struct WandBPosition {
  std::int64_t records = 0;    // in the file
  std::int64_t next_step = 0;  // the least that the next row may have
  std::int64_t row_step = 0;
  WandBItems row;       // of the current step; not yet in the file
  double row_time = 0;  // seconds since 1970, of its last record
  void visit_state(StateVisitor& visit);
};

// What a checkpoint knows of an offline run.
struct WandBMark {
  std::string folder;  // its name, in wandb/
  std::string id;
  int rank = 0;        // that wrote it
  double runtime = 0;  // seconds
  util::LogMark file;
  WandBPosition position;
  void visit_state(StateVisitor& visit);
};

struct WandBWriterOptions {
  std::string base;  // the folder wandb/
  WandBRun run;      // without id and time
  int rank = 0;
  bool log_artifacts = false;
  std::int64_t max_images = 16;
};

// Writes records into one offline run.
class WandBWriter final : public RecordWriter {
 public:
  explicit WandBWriter(WandBWriterOptions options);

  std::string where() const override { return options_.base; }
  bool takes(const Record& record) const override;
  void set_status(RunStatus status) { status_ = status; }  // of the run, from any thread

  // The following are for the thread that trains, while the background thread is idle.
  void begin();                                    // throws ConfigError if there can be no file
  bool can_continue(const WandBMark& mark) const;  // the run is there as it was, or longer
  void continue_at(const WandBMark& mark);         // throws Error
  WandBMark mark() const;
  void sync() override {
    flush();  // a run that has ended may be killed, and nothing is logged by its next process
    file_->sync();
  }
  const std::string& folder() const { return folder_; }  // the whole path; empty: nothing is begun
  const std::string& id() const { return options_.run.id; }

 private:
  struct Value {
    std::string key, json;  // json: of the current row, if in_row
    std::string last;       // of the last row in the file
    bool in_row = false;
    bool is_new = false;  // the summary in the file has an older one
  };

  void write(Records records) override;
  void flush() override;
  void close() override;
  template <class Append>
  void write_all(const Append& append);  // all that it appends, or nothing
  std::int64_t size() const { return outdated_ ? outdated_->size : file_->size(); }
  void append(const WandBContent& content);
  void append(const Record& record);
  void append_start();
  void append_row();
  void append_unfinished_row();  // its step may go on
  void append_summary();
  void begin_row(const Record& record);
  void reopen_row(Records records);
  std::string& put(const std::string& key);  // into the row; returns its JSON, empty
  static std::vector<WandBItem> items_of(const std::vector<Value*>& values, std::string Value::*json);
  WandBPosition position() const;
  void go_to(WandBPosition position);
  void add_config(const Record& record);
  void add_media(const Record& record, const WandBMedia& media);
  void add_images(const Record& record, const LogImages& images);
  void add_file(const LogFile& file);
  void begin_again();
  double runtime(double now) const { return runtime_before_ + (now - began_at_); }
  std::string path() const { return folder_ + "/run-" + id() + ".wandb"; }

  WandBWriterOptions options_;
  std::atomic<RunStatus> status_ = RunStatus::FINISHED;
  std::string folder_;
  double began_at_ = 0;        // of this process's part, in seconds since 1970
  double runtime_before_ = 0;  // of the parts before
  std::unique_ptr<util::OutputFile> file_;
  WandBPosition position_;  // without the row
  // The last row is in the file although its step may go on: the size without it, and how far the run was written.
  struct Unfinished {
    std::int64_t size = 0;
    WandBPosition position;
    std::string bytes = {};  // behind `size`
  };
  std::optional<Unfinished> unfinished_;
  std::optional<Unfinished> outdated_;  // what the next bytes replace in the file: that row, which goes on
  KeyTexts names_;
  SequenceMap<Value> values_;
  std::vector<Value*> row_, new_;  // those in the row, and the new ones
  WandBItems config_;
  std::map<std::string, std::string> labels_;  // of the classes of masks, in the file
  std::string bytes_;                          // to be written
  std::int64_t size_ = 0;                      // of the file, where bytes_ begins
  std::int64_t written_ = 0;                   // records of the logger, by this process
};

}  // namespace composer::loggers
