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

// The mark of an offline run in a checkpoint.
struct WandBMark {
  std::string folder;  // name of the folder in wandb/
  std::string id;
  int rank = 0;        // rank that wrote the run
  double runtime = 0;  // seconds
  util::LogMark file;
  WandBPosition position;
  void visit_state(StateVisitor& visit);
};

struct WandBWriterOptions {
  std::string base;  // path of the folder wandb/
  WandBRun run;      // without id and start time
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
  void set_status(RunStatus status) { status_ = status; }  // status of the run; may be called from any thread

  // The following are for the thread that trains, while the background thread is idle.
  void begin();                                    // throws ConfigError if the file cannot be made
  bool can_continue(const WandBMark& mark) const;  // whether the run exists and starts with what it had at the mark
  void continue_at(const WandBMark& mark);         // throws Error
  WandBMark mark() const;
  void sync() override {
    flush();  // after the end of the run, this process may be killed, and the next one would not log the row
    file_.sync();
  }
  const std::string& folder() const { return folder_; }  // absolute path; empty: no run was begun
  const std::string& id() const { return options_.run.id; }

 private:
  void write(Records records) override;
  void flush() override;
  void close() override;
  template <class Append>
  void write_all(const Append& append);  // writes everything that is appended, or nothing
  void append(const WandBContent& content) { file_.append(id(), content); }
  void append(const Record& record);
  void append_start();
  void append_row();
  void append_unfinished_row();  // the row's step may continue
  void append_summary();
  void append_config(const Record& record);
  void append_added(const Record& record, const WandBFiles::Added& added);
  void reopen_row(Records records);
  WandBPosition position() const;
  void restore(WandBPosition position);
  void begin_again();
  double runtime(double now) const { return runtime_before_ + (now - began_at_); }
  std::string path() const { return folder_ + "/run-" + id() + ".wandb"; }

  WandBWriterOptions options_;
  std::atomic<RunStatus> status_ = RunStatus::FINISHED;
  std::string folder_;
  double began_at_ = 0;        // when this process began, in seconds since 1970
  double runtime_before_ = 0;  // of earlier processes, in seconds
  WandBRunFile file_;
  // The last row is in the file although its step may continue. `end` is the end of the file with the row; `position`
  // is the position without it.
  struct Unfinished {
    WandBRunFile::End end;
    WandBPosition position;
  };
  std::optional<Unfinished> unfinished_;
  KeyTexts names_;
  WandBRows rows_;
  WandBItems config_;
  WandBFiles files_;
  std::int64_t written_ = 0;  // number of records written by this process
};

}  // namespace composer::loggers
