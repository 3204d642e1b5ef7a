#include "composer/loggers/line_file_logger.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "composer/util/log_mark.h"
#include "composer/util/name_format.h"
#include "composer/util/output_file.h"
#include "composer/util/set_aside.h"

namespace composer::loggers {
namespace {

bool has_placeholder(const std::string& path, std::string_view name) {
  return std::ranges::any_of(util::parts_of_name(path, "path"),
                             [&](const util::NamePart& part) { return part.placeholder && part.name == name; });
}

std::string expand(const std::string& name, const std::string& path, const State& state) {
  if (state.run_name.empty() && has_placeholder(path, "run_name"))
    throw ConfigError(name, ": path ", path, " requires a run_name, and this run has none");
  // The program may change its working directory.
  return std::filesystem::absolute(util::format_name(path, state, nullptr, name)).string();
}

void check_line_file(const std::string& name, const LineFileOptions& options) {
  const std::string& path = options.path;
  if (path.empty()) throw ConfigError(name, ": path must not be empty");
  if (options.append && options.overwrite)
    throw ConfigError(name, ": append and overwrite exclude each other, got both for ", path);
  for (const util::NamePart& part : util::parts_of_name(path, name))
    if (part.placeholder && part.name != "run_name" && part.name != "rank")
      throw ConfigError(name, ": the placeholders of path are {run_name} and {rank}, got ", path);
}

// Gives the file a name that is free. `why`: it is not continued.
void set_aside(const std::string& name, const std::string& path, const char* why) {
  const std::string aside = util::set_aside(name, path);
  warn(join(name, ": ", path, " is the log of an earlier process of this run", why, "; it is kept as ", aside));
}

void warn_if_missing(const std::string& name, const std::string& path, const util::LogMark& mark) {
  std::error_code error;
  if (mark.size == 0 || std::filesystem::exists(path, error)) return;
  warn(join(name, ": ", path, " does not exist, but the log of the run had ", mark.size, " bytes when the checkpoint ",
            "was written; it was removed, or path was another one, and the log begins again without them"));
}

}  // namespace

class LineWriter final : public RecordWriter {
 public:
  LineWriter(std::string name, std::string path, std::unique_ptr<LineFormat> format)
      : path_(std::move(path)), name_(std::move(name)), format_(std::move(format)) {}

  std::string where() const override { return path_; }
  std::string_view noun() const override { return format_->noun(); }
  bool takes(const Record& record) const override { return format_->takes(record); }

  // The following are for the thread that trains, while the background thread is idle.
  void open(util::FileMode mode) {
    file_.reset();
    file_ = std::make_unique<util::OutputFile>(name_, path_, mode, util::Writers::ONE);
    is_regular_ = file_->is_regular();
    is_new_ = !is_regular_ || file_->size() == 0;
  }
  void sync() override {
    if (is_new_) write({});  // the header: an empty file could not be recognised by a resumed run
    file_->sync();
  }
  void cut(std::int64_t size) { file_->cut(size), is_new_ = size == 0; }
  std::int64_t size() const { return is_regular_ ? file_->size() : 0; }
  const LineFormat& format() const { return *format_; }

 private:
  void write(Records records) override {
    if (is_regular_ && file_->is_removed()) begin_again();
    lines_ = is_new_ ? format_->header() : "";
    for (const Record* record : records) format_->append(lines_, *record);
    file_->write(lines_);
    is_new_ = is_new_ && lines_.empty();
    written_ += static_cast<std::int64_t>(records.size());
  }

  void close() override {
    if (file_) file_->close();
  }

  void begin_again() {
    file_ = std::make_unique<util::OutputFile>(name_, path_, util::FileMode::APPEND, util::Writers::ONE);
    is_new_ = file_->size() == 0;
    lose(std::exchange(written_, 0), join(name_, ": ", path_, " was removed and is begun again"));
  }

  const std::string path_, name_;
  const std::unique_ptr<LineFormat> format_;
  std::unique_ptr<util::OutputFile> file_;
  bool is_regular_ = true, is_new_ = true;
  std::int64_t written_ = 0;  // records in the file, by this process
  std::string lines_;
};

LineFormat::~LineFormat() = default;
std::string_view LineFormat::noun() const { return "records"; }
std::string LineFormat::header() const { return {}; }
bool LineFormat::is_begun_by(std::string_view, std::string_view, bool own_path) const { return own_path; }
bool LineFormat::takes(const Record& record) const {
  return record.kind() == Record::Kind::METRICS || record.kind() == Record::Kind::HYPERPARAMETERS;
}

struct LineFileLogger::Log {
  std::shared_ptr<LineWriter> writer;
  bool resumes = false;
  bool begins_again = false;          // the run: a process that has left no checkpoint wrote the file
  bool of_other_rank = false;         // of a resumed run, whose checkpoint knows of rank 0's log alone
  bool waits = false;                 // until FIT_START, since it overwrites the file or gives it another name
  std::optional<util::LogMark> mark;  // what the checkpoint knows of the log, if it is that
};

LineFileLogger::LineFileLogger(std::string name, LineFileOptions options)
    : BackgroundLogger(std::move(name), options.background), options_(std::move(options)) {
  check_line_file(this->name(), options_);
}
LineFileLogger::~LineFileLogger() = default;
LineFileLogger::LineFileLogger(LineFileLogger&&) noexcept = default;

bool LineFileLogger::is_for_all_ranks() const { return has_placeholder(options_.path, "rank"); }

std::shared_ptr<RecordWriter> LineFileLogger::make_writer(const State& state) {
  const std::string path = expand(name(), options_.path, state);
  log_ = std::make_unique<Log>();
  log_->writer = std::make_shared<LineWriter>(name(), path, make_format(state));
  log_->resumes = state.resumes;
  log_->begins_again = state.run && state.run->begins_again();
  log_->of_other_rank = state.resumes && state.rank != 0;
  log_->waits = waits_for_fit(state);
  state.resumes || log_->waits ? hold() : open_as_new(path == written_);
  written_ = path;
  return log_->writer;
}

// Whether an earlier process of the run wrote the file, or was killed while it wrote the first line.
bool LineFileLogger::is_begun_by(const std::string& run_name) const {
  constexpr std::size_t kBytes = 1 << 16;
  const std::string path = log_->writer->where();
  std::error_code error;
  if (run_name.empty() || !std::filesystem::is_regular_file(path, error)) return false;
  if (log_->begins_again) return true;
  std::string beginning(kBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(beginning.data(), kBytes);
  beginning.resize(static_cast<std::size_t>(file.gcount()));
  const bool own_path = has_placeholder(options_.path, "run_name");
  return log_->writer->format().is_begun_by(run_name, beginning, own_path);
}

// Another process may be training this run, and have begun the file.
bool LineFileLogger::waits_for_fit(const State& state) const {
  const std::string path = log_->writer->where();
  std::error_code error;
  if (path == written_ || !std::filesystem::is_regular_file(path, error)) return false;
  if (!state.resumes && !(state.run && state.run->is_resumable())) return false;
  if (log_->of_other_rank) return !options_.append;
  return options_.overwrite || (!state.resumes && !options_.append && is_begun_by(state.run_name));
}

// As a run does that does not resume; `again`: this logger has written the file.
void LineFileLogger::open_as_new(bool again) {
  auto mode = options_.overwrite ? util::FileMode::OVERWRITE : util::FileMode::CREATE;
  if (options_.append || again) mode = util::FileMode::APPEND;
  std::error_code error;
  if (const std::string path = log_->writer->where();
      log_->resumes && mode == util::FileMode::CREATE && std::filesystem::exists(path, error))
    throw ConfigError(name(), ": ", path, " is not the log that the resumed run wrote; set another path, append or ",
                      "overwrite");
  log_->writer->open(mode);
}

void LineFileLogger::open_log() { log_->mark ? open_own() : open_as_new(false); }

void LineFileLogger::after_load(const State&, Logger&) {
  if (is_holding() && !log_->mark && !log_->waits) open_held([this] { open_log(); });
}

void LineFileLogger::fit_start(const State& state, Logger&) {
  if (!is_holding()) return;
  open_held([&] {
    const std::string path = log_->writer->where();
    std::error_code error;
    if (log_->of_other_rank && std::filesystem::exists(path, error))
      set_aside(name(), path, ", and a checkpoint keeps the place of rank 0's alone");
    else if (!log_->mark && !options_.overwrite && is_begun_by(state.run_name))
      set_aside(name(), path, ", of which no checkpoint is left");
    open_log();
  });
}

// The log of the resumed run, without what was logged after the checkpoint. Nobody else writes it once it is open.
void LineFileLogger::open_own() {
  const std::string path = log_->writer->where();
  if (log_->mark->compare(path) == util::LogMark::Match::OTHER) {  // the file was replaced or removed since
    warn_if_missing(name(), path, *log_->mark);
    return open_as_new(false);
  }
  log_->writer->open(util::FileMode::APPEND);
  const util::LogMark::Match match = log_->mark->compare(path);
  if (match == util::LogMark::Match::SHORTER)
    warn(join(name(), ": ", path, " is shorter than when the checkpoint was written"));
  if (match == util::LogMark::Match::SAME) log_->writer->cut(log_->mark->size);
}

void LineFileLogger::visit_state(StateVisitor& visit) {
  if (!log_ || log_->of_other_rank) return;
  util::LogMark mark;
  const std::string path = log_->writer->where();
  if (visit.is_loading()) {
    mark.visit_state(visit);
    if (!goes_on_at(visit) || !log_->resumes) return;
    if (mark.compare(path) == util::LogMark::Match::OTHER) return warn_if_missing(name(), path, mark);
    log_->mark = std::move(mark);
    visit_missing(visit);
    drop_held();  // the log has them
  } else if (is_open()) {
    sync();  // a checkpoint must not know of lines that a loss of power takes away
    mark = util::LogMark::of(path, log_->writer->size());
    mark.visit_state(visit);
    visit_missing(visit);
  } else if (log_->mark) {
    log_->mark->visit_state(visit);
    visit_missing(visit);
  }
}

void LineFileLogger::close(const State& state, Logger& logger) {
  const std::unique_ptr<Log> log = std::move(log_);
  BackgroundLogger::close(state, logger);
}

}  // namespace composer::loggers
