#include "tests/property/shrink.h"

namespace composer::property {
namespace {

// Tries a change; keeps it if the program still fails.
class Trial {
 public:
  Trial(Program& program, const std::function<bool(const Program&)>& fails) : program_(program), fails_(fails) {}
  bool operator()(const std::function<void(Program&)>& change) {
    Program changed = program_;
    change(changed);
    if (to_string(changed) == to_string(program_) || !fails_(changed)) return false;
    program_ = std::move(changed);
    return true;
  }

 private:
  Program& program_;
  const std::function<bool(const Program&)>& fails_;
};

bool drop_ops(const Program& program, Trial& trial) {
  bool any = false;
  for (std::size_t many = program.ops.size(); many >= 1; many /= 2)
    for (std::size_t from = 0; from + many <= program.ops.size();) {
      const bool dropped = trial([&](Program& p) {
        const auto at = p.ops.begin() + static_cast<std::ptrdiff_t>(from);
        p.ops.erase(at, at + static_cast<std::ptrdiff_t>(many));
      });
      any = any || dropped;
      if (!dropped) ++from;
    }
  return any;
}

bool simplify_setup(Trial& trial) {
  const Setup simplest;
  bool any = false;
  for (const auto& [name, value] : setup_fields())
    if (trial([&](Program& p) { p.setup.*value = simplest.*value; })) any = true;
  return any;
}

bool simplify_ops(const Program& program, Trial& trial) {
  bool any = false;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    any = trial([&](Program& p) { p.ops[i].plan = {}; }) || any;
    any = trial([&](Program& p) { p.ops[i].trainer = 0; }) || any;
    while (program.ops[i].number > 0 && trial([&](Program& p) { --p.ops[i].number; })) any = true;
    while (program.ops[i].plan.nth > 1 && trial([&](Program& p) { --p.ops[i].plan.nth; })) any = true;
  }
  return any;
}

}  // namespace

Program shrink(Program program, const std::function<bool(const Program&)>& fails) {
  Trial trial(program, fails);
  for (bool smaller = true; smaller;) {
    smaller = drop_ops(program, trial);
    smaller = simplify_setup(trial) || smaller;
    smaller = simplify_ops(program, trial) || smaller;
  }
  return program;
}

}  // namespace composer::property
