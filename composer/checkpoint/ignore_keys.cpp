#include "composer/checkpoint/ignore_keys.h"

#include <fnmatch.h>
#include <string_view>

#include "composer/core/error.h"

namespace composer::saving {
namespace {

bool remove(StateDict& state, const std::string& glob, const std::string& path) {
  bool any = false;
  StateDict kept;
  for (auto& [name, value] : state.entries()) {
    const std::string here = path.empty() ? name : join(path, '/', name);
    if (::fnmatch(glob.c_str(), here.c_str(), 0) == 0) {
      any = true;
      continue;
    }
    if (auto* inner = std::get_if<StateDict>(&value); inner && remove(*inner, glob, here)) {
      any = true;
      if (inner->empty()) continue;  // "optimizer/*" removes the optimizer
    }
    kept[name] = std::move(value);
  }
  state = std::move(kept);
  return any;
}

struct Name {
  std::string_view composers, own;
};
constexpr Name kNames[] = {{"optimizers", "optimizer"},
                           {"rank_zero_seed", "seed"},
                           {"train_metrics", "metrics/train"},
                           {"eval_metrics", "metrics"}};

// Converts "state/optimizers/*" into "optimizer/*".
std::string own_glob(const std::string& glob) {
  if (!glob.starts_with("state/")) return glob;
  std::string path = glob.substr(6);
  const std::string first = path.substr(0, path.find('/'));
  for (const auto& [composers, own] : kNames)
    if (first == composers) return std::string(own) + path.substr(first.size());
  return path;
}

}  // namespace

std::vector<std::string> leave_out(StateDict& state, const std::vector<std::string>& globs) {
  std::vector<std::string> idle;
  for (const std::string& glob : globs)
    if (!remove(state, own_glob(glob), "")) idle.push_back(glob);
  return idle;
}

void ignore_keys(StateDict& state, const std::vector<std::string>& globs, const std::string& option) {
  for (const std::string& glob : leave_out(state, globs))
    warn(join(option, ": ", glob, " matches nothing in the checkpoint"));
}

}  // namespace composer::saving
