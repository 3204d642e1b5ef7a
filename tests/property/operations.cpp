// The operations that do not train, and what happens in the middle of one.
#include "tests/property/operations.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <unistd.h>

#include <sys/wait.h>

namespace composer::property {
namespace {

bool has_handler(int signal) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler != SIG_DFL;
}

int signal_of(Action action) { return action == Action::SIGINT_ ? SIGINT : SIGTERM; }

}  // namespace

void Operations::act(Player& player, Action action) {
  switch (action) {
    case Action::THROW:
      throw Injected();
    case Action::STOP:
      player.trainer().state().stop.ask("enough");
      if (!player.stopped_at) player.stopped_at = player.batch();
      break;
    case Action::SIGINT_:
    case Action::SIGTERM_:
      signal(signal_of(action));
      break;
    case Action::DIE:
      _exit(0);
    default:
      break;
  }
}

// To all who handle signals and are in a fit. Not when one has come before: the second ends the process.
void Operations::signal(int number) {
  bool handled = false;
  for (const auto& player : players_) {
    if (!player->in_fit || !player->handles_signals()) continue;
    if (player->signal != 0 || player->may_be_interrupted) return;
    handled = true;
  }
  if (!handled) return;
  if (!has_handler(number)) {  // told when the trainer is left: it would take this for an error of a callback
    deferred_ = Failure{"signals", "a trainer that handles signals is in a fit, and a signal would end the process"};
    return;
  }
  for (const auto& player : players_) {
    if (!player->in_fit || !player->handles_signals()) continue;
    player->signal = number;
    if (!player->stopped_at) player->stopped_at = player->batch();
  }
  std::raise(number);
}

void Operations::check_error(const Player& player, const Plan& plan, const std::string& text, bool is_run_error) const {
  if (!player.hook->fired() || plan.action != Action::THROW) {
    if (!may_fail_) fail("errors", player.name(), ": nothing was planned to go wrong, and it did: ", text);
    return;
  }
  if (!is_run_error) fail("errors", player.name(), ": is no RunError: ", text);
  if (text.find("injected") == std::string::npos) fail("errors", player.name(), ": does not say why: ", text);
  const bool names_it =
      static_cast<int>(plan.site) >= kEventCount || text.find(to_string(plan.site)) != std::string::npos;
  if (!names_it) fail("errors", player.name(), ": does not name ", to_string(plan.site), ": ", text);
}

void Operations::eval(Player& player, const Op& op) {
  const Timestamp before = player.trainer().state().timestamp;
  const std::string label = player.trainer().state().dataloader_label;
  const std::int64_t subset = op.number ? op.number : -1;
  const Outcome outcome = attempt(player, op.plan, [&] { player.trainer().eval({.subset_num_batches = subset}); });
  if (outcome == Outcome::REFUSED) {
    if (setup_.evaluators) fail("refused", player.name(), ": eval(): ", error_);
    return;
  }
  if (!setup_.evaluators) fail("refused", player.name(), ": an eval() of nothing was not refused");
  if (player.trainer().state().timestamp != before || player.trainer().state().dataloader_label != label)
    fail("aside", player.name(), ": eval() has changed the time, or the active loader");
  const bool interrupted = player.in_fit && (player.signal != 0 || player.may_be_interrupted);
  if (outcome == Outcome::DONE && !interrupted) player.check_evaluated(subset);
}

void Operations::predict(Player& player, const Op& op) {
  const Timestamp before = player.trainer().state().timestamp;
  const std::string label = player.trainer().state().dataloader_label;
  std::vector<Outputs> outputs;
  const Outcome outcome =
      attempt(player, op.plan, [&] { outputs = player.trainer().predict(player.predicted_on(op.number == 1), {}); });
  if (outcome == Outcome::REFUSED) fail("refused", player.name(), ": predict(): ", error_);
  if (player.trainer().state().timestamp != before || player.trainer().state().dataloader_label != label)
    fail("aside", player.name(), ": predict() has changed the time, or the active loader");
  if (outcome == Outcome::DONE) player.check_predicted(outputs, op.number == 1);
}

void Operations::save(Player& player, const Op& op) {
  const Outcome outcome = attempt(
      player, {}, [&] { player.trainer().save_checkpoint(op.number ? "mine-ba{batch}" : "ep{epoch}-ba{batch}"); });
  if ((outcome == Outcome::REFUSED) != (setup_.save == 0)) fail("refused", player.name(), ": save: ", error_);
  if (outcome == Outcome::DONE) player.check_saved();
}

void Operations::rebuild(Player& player, const Op& op) {
  if (op.kind == Kind::CLOSE) {
    player.trainer().close();
    player.trainer().close();
    try {
      player.trainer().fit("1ba");
      fail("close", player.name(), ": fit() after close() was not refused");
    } catch (const Error&) {  // which is what is promised
    }
  }
  player.destroy();
  player.begin_op(op.plan);
  try {
    player.build();
    if (player.hook->fired() && op.plan.action == Action::THROW)
      fail("errors", player.name(), ": an error at ", to_string(op.plan.site), " was lost");
  } catch (const RunError& error) {
    check_error(player, op.plan, describe(error), true);
    player.hook->disarm();
    player.build();
  }
  player.end_op(true);
}

// In a copy of this process, which ends where it is planned, or with the fit.
void Operations::fit_and_die(Player& player, const Op& op) {
  if (players_.size() > 1 || player.in_fit) return;
  const pid_t child = fork();
  if (child == 0) {
    try {
      OptionalTime limit;
      const FitOptions options = fit_options(player, op, limit);
      enter(player, limit);
      attempt(player, op.plan, [&] { player.trainer().fit(options); });
    } catch (const Failure& failure) {
      std::ofstream(folder_ / "failure") << failure.rule << ": " << failure.text;
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (std::ifstream in(folder_ / "failure"); in) fail("killed", std::string(std::istreambuf_iterator<char>(in), {}));
  if (!WIFEXITED(status)) fail("killed", player.name(), ": before it was to be, by ", strsignal(WTERMSIG(status)));
  player.destroy();
  player.build();
  player.end_op(true);
}

void Operations::operator()(const Op& op) {
  Player& player = *players_[static_cast<std::size_t>(op.trainer) % players_.size()];
  switch (op.kind) {
    case Kind::FIT:
    case Kind::FIT_EPOCHS:
    case Kind::FIT_ITER:
    case Kind::FIT_TOKENS:
      return fit(player, op);
    case Kind::BEGIN:
      return begin(player, op);
    case Kind::STEP:
      return step(player, op);
    case Kind::GIVE:
      return give(player, op);
    case Kind::END:
      return end(player, op);
    case Kind::EVAL:
      return eval(player, op);
    case Kind::PREDICT:
      return predict(player, op);
    case Kind::SAVE:
      return save(player, op);
    case Kind::STOP:
      if (player.in_fit) act(player, Action::STOP);
      return;
    case Kind::SIGINT_:
    case Kind::SIGTERM_:
      signal(op.kind == Kind::SIGINT_ ? SIGINT : SIGTERM);
      if (deferred_) throw *deferred_;
      return;
    case Kind::KILL:
    case Kind::CLOSE:
      return rebuild(player, op);
    default:
      return;
  }
}

void Operations::finish() {
  for (auto& player : players_) {
    player->begin_op({});
    player->end_op(true);
    player->destroy();
    player->in_fit = false;
  }
  if (has_handler(SIGINT) || has_handler(SIGTERM)) fail("signals", "no trainer is there, and one's handlers are");
  for (const std::string& text : warnings_.texts)
    if (text.find(" failed in ") != std::string::npos) fail("close", text);
}

}  // namespace composer::property
