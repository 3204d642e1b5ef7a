#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "composer/loggers/background_logger.h"
#include "composer/loggers/key_texts.h"
#include "composer/loggers/run_logger.h"
#include "composer/loggers/wandb_file.h"
#include "composer/loggers/wandb_files.h"
#include "composer/loggers/wandb_rows.h"
#include "composer/loggers/wandb_run_file.h"
#include "composer/util/log_mark.h"

namespace composer {
class StateVisitor;
}

namespace composer::loggers {

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
    file_.sync();
  }
  const std::string& folder() const { return folder_; }  // the whole path; empty: nothing is begun
  const std::string& id() const { return options_.run.id; }

 private:
  void write(Records records) override;
  void flush() override;
  void close() override;
  template <class Append>
  void write_all(const Append& append);  // all that it appends, or nothing
  void append(const WandBContent& content) { file_.append(id(), content); }
  void append(const Record& record);
  void append_start();
  void append_row();
  void append_unfinished_row();  // its step may go on
  void append_summary();
  void append_config(const Record& record);
  void append_added(const Record& record, const WandBFiles::Added& added);
  void reopen_row(Records records);
  WandBPosition position() const;
  void go_to(WandBPosition position);
  void begin_again();
  double runtime(double now) const { return runtime_before_ + (now - began_at_); }
  std::string path() const { return folder_ + "/run-" + id() + ".wandb"; }

  WandBWriterOptions options_;
  std::atomic<RunStatus> status_ = RunStatus::FINISHED;
  std::string folder_;
  double began_at_ = 0;        // of this process's part, in seconds since 1970
  double runtime_before_ = 0;  // of the parts before
  WandBRunFile file_;
  // The last row is in the file although its step may go on: the end that it makes, and how far the run was without it.
  struct Unfinished {
    WandBRunFile::End end;
    WandBPosition position;
  };
  std::optional<Unfinished> unfinished_;
  KeyTexts names_;
  WandBRows rows_;
  WandBItems config_;
  WandBFiles files_;
  std::int64_t written_ = 0;  // records of the logger, by this process
};

}  // namespace composer::loggers
