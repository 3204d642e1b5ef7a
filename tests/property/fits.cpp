// The operations that train, and how a fit must end.
#include "tests/property/operations.h"

namespace composer::property {
namespace {

bool is_within_a_batch(Site site) {
  return (site >= site_of(Event::BATCH_START) && site <= site_of(Event::AFTER_TRAIN_BATCH)) || site == Site::FORWARD ||
         site == Site::LOSS;
}

}  // namespace

bool Operations::other_shares(const Player& player) const {
  return setup_.shared != 0 &&
         std::ranges::any_of(players_, [&](const auto& other) { return other.get() != &player && other->in_fit; });
}

FitOptions Operations::fit_options(Player& player, const Op& op, OptionalTime& limit) const {
  const Timestamp now = player.trainer().state().timestamp;
  FitOptions options;
  int number = op.number;
  const bool epochs = op.kind == Kind::FIT_EPOCHS && !setup_.unknown_length;
  if (number == 0 && !player.limit_is_known) number = 2;
  limit = player.limit;
  if (player.resumed) return options;  // one with a duration goes on with that of the process before
  if (op.kind == Kind::FIT_ITER) options.duration = Time(1, TimeUnit::ITERATION);
  if (op.kind == Kind::FIT_TOKENS) options.duration = Time(5, TimeUnit::TOKEN);
  if (options.duration || number == 0) return options;
  options.duration = Time(number, epochs ? TimeUnit::EPOCH : TimeUnit::BATCH);
  limit = epochs ? Time(now.epoch + number, TimeUnit::EPOCH) : Time(now.batch + number, TimeUnit::BATCH);
  return options;
}

void Operations::enter(Player& player, OptionalTime limit) {
  if (player.trainer().interrupted_by() != 0) player.trainer().state().stop.clear();  // else it returns at once
  player.fit_limit = limit;
  player.stopped_at.reset();
  player.signal = 0;
  player.begun_at = player.batch();
  player.may_be_interrupted = false;
  for (const auto& other : players_)
    if (other.get() != &player && other->in_fit && other->signal != 0) player.may_be_interrupted = true;
  player.in_fit = true;
}

void Operations::leave(Player& player, Outcome outcome) {
  player.in_fit = false;
  player.owes = outcome == Outcome::FAILED || player.trainer().interrupted_by() != 0;
}

bool Operations::is_over(const Player& player) const {
  return player.stopped_at || player.may_be_interrupted || player.has_reached(player.fit_limit);
}

// Training has ended, and without an error.
void Operations::check_ended(Player& player, const Plan& plan, bool by_limit) {
  const std::int64_t batch = player.batch();
  const char who = player.name();
  if (player.stopped_at && batch > *player.stopped_at + 1)
    fail("stop", who, ": was told to stop at batch ", *player.stopped_at, ", and went on to ", batch);
  if (by_limit && !is_over(player))
    fail("stop", who, ": ended at batch ", batch, ", before its limit of ", *player.fit_limit,
         player.trainer().state().stop.asked() ? join(" (", player.trainer().state().stop.why(), ")") : "");
  if (player.fit_limit && player.fit_limit->unit() == TimeUnit::BATCH && batch > player.begun_at &&
      batch > player.fit_limit->count())
    fail("stop", who, ": went on to batch ", batch, ", beyond its limit of ", *player.fit_limit);
  const int by = player.trainer().interrupted_by();
  if (player.signal == 0 && !player.may_be_interrupted && by != 0)
    fail("signals", who, ": interrupted_by() is ", by, ", and no signal came");
  if (player.signal != 0 && player.hook->fired() && is_within_a_batch(plan.site) && by != player.signal)
    fail("signals", who, ": interrupted_by() is ", by, ", and the signal was ", player.signal);
  player.check_saved();
  player.check_not_partly_evaluated();
}

void Operations::fit(Player& player, const Op& op) {
  if (op.plan.action == Action::DIE) return fit_and_die(player, op);
  const bool was_in_fit = player.in_fit;
  OptionalTime limit;
  const FitOptions options = fit_options(player, op, limit);
  const bool endless = options.duration && (op.kind == Kind::FIT_ITER || op.kind == Kind::FIT_TOKENS);
  const bool must_be_refused = was_in_fit || !setup_.loader || (!endless && !limit) ||
                               (!endless && player.has_reached(limit) && !player.resumed && !player.owes);
  const bool may_be_refused = other_shares(player) || endless || (player.owes && player.has_reached(limit));
  const Player::FitMemory before = player.memory();
  if (!was_in_fit) enter(player, limit);
  may_fail_ = endless;
  const Outcome outcome = attempt(player, op.plan, [&] { player.trainer().fit(options); });
  may_fail_ = false;
  if (outcome == Outcome::REFUSED) {
    if (!must_be_refused && !may_be_refused) fail("refused", player.name(), ": ", error_);
    if (player.batch() != before.batch) fail("refused", player.name(), ": a fit() that was refused has trained");
    return player.remember(before);
  }
  if (must_be_refused) fail("refused", player.name(), ": a fit() that cannot be was not refused");
  player.resumed = false;
  leave(player, outcome);
  player.limit = limit;
  if (endless) {
    player.limit_is_known = false;
    if (outcome == Outcome::DONE && !player.stopped_at)
      fail("endless", player.name(), ": a fit() whose limit cannot be reached ended");
    return;
  }
  if (outcome == Outcome::FAILED) return;
  check_ended(player, op.plan, true);
  const int starts = player.watch->spans.count(Event::FIT_START), ends = player.watch->spans.count(Event::FIT_END);
  if (starts != 1 || ends != 1) fail("spans", player.name(), ": fit_start ", starts, " times, fit_end ", ends);
  const bool undisturbed = !player.stopped_at && !player.may_be_interrupted;
  if (undisturbed && player.batch() > player.begun_at) player.check_evaluated(-1);
}

void Operations::begin(Player& player, const Op& op) {
  const bool was_in_fit = player.in_fit;
  OptionalTime limit;
  const FitOptions options = fit_options(player, op, limit);
  const bool must_be_refused = was_in_fit || (player.has_reached(limit) && !player.resumed && !player.owes);
  const Player::FitMemory before = player.memory();
  if (!was_in_fit) enter(player, limit);
  const Outcome outcome = attempt(player, op.plan, [&] { player.trainer().begin(options); });
  if (player.batch() != before.batch) fail("counts", player.name(), ": begin() has trained");
  if (outcome == Outcome::REFUSED) {
    if (!must_be_refused && !other_shares(player) && !(player.owes && player.has_reached(limit)))
      fail("refused", player.name(), ": ", error_);
    return player.remember(before);
  }
  if (must_be_refused) fail("refused", player.name(), ": a begin() that cannot be was not refused");
  player.resumed = false;
  player.limit = limit;
  if (outcome == Outcome::FAILED) leave(player, outcome);
}

void Operations::step(Player& player, const Op& op) {
  if (!setup_.loader && player.in_fit) return;  // that is told, and what becomes of the fit is not
  const bool was_in_fit = player.in_fit;
  int idle = 0;
  const Outcome outcome = attempt(player, op.plan, [&] {
    for (int i = 0; i < op.number; ++i) {
      const Timestamp before = player.trainer().state().timestamp;
      const bool was_at_limit = player.has_reached(player.fit_limit);
      const bool more = player.trainer().step();
      const Timestamp& now = player.trainer().state().timestamp;
      if (more && now.batch == before.batch && now.epoch == before.epoch) ++idle;
      if (!more && !is_over(player)) fail("stop", player.name(), ": step() is false, and training is not over");
      if (was_at_limit && now.batch > before.batch)
        fail("stop", player.name(), ": step() has trained beyond the limit");
    }
  });
  if (outcome == Outcome::REFUSED) {
    if (was_in_fit) fail("refused", player.name(), ": step(): ", error_);
    return;
  }
  if (!was_in_fit) fail("refused", player.name(), ": a step() without begin() was not refused");
  if (idle > 0) fail("idle", player.name(), ": step() is true, and neither a batch nor an epoch has ended");
  if (outcome == Outcome::FAILED) return leave(player, outcome);
  if (player.stopped_at && player.batch() > *player.stopped_at + 1)
    fail("stop", player.name(), ": was told to stop at batch ", *player.stopped_at, ", and went on to ",
         player.batch());
}

void Operations::give(Player& player, const Op& op) {
  const bool was_in_fit = player.in_fit;
  const std::int64_t before = player.batch();
  const Outcome outcome = attempt(player, op.plan, [&] {
    for (int i = 0; i < op.number; ++i) {
      player.count_batches();
      const std::int64_t counted = player.batch();
      const bool trained = player.trainer().step(player.next_given());
      if (trained != (player.batch() == counted + 1))
        fail("given", player.name(), ": step(batch) is ", trained, ", and ", player.batch() - counted,
             " batches are counted");
      if (!trained && !is_over(player)) fail("stop", player.name(), ": step(batch) is false, and training is not over");
    }
  });
  player.offered.reset();
  if (outcome == Outcome::REFUSED) {
    if (was_in_fit && !setup_.loader) fail("refused", player.name(), ": step(batch): ", error_);
    if (player.batch() != before) fail("refused", player.name(), ": a step(batch) that was refused has trained");
    return;
  }
  if (!was_in_fit && op.number > 0) fail("refused", player.name(), ": a step(batch) without begin() was not refused");
  if (outcome == Outcome::FAILED) leave(player, outcome);
}

void Operations::end(Player& player, const Op& op) {
  const bool was_in_fit = player.in_fit;
  const Outcome outcome = attempt(player, op.plan, [&] { player.trainer().end(); });
  if (outcome == Outcome::REFUSED) {
    if (was_in_fit) fail("refused", player.name(), ": end(): ", error_);
    return;
  }
  if (!was_in_fit) fail("refused", player.name(), ": an end() without begin() was not refused");
  leave(player, outcome);
  if (outcome == Outcome::DONE) check_ended(player, op.plan, false);
}

}  // namespace composer::property
