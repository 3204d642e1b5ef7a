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
  // The path is made absolute, because the program may change its working directory.
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

// Renames the file to a free name. `why`: the reason why the file is not continued.
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
    if (is_new_) write({});  // writes the header: a resumed run could not recognise an empty file
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

// The file as the place of the log.
class LinePlace final : public MarkedPlace<util::LogMark> {
 public:
  // `again`: this logger has written the file before.
  LinePlace(std::string name, LineFileOptions options, const State& state, bool again,
            std::shared_ptr<LineWriter> writer)
      : name_(std::move(name)),
        options_(std::move(options)),
        path_(writer->where()),
        again_(again),
        resumes_(state.resumes),
        begins_again_(state.run && state.run->begins_again()),
        of_other_rank_(state.resumes && state.rank != 0),
        writer_(std::move(writer)),
        waits_(must_wait(state)) {}

  std::shared_ptr<RecordWriter> writer() const override { return writer_; }
  bool waits_for_fit() const override { return waits_; }
  bool has_held_records() const override { return true; }

  void before_fit(const State& state, bool is_open) override {
    if (is_open) return;
    std::error_code error;
    if (of_other_rank_ && std::filesystem::exists(path_, error))
      set_aside(name_, path_, ", and a checkpoint keeps the place of rank 0's alone");
    else if (!loaded() && !options_.overwrite && is_begun_by(state.run_name))
      set_aside(name_, path_, ", of which no checkpoint is left");
  }

  // Opens the log as a run does that is not resumed.
  void begin() override {
    auto mode = options_.overwrite ? util::FileMode::OVERWRITE : util::FileMode::CREATE;
    if (options_.append || (again_ && !resumes_)) mode = util::FileMode::APPEND;
    std::error_code error;
    if (resumes_ && mode == util::FileMode::CREATE && std::filesystem::exists(path_, error))
      throw ConfigError(name_, ": ", path_, " is not the log that the resumed run wrote; set another path, append or ",
                        "overwrite");
    writer_->open(mode);
  }

 private:
  bool accepts(const util::LogMark& mark) override {
    if (of_other_rank_) return false;
    if (mark.compare(path_) != util::LogMark::Match::OTHER) return true;
    warn_if_missing(name_, path_, mark);
    return false;
  }

  // Once the file is open, no other logger writes it.
  bool go_on_at(const util::LogMark& mark) override {
    if (mark.compare(path_) == util::LogMark::Match::OTHER) {  // the file was replaced or removed since
      warn_if_missing(name_, path_, mark);
      return false;
    }
    writer_->open(util::FileMode::APPEND);
    const util::LogMark::Match match = mark.compare(path_);
    if (match == util::LogMark::Match::SHORTER)
      warn(join(name_, ": ", path_, " is shorter than when the checkpoint was written"));
    if (match == util::LogMark::Match::SAME) writer_->cut(mark.size);
    return true;
  }

  util::LogMark mark() override { return util::LogMark::of(path_, writer_->size()); }

  // Whether the file must not be changed before a fit begins: another process may train this run, and have begun the
  // file.
  bool must_wait(const State& state) const {
    std::error_code error;
    if (again_ || !std::filesystem::is_regular_file(path_, error)) return false;
    if (!resumes_ && !(state.run && state.run->is_resumable())) return false;
    if (of_other_rank_) return !options_.append;
    return options_.overwrite || (!resumes_ && !options_.append && is_begun_by(state.run_name));
  }

  // Whether an earlier process of the run wrote the file, or was killed while it wrote the first line.
  bool is_begun_by(const std::string& run_name) const {
    constexpr std::size_t kBytes = 1 << 16;
    std::error_code error;
    if (run_name.empty() || !std::filesystem::is_regular_file(path_, error)) return false;
    if (begins_again_) return true;
    std::string beginning(kBytes, '\0');
    std::ifstream file(path_, std::ios::binary);
    file.read(beginning.data(), kBytes);
    beginning.resize(static_cast<std::size_t>(file.gcount()));
    return writer_->format().is_begun_by(run_name, beginning, has_placeholder(options_.path, "run_name"));
  }

  const std::string name_;
  const LineFileOptions options_;
  const std::string path_;
  const bool again_, resumes_;
  const bool begins_again_;   // the run begins again: an earlier process, which has left no checkpoint, wrote the file
  const bool of_other_rank_;  // a resumed run on a rank other than 0; the checkpoint has a mark of rank 0's log only
  const std::shared_ptr<LineWriter> writer_;
  const bool waits_;  // whether to wait until a fit begins, because opening would overwrite or rename the file
};

}  // namespace

LineFormat::~LineFormat() = default;
std::string_view LineFormat::noun() const { return "records"; }
std::string LineFormat::header() const { return {}; }
bool LineFormat::is_begun_by(std::string_view, std::string_view, bool own_path) const { return own_path; }
bool LineFormat::takes(const Record& record) const {
  return record.kind() == Record::Kind::METRICS || record.kind() == Record::Kind::HYPERPARAMETERS;
}

LineFileLogger::LineFileLogger(std::string name, LineFileOptions options)
    : ResumableLogger(std::move(name), options.background), options_(std::move(options)) {
  check_line_file(this->name(), options_);
}
LineFileLogger::~LineFileLogger() = default;
LineFileLogger::LineFileLogger(LineFileLogger&&) noexcept = default;

bool LineFileLogger::is_for_all_ranks() const { return has_placeholder(options_.path, "rank"); }

std::unique_ptr<LogPlace> LineFileLogger::make_place(const State& state) {
  path_ = expand(name(), options_.path, state);
  auto writer = std::make_shared<LineWriter>(name(), path_, make_format(state));
  return std::make_unique<LinePlace>(name(), options_, state, path_ == written_, std::move(writer));
}

void LineFileLogger::close(const State& state, Logger& logger) {
  if (is_open()) written_ = path_;
  ResumableLogger::close(state, logger);
}

}  // namespace composer::loggers
