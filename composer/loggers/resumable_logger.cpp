#include "composer/loggers/resumable_logger.h"

#include "composer/core/state_dict.h"
#include "composer/loggers/no_writer.h"

namespace composer::loggers {

LogPlace::~LogPlace() = default;

ResumableLogger::ResumableLogger(std::string name, const BackgroundOptions& options)
    : BackgroundLogger(std::move(name), options) {}
ResumableLogger::~ResumableLogger() = default;
ResumableLogger::ResumableLogger(ResumableLogger&&) noexcept = default;

std::unique_ptr<LogPlace> ResumableLogger::make_place(const State&) { return nullptr; }

std::shared_ptr<RecordWriter> ResumableLogger::make_writer(const State& state) {
  place_.reset();
  resumes_ = state.resumes;
  trains_ = false;
  std::unique_ptr<LogPlace> place = make_place(state);
  if (!place) return std::make_shared<NoWriter>();
  resumes_ || place->waits_for_fit() ? hold() : place->begin();
  place_ = std::move(place);
  return place_->writer();
}

// Opens the log and writes the held records. `fit`: state of the fit that begins; null: no fit begins.
void ResumableLogger::open_place(const State* fit) {
  open_held([&] {
    if (fit != nullptr) place_->before_fit(*fit, /*is_open=*/false);
    if (place_->is_marked()) {
      if (place_->go_on()) return;
      forget_missing();
    }
    place_->begin();
  });
}

void ResumableLogger::after_load(const State&, Logger&) {
  if (place_ && is_holding() && !place_->is_marked() && !place_->waits_for_fit()) open_place(nullptr);
}

void ResumableLogger::fit_start(const State& state, Logger&) {
  if (!place_ || trains_) return;
  is_holding() ? open_place(&state) : place_->before_fit(state, /*is_open=*/true);
  trains_ = true;
}

void ResumableLogger::visit_state(StateVisitor& visit) {
  if (!place_) return;
  if (visit.is_loading()) {
    if (!place_->load_mark(visit, resumes_ && goes_on_at(visit))) return;
    visit_missing(visit);
    if (place_->has_held_records()) drop_held();
    return;
  }
  if (!is_open() && !place_->is_marked()) return;
  // The log is synced first: a checkpoint must not refer to records that a power loss may remove, because a resumed run
  // would not log them again.
  if (is_open()) place_->is_remote() ? flush() : sync();
  place_->save_mark(visit, is_open());
  visit_missing(visit);
}

void ResumableLogger::close(const State& state, Logger& logger) {
  const std::unique_ptr<LogPlace> place = std::move(place_);
  BackgroundLogger::close(state, logger);
}

}  // namespace composer::loggers
