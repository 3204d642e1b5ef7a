// Draws programs. What makes no sense in its place is left in: it must be refused, and change nothing.
#include "tests/property/program.h"

namespace composer::property {
namespace {

class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t number) : random_(seed * 0x9E3779B97F4A7C15U + number) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  int once_in(int n) { return below(n) == 0 ? 1 : 0; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<int>(list.size())));
  }

 private:
  std::mt19937_64 random_;
};

void draw_data(Draw& draw, Setup& setup) {
  setup.batch = draw.one_of({1, 2, 2, 3});
  setup.samples = draw.between(setup.batch, 3 * setup.batch + 2);
  setup.shuffle = draw.once_in(3);
  setup.unknown_length = draw.once_in(10);
  setup.loader = draw.once_in(8) ? 0 : 1;
  setup.microbatch = draw.once_in(4);
  setup.masked = draw.once_in(8);
  if (draw.once_in(30)) setup.prefetch = 1;
}

void draw_saving(Draw& draw, Setup& setup) {
  setup.save = 1;
  setup.save_batches = draw.one_of({0, 0, 1, 2, 3});
  setup.keep = draw.one_of({0, 0, 1, 2});
  setup.save_async = draw.once_in(4);
}

Setup draw_setup(Draw& draw, Style style) {
  Setup setup;
  draw_data(draw, setup);
  setup.momentum = draw.once_in(4);
  setup.epochs = draw.below(4);
  if (setup.epochs == 0 || setup.unknown_length || !setup.loader) setup.batches = draw.one_of({0, 3, 5, 7});
  setup.evaluators = draw.one_of({0, 0, 1, 1, 2});
  setup.eval_batches = draw.one_of({0, 0, 1, 2});
  if (setup.evaluators) setup.swaps = draw.once_in(3), setup.eval_trains = draw.once_in(6);
  setup.train_metrics = draw.once_in(4);
  setup.logs = draw.once_in(4);
  setup.closer = draw.once_in(4);
  if (draw.once_in(style == Style::WITH_KILLS ? 2 : 4)) draw_saving(draw, setup);
  if (style == Style::IN_THREADS) return setup;
  if (draw.once_in(3)) setup.trainers = 2, setup.shared = draw.once_in(2);
  setup.signals = draw.below(setup.trainers + 1);
  setup.draws = draw.once_in(6);
  return setup;
}

Site draw_site(Draw& draw, Kind kind) {
  if (draw.once_in(4)) return static_cast<Site>(draw.between(kEventCount, static_cast<int>(Site::COUNT) - 1));
  if (kind == Kind::EVAL)
    return site_of(static_cast<Event>(
        draw.between(static_cast<int>(Event::EVAL_START), static_cast<int>(Event::EVAL_STANDALONE_END))));
  if (kind == Kind::PREDICT)
    return site_of(
        static_cast<Event>(draw.between(static_cast<int>(Event::PREDICT_START), static_cast<int>(Event::PREDICT_END))));
  if (kind == Kind::KILL || kind == Kind::CLOSE) return site_of(static_cast<Event>(draw.below(3)));
  return site_of(
      static_cast<Event>(draw.between(static_cast<int>(Event::FIT_START), static_cast<int>(Event::EVAL_AFTER_ALL))));
}

bool trains(Kind kind) { return kind <= Kind::END; }

Plan draw_plan(Draw& draw, const Setup& setup, Kind kind, Style style) {
  Plan plan{.site = draw_site(draw, kind), .nth = draw.one_of({1, 1, 1, 2, 2, 3, 4, 5})};
  plan.action = setup.draws ? Action::STOP : Action::THROW;  // an error in mid-batch has drawn already
  if (trains(kind) && style != Style::IN_THREADS) {
    if (draw.once_in(3)) plan.action = Action::STOP;
    if (setup.signals && draw.once_in(3)) plan.action = draw.one_of({Action::SIGINT_, Action::SIGTERM_});
  }
  if (setup.draws && !trains(kind)) plan.action = Action::NONE;
  if (style == Style::WITH_KILLS && setup.save && setup.loader && setup.trainers == 1 &&
      (kind == Kind::FIT || kind == Kind::FIT_EPOCHS) && draw.once_in(2))
    plan.action = Action::DIE;
  return plan;
}

// Mostly what makes sense, for a trainer that is in a fit or is not.
Kind draw_kind(Draw& draw, const Setup& setup, bool in_fit) {
  using enum Kind;
  if (draw.once_in(12)) return static_cast<Kind>(draw.below(static_cast<int>(COUNT)));
  const Kind step = !setup.loader || draw.once_in(6) ? GIVE : STEP;
  if (in_fit) {
    if (draw.below(2)) return step;
    return draw.one_of({END, END, END, EVAL, PREDICT, STOP, KILL, setup.save ? SAVE : END,
                        setup.signals ? SIGTERM_ : step, setup.signals ? SIGINT_ : step});
  }
  const Kind fit = setup.loader ? FIT : BEGIN;
  return draw.one_of({fit, fit, fit, BEGIN, BEGIN, BEGIN, setup.loader ? FIT_EPOCHS : BEGIN,
                      setup.evaluators ? EVAL : fit, PREDICT, KILL, setup.save ? KILL : fit, setup.save ? SAVE : fit,
                      CLOSE});
}

void draw_number(Draw& draw, Op& op) {
  using enum Kind;
  if (op.kind == FIT || op.kind == BEGIN) op.number = draw.one_of({0, 0, 1, 2, 3, 5});
  if (op.kind == FIT_EPOCHS) op.number = draw.between(1, 2);
  if (op.kind == STEP) op.number = draw.between(1, 5);
  if (op.kind == GIVE) op.number = draw.between(1, 3);
  if (op.kind == EVAL) op.number = draw.one_of({0, 0, 1});
  if (op.kind == PREDICT || op.kind == SAVE) op.number = draw.below(2);
}

Op draw_op(Draw& draw, const Setup& setup, Style style, std::vector<bool>& in_fit) {
  using enum Kind;
  Op op;
  op.trainer = draw.below(setup.trainers);
  const auto who = static_cast<std::size_t>(op.trainer);
  op.kind = draw_kind(draw, setup, in_fit[who]);
  if (style == Style::IN_THREADS && op.kind == KILL) op.kind = FIT;
  draw_number(draw, op);
  const bool can_be_disturbed = op.kind != SAVE && op.kind != STOP && op.kind != SIGINT_ && op.kind != SIGTERM_;
  const bool is_built = op.kind == KILL || op.kind == CLOSE;
  if (can_be_disturbed && draw.once_in(is_built ? 10 : 4)) op.plan = draw_plan(draw, setup, op.kind, style);
  if (op.kind == BEGIN) in_fit[who] = true;
  if (op.kind == END || is_built || op.plan.action == Action::THROW) in_fit[who] = false;
  return op;
}

}  // namespace

Program generate(std::uint64_t seed, std::uint64_t number, Style style) {
  Draw draw(seed, number);
  Program program;
  program.setup = consistent(draw_setup(draw, style));
  if (style == Style::WITH_KILLS)  // a copy of the process has no threads that write and read ahead
    program.setup.save_async = program.setup.prefetch = 0;
  const int length = draw.between(2, 8 + 3 * program.setup.trainers);
  std::vector<bool> in_fit(static_cast<std::size_t>(program.setup.trainers));
  for (int i = 0; i < length; ++i) program.ops.push_back(draw_op(draw, program.setup, style, in_fit));
  return program;
}

}  // namespace composer::property
