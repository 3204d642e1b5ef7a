#include "tests/property/program.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <stdexcept>

#include "composer/core/error.h"

namespace composer::property {
namespace {

constexpr std::array<const char*, static_cast<std::size_t>(Site::COUNT) - kEventCount> kOwnSites = {
    "model_forward", "model_loss", "loader", "metric_update", "metric_compute", "log"};
constexpr std::array<const char*, static_cast<std::size_t>(Action::COUNT)> kActions = {"none",   "throw",   "stop",
                                                                                       "sigint", "sigterm", "die"};
constexpr std::array<const char*, static_cast<std::size_t>(Kind::COUNT)> kKinds = {
    "fit",  "fit_epochs", "fit_iter", "fit_tokens", "begin",  "step",    "give", "end",
    "eval", "predict",    "save",     "stop",       "sigint", "sigterm", "kill", "close"};

template <class Names>
int index_of(const Names& names, const std::string& text) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (text == names[i]) return static_cast<int>(i);
  throw std::invalid_argument("no such word: " + text);
}

int number_of(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) throw std::invalid_argument("no number: " + text);
  return number;
}

Site site_of_text(const std::string& text) {
  for (std::size_t i = 0; i < kOwnSites.size(); ++i)
    if (text == kOwnSites.at(i)) return static_cast<Site>(kEventCount + i);
  return site_of(parse_event(text));
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

// "a.step.3@throw:batch_end:2"
Op parse_op(const std::string& word) {
  const std::vector<std::string> halves = split(word, '@');
  const std::vector<std::string> parts = split(halves.front(), '.');
  if (halves.size() > 2 || parts.size() < 2 || parts.size() > 3 || parts[0].size() != 1)
    throw std::invalid_argument("no operation: " + word);
  Op op{.kind = static_cast<Kind>(index_of(kKinds, parts[1])), .trainer = parts[0][0] - 'a'};
  if (op.trainer != 0 && op.trainer != 1) throw std::invalid_argument("no trainer: " + word);
  if (parts.size() == 3) op.number = number_of(parts[2]);
  if (halves.size() == 1) return op;
  const std::vector<std::string> plan = split(halves[1], ':');
  if (plan.size() != 3) throw std::invalid_argument("no plan: " + word);
  op.plan = {static_cast<Action>(index_of(kActions, plan[0])), site_of_text(plan[1]), number_of(plan[2])};
  return op;
}

}  // namespace

std::string to_string(Site site) {
  const auto index = static_cast<std::size_t>(site);
  return index < kEventCount ? std::string(composer::to_string(static_cast<Event>(index)))
                             : kOwnSites.at(index - kEventCount);
}

const std::vector<SetupField>& setup_fields() {
  static const std::vector<SetupField> fields = {
      {"samples", &Setup::samples},
      {"batch", &Setup::batch},
      {"shuffle", &Setup::shuffle},
      {"prefetch", &Setup::prefetch},
      {"unknown_length", &Setup::unknown_length},
      {"loader", &Setup::loader},
      {"microbatch", &Setup::microbatch},
      {"masked", &Setup::masked},
      {"draws", &Setup::draws},
      {"momentum", &Setup::momentum},
      {"trainers", &Setup::trainers},
      {"shared", &Setup::shared},
      {"epochs", &Setup::epochs},
      {"batches", &Setup::batches},
      {"evaluators", &Setup::evaluators},
      {"eval_batches", &Setup::eval_batches},
      {"eval_trains", &Setup::eval_trains},
      {"swaps", &Setup::swaps},
      {"train_metrics", &Setup::train_metrics},
      {"logs", &Setup::logs},
      {"signals", &Setup::signals},
      {"save", &Setup::save},
      {"save_batches", &Setup::save_batches},
      {"keep", &Setup::keep},
      {"save_async", &Setup::save_async},
      {"closer", &Setup::closer},
  };
  return fields;
}

Setup consistent(Setup setup) {
  if (!setup.loader) setup.masked = setup.shared = 0;
  if (!setup.loader || setup.unknown_length) setup.epochs = setup.eval_trains = 0;
  if (setup.masked) {  // no batch may be without weight
    setup.shuffle = 0, setup.batch = 4, setup.microbatch = 2;
    setup.samples = std::max(4, setup.samples / 4 * 4);
  }
  if (setup.trainers > 1 || setup.masked) setup.draws = 0;  // there is one stream of random numbers
  return setup;
}

std::string to_string(const Program& program) {
  const Setup simplest;
  std::string text;
  const auto add = [&text](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
  for (const auto& [name, value] : setup_fields())
    if (program.setup.*value != simplest.*value) add(join(name, "=", program.setup.*value));
  for (const Op& op : program.ops) {
    std::string word =
        join(static_cast<char>('a' + op.trainer), ".", kKinds.at(static_cast<std::size_t>(op.kind)), ".", op.number);
    if (op.plan.action != Action::NONE)
      word += join("@", kActions.at(static_cast<std::size_t>(op.plan.action)), ":", to_string(op.plan.site), ":",
                   op.plan.nth);
    add(word);
  }
  return text;
}

Program parse(const std::string& text) {
  Program program;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) {
      program.ops.push_back(parse_op(word));
      continue;
    }
    bool known = false;
    for (const auto& [name, value] : setup_fields()) {
      if (word.substr(0, equals) != name) continue;
      program.setup.*value = number_of(word.substr(equals + 1));
      known = true;
    }
    if (!known) throw std::invalid_argument("no such field: " + word);
  }
  return program;
}

}  // namespace composer::property
