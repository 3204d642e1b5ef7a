#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "tests/property/player.h"
#include "tests/support/folder.h"
#include "tests/support/warnings.h"

namespace composer::property {

enum class Outcome : std::uint8_t { DONE, REFUSED, FAILED };

// Does the operations of a program, one after another, and checks what must hold after each: throws a Failure.
class Operations {
 public:
  explicit Operations(const Setup& setup) : setup_(setup) {
    const auto loader = [&] { return setup.loader ? std::make_shared<TrainLoader>(setup) : nullptr; };
    const auto shared = loader();
    for (int i = 0; i < setup.trainers; ++i)
      players_.push_back(std::make_unique<Player>(
          setup, i, setup.shared ? shared : loader(), folder_ / std::string(1, static_cast<char>('a' + i)),
          [this, i](Action action, Site) { act(*players_[static_cast<std::size_t>(i)], action); }));
    for (auto& player : players_) player->build();
  }

  void operator()(const Op& op);
  void finish();

 private:
  void act(Player& player, Action action);
  void signal(int number);
  template <class F>
  Outcome attempt(Player& player, const Plan& plan, F&& run);
  void check_error(const Player& player, const Plan& plan, const std::string& text, bool is_run_error) const;

  void fit(Player& player, const Op& op);
  void begin(Player& player, const Op& op);
  void step(Player& player, const Op& op);
  void give(Player& player, const Op& op);
  void end(Player& player, const Op& op);
  void eval(Player& player, const Op& op);
  void predict(Player& player, const Op& op);
  void save(Player& player, const Op& op);
  void rebuild(Player& player, const Op& op);
  void fit_and_die(Player& player, const Op& op);

  FitOptions fit_options(Player& player, const Op& op, OptionalTime& limit) const;
  void enter(Player& player, OptionalTime limit);
  void leave(Player& player, Outcome outcome);
  void check_ended(Player& player, const Plan& plan, bool by_limit);
  bool is_over(const Player& player) const;
  bool other_shares(const Player& player) const;

  Setup setup_;
  test::Folder folder_;
  test::Warnings warnings_;
  std::vector<std::unique_ptr<Player>> players_;
  std::string error_;
  std::optional<Failure> deferred_;
  bool may_fail_ = false;  // this operation, without anybody having planned it
};

template <class F>
Outcome Operations::attempt(Player& player, const Plan& plan, F&& run) {
  player.begin_op(plan);
  Outcome outcome = Outcome::DONE;
  try {
    run();
  } catch (const ConfigError& error) {
    outcome = Outcome::REFUSED;
    error_ = error.what();
  } catch (const std::exception& error) {
    outcome = Outcome::FAILED;
    error_ = describe(error);
    if (error_.find(Endless().what()) != std::string::npos) fail("endless", player.name(), ": ", error_);
    check_error(player, plan, error_, dynamic_cast<const RunError*>(&error) != nullptr);
  }
  if (deferred_) throw *deferred_;
  if (outcome == Outcome::DONE && player.hook->fired() && plan.action == Action::THROW)
    fail("errors", player.name(), ": an error at ", to_string(plan.site), " was lost");
  if (player.is_built()) player.end_op(outcome == Outcome::DONE);
  for (const auto& other : players_)
    if (other.get() != &player && other->is_built()) other->check_trained();
  return outcome;
}

}  // namespace composer::property
