#include "composer/loggers/wandb_logger.h"

#include <filesystem>
#include <utility>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/loggers/background_option.h"
#include "composer/loggers/json_text.h"
#include "composer/loggers/wandb_writer.h"
#include "composer/util/name_format.h"

namespace composer::loggers {
namespace {

// The number of UTF-8 characters.
std::size_t length_of(const std::string& text) {
  std::size_t length = 0;
  for (const char c : text) length += (c & 0xC0) != 0x80 ? 1 : 0;
  return length;
}

void check_text(const char* option, const std::string& text, std::size_t longest, const char* refused) {
  if (length_of(text) > longest)
    throw ConfigError(kWandBLogger, ": ", option, " must have at most ", longest, " characters, got ", length_of(text),
                      ": ", text);
  if (const auto at = text.find_first_of(refused); at != std::string::npos)
    throw ConfigError(kWandBLogger, ": ", option, " must not contain any of ", refused, " , got ", text);
}

void check_wandb(const WandBLoggerOptions& options) {
  constexpr const char* kReserved = "/\\#?%:";
  check_text("project", options.project, 128, kReserved);
  check_text("entity", options.entity, 128, kReserved);
  check_text("name", options.name, 128, "");
  check_text("group", options.group, 128, "");
  check_text("job_type", options.job_type, 64, "");
  for (const std::string& tag : options.tags) {
    if (tag.empty()) throw ConfigError(kWandBLogger, ": tags must have 1 to 64 characters, and one is empty");
    check_text("a tag", tag, 64, "");
  }
  for (const util::NamePart& part : util::parts_of_name(options.folder, kWandBLogger))
    if (part.placeholder && part.name != "run_name")
      throw ConfigError(kWandBLogger, ": the only placeholder of folder is {run_name}, got ", options.folder);
}

WandBRun run_of(const WandBLoggerOptions& options, const State& state) {
  WandBRun run{.id = {},
               .project = options.project,
               .entity = options.entity,
               .group = options.group,
               .job_type = options.job_type,
               .name = options.name.empty() ? state.run_name : options.name,
               .notes = options.notes,
               .tags = options.tags,
               .started_at = 0};
  for (std::string* text : {&run.project, &run.entity, &run.group, &run.job_type, &run.name, &run.notes})
    *text = valid_utf8(*text);
  for (std::string& tag : run.tags) tag = valid_utf8(tag);
  if (options.rank_zero_only || state.world_size == 1) return run;
  if (run.group.empty()) run.group = run.name;
  run.name += join("-rank", state.rank);
  return run;
}

std::vector<Option<WandBLoggerOptions>> wandb_logger_options() {
  using O = WandBLoggerOptions;
  return all_options(option("project", &O::project).refuses({"a/b", "a#b"}), option("group", &O::group),
                     option("name", &O::name), option("entity", &O::entity).refuses({"a/b"}),
                     option("tags", &O::tags).refuses({",a"}), option("job_type", &O::job_type),
                     option("notes", &O::notes),
                     option("folder", &O::folder)
                         .not_empty()
                         .worded("not be empty; the working directory is .")
                         .refuses({"{rank}", "{run_name"}),
                     option("log_artifacts", &O::log_artifacts), option("rank_zero_only", &O::rank_zero_only),
                     option("max_images", &O::max_images).at_least(1), flush_interval_option(&O::flush_interval),
                     on_failure_option(&O::on_failure), when_full_option(&O::when_full));
}

// The folder of an offline run, as the place of the log.
class WandBPlace final : public MarkedPlace<WandBMark> {
 public:
  explicit WandBPlace(std::shared_ptr<WandBWriter> writer) : writer_(std::move(writer)) {}
  std::shared_ptr<RecordWriter> writer() const override { return writer_; }
  void begin() override { writer_->begin(); }

 private:
  bool go_on_at(const WandBMark& mark) override {
    if (writer_->can_continue(mark)) {
      writer_->continue_at(mark);
      return true;
    }
    warn(join(kWandBLogger, ": the offline run ", mark.folder, " of the checkpoint is not in ", writer_->where(),
              " as the checkpoint knows it; a new run is begun"));
    return false;
  }
  WandBMark mark() override { return writer_->mark(); }

  const std::shared_ptr<WandBWriter> writer_;
};

}  // namespace

WandBLogger::WandBLogger(WandBLoggerOptions options)
    : RunLogger(
          kWandBLogger,
          {.when_full = options.when_full, .flush_interval = options.flush_interval, .on_failure = options.on_failure}),
      options_(checked(kWandBLogger, std::move(options), wandb_logger_options())) {
  check_wandb(options_);
}
WandBLogger::~WandBLogger() = default;
WandBLogger::WandBLogger(WandBLogger&&) noexcept = default;

std::unique_ptr<LogPlace> WandBLogger::make_place(const State& state) {
  writer_.reset();
  if (options_.rank_zero_only && state.rank != 0) return nullptr;
  if (state.run_name.empty() && options_.folder.find("{run_name}") != std::string::npos)
    throw ConfigError(kWandBLogger, ": folder ", options_.folder, " requires a run_name, and this run has none");
  const std::filesystem::path folder = util::format_name(options_.folder, state, nullptr, kWandBLogger);
  // Absolute, because the program may change its working directory.
  const std::filesystem::path base = std::filesystem::absolute(folder) / "wandb";
  writer_ = std::make_shared<WandBWriter>(WandBWriterOptions{.base = base.lexically_normal().string(),
                                                             .run = run_of(options_, state),
                                                             .rank = state.rank,
                                                             .log_artifacts = options_.log_artifacts,
                                                             .max_images = options_.max_images});
  return std::make_unique<WandBPlace>(writer_);
}

void WandBLogger::close(const State& state, Logger& logger) {
  if (const auto writer = std::move(writer_)) writer->set_status(status());
  RunLogger::close(state, logger);
}

std::string WandBLogger::run_folder() const { return writer_ && is_open() ? writer_->folder() : ""; }
std::string WandBLogger::run_id() const { return writer_ && is_open() ? writer_->id() : ""; }

namespace entries {

Entry<Loggers> wandb() {
  return entry<WandBLogger>("wandb", "Writes an offline run for Weights & Biases", wandb_logger_options());
}

}  // namespace entries
}  // namespace composer::loggers
