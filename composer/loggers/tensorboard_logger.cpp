#include "composer/loggers/tensorboard_logger.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/background_option.h"
#include "composer/loggers/event_names.h"
#include "composer/loggers/event_writer.h"
#include "composer/util/file_lock.h"
#include "composer/util/log_mark.h"
#include "composer/util/name_format.h"

namespace composer::loggers {
namespace {

constexpr const char* kTensorBoardLogger = "TensorBoardLogger";

// The mark of an event file in a checkpoint.
struct EventFileMark {
  std::string name;
  util::LogMark mark;
  void visit_state(StateVisitor& visit) {
    visit("file", name);
    mark.visit_state(visit);
  }
};

// Cuts the file to its size at the checkpoint. Returns false if the file was removed, shortened or replaced.
bool cut(const std::string& folder, const EventFileMark& file, bool is_taken) {
  const std::string path = folder + '/' + file.name;
  std::error_code error;
  if (file.mark.compare(path) != util::LogMark::Match::SAME) {
    const bool exists = std::filesystem::exists(path, error);
    if (!exists || std::filesystem::file_size(path, error) < static_cast<std::uintmax_t>(file.mark.size))
      warn(join(kTensorBoardLogger, ": ", path,
                exists ? " is shorter than when the checkpoint was written" : " does not exist any more",
                ", so TensorBoard does not show all that the run had logged"));
    return false;
  }
  if (is_taken) {
    warn(join(kTensorBoardLogger, ": ", path, " is being written by another logger of this run, of this process or of ",
              "another one, so TensorBoard may show some steps twice"));
    return true;
  }
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(file.mark.size), error);
  if (error)
    warn(join(kTensorBoardLogger, ": ", path,
              " cannot be cut to its size at the checkpoint, so TensorBoard may show some steps ",
              "twice: ", error.message()));
  return true;
}

// Files of the run that no living logger, of this process or another, has locked.
std::vector<std::string> dead_files_of(const std::string& folder, const std::string& end) {
  std::vector<std::string> names = event_files_of(folder, end);
  std::erase_if(names, [&](const std::string& name) { return util::is_in_use(folder + '/' + name); });
  return names;
}

// Removes what the run logs again: the rest of the file that the checkpoint refers to, and files that were begun after
// it. The names of these files have the end `end`, or that of the checkpoint's file, if the save folder was moved
// since.
void drop_later(const std::string& folder, const std::string& end, const EventFileMark& file, bool is_taken) {
  std::vector<std::string> names = dead_files_of(folder, end);
  const std::string known = cut(folder, file, is_taken) ? end_of_event_file(file.name) : end;
  if (known != end) std::ranges::move(dead_files_of(folder, known), std::back_inserter(names));
  for (const std::string& name : names) {
    std::error_code error;
    if (is_later_event_file(name, file.name)) std::filesystem::remove(folder + '/' + name, error);
    if (error)
      warn(join(kTensorBoardLogger, ": ", folder, '/', name, " cannot be removed, so TensorBoard may show some steps ",
                "twice: ", error.message()));
  }
}

// Renames the earlier files of a run that has no checkpoint left and begins again with the file `own`. TensorBoard does
// not read files with the new names.
void set_earlier_aside(const std::string& folder, const std::string& end, const std::string& own) {
  for (const std::string& name : dead_files_of(folder, end)) {
    if (name == own) continue;  // the file may be listed where locks are not supported
    const std::string aside = "earlier." + name.substr(name.find("tfevents.") + 9);
    std::error_code error;
    std::filesystem::rename(folder + '/' + name, folder + '/' + aside, error);
    warn(join(kTensorBoardLogger, ": ", folder, '/', name, " is of an earlier process of this run, of which no ",
              "checkpoint is left; ",
              error ? join("it cannot be renamed, so TensorBoard may show some steps twice: ", error.message())
                    : "it is kept as " + aside));
  }
}

std::vector<Option<TensorBoardLoggerOptions>> tensorboard_logger_options() {
  using O = TensorBoardLoggerOptions;
  return all_options(option("folder", &O::folder).not_empty().refuses({"{rank}", "{run_name"}),
                     option("simple_values", &O::simple_values), option("max_images", &O::max_images).at_least(1),
                     option("upload", &O::upload), flush_interval_option(&O::flush_interval),
                     on_failure_option(&O::on_failure), when_full_option(&O::when_full));
}

// The event files of a run in a folder, as the place of the log. A continued log gets a new file.
class EventPlace final : public MarkedPlace<EventFileMark> {
 public:
  EventPlace(std::string folder, std::string end, bool resumes, std::shared_ptr<EventWriter> writer)
      : folder_(std::move(folder)), end_(std::move(end)), resumes_(resumes), writer_(std::move(writer)) {}

  std::shared_ptr<RecordWriter> writer() const override { return writer_; }
  void begin() override { writer_->begin(); }
  void before_fit(const State& state, bool is_open) override {
    if (is_open && !resumes_ && state.run && state.run->is_resumable())
      set_earlier_aside(folder_, end_, writer_->file_name());
  }

 private:
  bool accepts(const EventFileMark& mark) override {
    if (std::filesystem::path(mark.name).filename() != mark.name) return false;  // a checkpoint may be forged
    lock_.emplace(folder_ + '/' + mark.name);
    return true;
  }
  bool go_on_at(const EventFileMark& mark) override {
    drop_later(folder_, end_, mark, is_taken(mark));
    lock_.reset();
    begin();
    return true;
  }
  EventFileMark mark() override {
    const std::string& name = writer_->file_name();
    return {name, util::LogMark::of(folder_ + '/' + name, writer_->size())};
  }

  // Whether another logger is writing the file. Tried again here, because that logger may have closed the file since
  // the checkpoint was loaded.
  bool is_taken(const EventFileMark& mark) {
    const auto taken = [this] { return lock_ && lock_->state() == util::FileLock::State::TAKEN; };
    if (!lock_ || taken()) lock_.emplace(folder_ + '/' + mark.name);
    return taken();
  }

  const std::string folder_;
  const std::string end_;  // end of the names of the run's files
  const bool resumes_;
  const std::shared_ptr<EventWriter> writer_;
  // Lock of the checkpoint's file until it is cut, so that no other logger takes the file for that of a dead process.
  std::optional<util::FileLock> lock_;
};

}  // namespace

TensorBoardLogger::TensorBoardLogger(TensorBoardLoggerOptions options)
    : ResumableLogger(
          kTensorBoardLogger,
          {.when_full = options.when_full, .flush_interval = options.flush_interval, .on_failure = options.on_failure}),
      options_(checked(kTensorBoardLogger, std::move(options), tensorboard_logger_options())) {
  for (const util::NamePart& part : util::parts_of_name(options_.folder, kTensorBoardLogger))
    if (part.placeholder && part.name != "run_name")
      throw ConfigError(kTensorBoardLogger, ": the only placeholder of folder is {run_name}, got ", options_.folder);
}
TensorBoardLogger::~TensorBoardLogger() = default;
TensorBoardLogger::TensorBoardLogger(TensorBoardLogger&&) noexcept = default;

std::unique_ptr<LogPlace> TensorBoardLogger::make_place(const State& state) {
  writer_.reset();
  if (state.rank != 0) return nullptr;
  if (state.run_name.empty() && options_.folder.find("{run_name}") != std::string::npos)
    throw ConfigError(kTensorBoardLogger, ": folder ", options_.folder, " requires a run_name, and this run has none");
  const std::string named = util::format_name(options_.folder, state, nullptr, kTensorBoardLogger);
  // Absolute, because the program may change its working directory.
  const std::string folder = std::filesystem::absolute(named).string();
  const std::string end = end_of_event_files(state.run_name, state.run ? state.run->identity() : "");
  writer_ = std::make_shared<EventWriter>(folder, state.run_name, end, options_);
  return std::make_unique<EventPlace>(folder, end, state.resumes, writer_);
}

void TensorBoardLogger::fit_start(const State& state, Logger& logger) {
  if (writer_) writer_->set_status(SessionStatus::FAILURE);  // until the fit ends
  ResumableLogger::fit_start(state, logger);
}

void TensorBoardLogger::epoch_end(const State& state, Logger& logger) {
  ResumableLogger::epoch_end(state, logger);
  upload(logger);
}

void TensorBoardLogger::fit_end(const State& state, Logger& logger) {
  if (writer_) writer_->set_status(SessionStatus::SUCCESS);
  ResumableLogger::fit_end(state, logger);
  upload(logger);
}

void TensorBoardLogger::upload(Logger& logger) {
  if (!options_.upload || !writer_ || !is_open()) return;
  flush();
  const std::string& name = writer_->file_name();
  const std::string path = writer_->where() + '/' + name;
  if (std::error_code error; std::filesystem::exists(path, error))
    logger.upload_file({.path = path, .name = "tensorboard/{run_name}/" + name, .overwrite = true});
}

void TensorBoardLogger::close(const State& state, Logger& logger) {
  writer_.reset();
  ResumableLogger::close(state, logger);
}

namespace entries {

Entry<Loggers> tensorboard() {
  return entry<TensorBoardLogger>("tensorboard", "Writes metrics, images and histograms for TensorBoard",
                                  tensorboard_logger_options());
}

}  // namespace entries
}  // namespace composer::loggers
