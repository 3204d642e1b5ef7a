#include "composer/loggers/wandb_logger.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/background_option.h"
#include "composer/loggers/json_text.h"
#include "composer/loggers/no_writer.h"
#include "composer/loggers/wandb_writer.h"
#include "composer/util/name_format.h"

namespace composer::loggers {
namespace {

// In characters of UTF-8.
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

}  // namespace

struct WandBLogger::Open {
  std::shared_ptr<WandBWriter> writer;  // null for a rank that does not write
  std::optional<WandBMark> mark;        // of the run to be continued
};

WandBLogger::WandBLogger(WandBLoggerOptions options)
    : RunLogger(
          kWandBLogger,
          {.when_full = options.when_full, .flush_interval = options.flush_interval, .on_failure = options.on_failure}),
      options_(checked(kWandBLogger, std::move(options), wandb_logger_options())) {
  check_wandb(options_);
}
WandBLogger::~WandBLogger() = default;
WandBLogger::WandBLogger(WandBLogger&&) noexcept = default;

std::shared_ptr<RecordWriter> WandBLogger::make_writer(const State& state) {
  open_ = std::make_unique<Open>();
  if (options_.rank_zero_only && state.rank != 0) return std::make_shared<NoWriter>();
  if (state.run_name.empty() && options_.folder.find("{run_name}") != std::string::npos)
    throw ConfigError(kWandBLogger, ": folder ", options_.folder, " requires a run_name, and this run has none");
  const std::filesystem::path folder = util::format_name(options_.folder, state, nullptr, kWandBLogger);
  const std::filesystem::path base = std::filesystem::absolute(folder) / "wandb";  // the program may go elsewhere
  open_->writer = std::make_shared<WandBWriter>(WandBWriterOptions{.base = base.lexically_normal().string(),
                                                                   .run = run_of(options_, state),
                                                                   .rank = state.rank,
                                                                   .log_artifacts = options_.log_artifacts,
                                                                   .max_images = options_.max_images});
  state.resumes ? hold() : open_->writer->begin();
  return open_->writer;
}

// The records that were held meanwhile follow.
void WandBLogger::begin_held() {
  WandBWriter& writer = *open_->writer;
  open_held([&] {
    if (open_->mark && writer.can_continue(*open_->mark)) {
      writer.continue_at(*open_->mark);
    } else {
      if (open_->mark)
        warn(join(kWandBLogger, ": the offline run ", open_->mark->folder, " of the checkpoint is not in ",
                  writer.where(), " as the checkpoint knows it; a new run is begun"));
      writer.begin();
    }
  });
}

void WandBLogger::after_load(const State&, Logger&) {
  if (is_holding() && !open_->mark) begin_held();
}

void WandBLogger::fit_start(const State& state, Logger& logger) {
  RunLogger::fit_start(state, logger);
  if (is_holding()) begin_held();
}

void WandBLogger::close(const State& state, Logger& logger) {
  if (open_ && open_->writer) open_->writer->set_status(status());
  const std::unique_ptr<Open> open = std::move(open_);
  RunLogger::close(state, logger);
}

void WandBLogger::visit_state(StateVisitor& visit) {
  if (!open_ || !open_->writer) return;
  WandBMark mark;
  if (visit.is_loading()) {
    mark.visit_state(visit);
    if (!is_holding()) return;  // another run's is not this one's
    open_->mark = std::move(mark);
    visit_missing(visit);
  } else if (is_open()) {
    sync();
    mark = open_->writer->mark();
    mark.visit_state(visit);
    visit_missing(visit);
  } else if (open_->mark) {
    open_->mark->visit_state(visit);
    visit_missing(visit);
  }
}

std::string WandBLogger::run_folder() const {
  return open_ && open_->writer && is_open() ? open_->writer->folder() : "";
}
std::string WandBLogger::run_id() const { return open_ && open_->writer && is_open() ? open_->writer->id() : ""; }

namespace entries {

Entry<Loggers> wandb() {
  return entry<WandBLogger>("wandb", "Writes an offline run for Weights & Biases", wandb_logger_options());
}

}  // namespace entries
}  // namespace composer::loggers
