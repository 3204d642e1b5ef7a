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
#include "composer/loggers/no_writer.h"
#include "composer/util/file_lock.h"
#include "composer/util/log_mark.h"
#include "composer/util/name_format.h"

namespace composer::loggers {
// What a checkpoint knows of an event file.
struct FileMark {
  std::string name;
  util::LogMark mark;
};

namespace {

constexpr const char* kTensorBoardLogger = "TensorBoardLogger";

// Whether it is there: it may have been removed.
bool cut(const std::string& folder, const FileMark& file, bool is_taken) {
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

// Those of which no living logger, of this process or another, has the lock.
std::vector<std::string> dead_files_of(const std::string& folder, const std::string& end) {
  std::vector<std::string> names = event_files_of(folder, end);
  std::erase_if(names, [&](const std::string& name) { return util::is_in_use(folder + '/' + name); });
  return names;
}

// What the run logs again: the rest of the file that the checkpoint knows, and files that were begun after it. Their
// names end as those of this process, or as that of the known file, if the save folder was moved since.
void drop_later(const std::string& folder, const std::string& end, const FileMark& file, bool is_taken) {
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

// Of a run of which no checkpoint is left, and which begins again with the file `own`. TensorBoard does not see the new
// names.
void set_earlier_aside(const std::string& folder, const std::string& end, const std::string& own) {
  for (const std::string& name : dead_files_of(folder, end)) {
    if (name == own) continue;  // where there are no locks
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

}  // namespace

struct TensorBoardLogger::Open {
  std::string folder, end;              // of the names of the run's files
  std::shared_ptr<EventWriter> writer;  // null for a rank other than 0
  bool resumes = false;
  bool trains = false;                          // or has trained
  std::optional<FileMark> previous;             // the file of the process that wrote the checkpoint
  std::optional<util::FileLock> previous_lock;  // until it is cut: no other logger takes it for that of a dead process

  // Whoever wrote it when the checkpoint was loaded may have closed it since.
  bool previous_is_taken() {
    const auto is_taken = [&] { return previous_lock->state() == util::FileLock::State::TAKEN; };
    if (is_taken()) previous_lock.emplace(folder + '/' + previous->name);
    return is_taken();
  }
};

TensorBoardLogger::TensorBoardLogger(TensorBoardLoggerOptions options)
    : BackgroundLogger(
          kTensorBoardLogger,
          {.when_full = options.when_full, .flush_interval = options.flush_interval, .on_failure = options.on_failure}),
      options_(checked(kTensorBoardLogger, std::move(options), tensorboard_logger_options())) {
  for (const util::NamePart& part : util::parts_of_name(options_.folder, kTensorBoardLogger))
    if (part.placeholder && part.name != "run_name")
      throw ConfigError(kTensorBoardLogger, ": the only placeholder of folder is {run_name}, got ", options_.folder);
}
TensorBoardLogger::~TensorBoardLogger() = default;
TensorBoardLogger::TensorBoardLogger(TensorBoardLogger&&) noexcept = default;

std::shared_ptr<RecordWriter> TensorBoardLogger::make_writer(const State& state) {
  open_ = std::make_unique<Open>();
  open_->resumes = state.resumes;
  if (state.rank != 0) return std::make_shared<NoWriter>();
  if (state.run_name.empty() && options_.folder.find("{run_name}") != std::string::npos)
    throw ConfigError(kTensorBoardLogger, ": folder ", options_.folder, " requires a run_name, and this run has none");
  const std::string named = util::format_name(options_.folder, state, nullptr, kTensorBoardLogger);
  open_->folder = std::filesystem::absolute(named).string();  // the program may change its working directory
  const std::string identity = state.run ? state.run->identity() : "";
  open_->end = end_of_event_files(state.run_name, identity);
  open_->writer = std::make_shared<EventWriter>(open_->folder, state.run_name, open_->end, options_);
  state.resumes ? hold() : open_->writer->begin();
  return open_->writer;
}

// The records that were held meanwhile follow.
void TensorBoardLogger::begin_held() {
  open_held([this] { open_->writer->begin(); });
}

void TensorBoardLogger::after_load(const State&, Logger&) {
  if (is_holding() && !open_->previous) begin_held();
}

void TensorBoardLogger::fit_start(const State& state, Logger&) {
  if (!open_ || !open_->writer) return;
  open_->writer->set_status(SessionStatus::FAILURE);  // unless it ends
  if (open_->trains) return;
  const bool is_taken = open_->previous && open_->previous_is_taken();
  if (open_->previous)
    drop_later(open_->folder, open_->end, *std::exchange(open_->previous, std::nullopt), is_taken);
  else if (!open_->resumes && state.run && state.run->is_resumable())
    set_earlier_aside(open_->folder, open_->end, open_->writer->file_name());
  open_->previous_lock.reset();
  if (is_holding()) begin_held();
  open_->trains = true;
}

void TensorBoardLogger::epoch_end(const State& state, Logger& logger) {
  BackgroundLogger::epoch_end(state, logger);
  upload(logger);
}

void TensorBoardLogger::fit_end(const State& state, Logger& logger) {
  if (open_ && open_->writer) open_->writer->set_status(SessionStatus::SUCCESS);
  BackgroundLogger::fit_end(state, logger);
  upload(logger);
}

void TensorBoardLogger::upload(Logger& logger) {
  if (!options_.upload || !open_ || !open_->writer) return;
  flush();
  const std::string& name = open_->writer->file_name();
  const std::string path = open_->folder + '/' + name;
  if (std::error_code error; std::filesystem::exists(path, error))
    logger.upload_file({.path = path, .name = "tensorboard/{run_name}/" + name, .overwrite = true});
}

void TensorBoardLogger::close(const State& state, Logger& logger) {
  const std::unique_ptr<Open> open = std::move(open_);
  BackgroundLogger::close(state, logger);
}

void TensorBoardLogger::visit_state(StateVisitor& visit) {
  if (!open_ || !open_->writer) return;
  FileMark file;
  if (visit.is_loading()) {
    visit("file", file.name);
    file.mark.visit_state(visit);
    const bool is_name = std::filesystem::path(file.name).filename() == file.name;  // a checkpoint may be forged
    if (!open_->resumes || !is_name) return;
    open_->previous_lock.emplace(open_->folder + '/' + file.name);
    open_->previous = std::move(file);
    visit_missing(visit);
    return;
  }
  if (open_->previous) {  // nothing was trained since
    file = *open_->previous;
  } else if (!is_open()) {
    return;
  } else {
    sync();
    file.name = open_->writer->file_name();
    file.mark = util::LogMark::of(open_->folder + '/' + file.name, open_->writer->size());
  }
  visit("file", file.name);
  file.mark.visit_state(visit);
  visit_missing(visit);
}

namespace entries {

Entry<Loggers> tensorboard() {
  return entry<TensorBoardLogger>("tensorboard", "Writes metrics, images and histograms for TensorBoard",
                                  tensorboard_logger_options());
}

}  // namespace entries
}  // namespace composer::loggers
