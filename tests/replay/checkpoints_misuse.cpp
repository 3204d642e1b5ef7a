// checkpoints.json, kind misuse: the note says in words what is wrong.
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <utility>

#include "composer/core/error.h"
#include "tests/replay/checkpoints.h"
#include "tests/replay/errors.h"
#include "tests/replay/program.h"
#include "tests/support/sandbox.h"

namespace composer::replay {
namespace {

Json good_config() { return {{"trainer", {{"max_duration", "1ep"}, {"save_folder", "ck"}, {"save_interval", "2ba"}}}}; }

// "name=value" with a value of Python's.
std::optional<std::pair<std::string, Json>> assignment_of(const std::string& note) {
  static const std::regex form("(\\w+)=('[^']*'|-?\\d+|None|True|False)");
  std::smatch match;
  if (!std::regex_match(note, match, form)) return std::nullopt;
  static const std::map<std::string, Json> words = {{"None", nullptr}, {"True", true}, {"False", false}};
  const std::string value = match[2];
  if (const auto word = words.find(value); word != words.end()) return std::pair(match[1].str(), word->second);
  if (value.front() == '\'') return std::pair(match[1].str(), Json(value.substr(1, value.size() - 2)));
  return std::pair(match[1].str(), Json::parse(value));
}

// "autoresume without ARGUMENT": the argument.
std::string missing_for_autoresume(const Json& c) {
  static const std::regex form("autoresume without (\\w+)");
  const std::string note = c["note"];
  std::smatch match;
  return std::regex_match(note, match, form) ? match[1].str() : "";
}

void leave_out(TrainerOptions& options, const std::string& name) {
  if (name == "save_folder")
    options.save_folder.clear();
  else if (name == "save_latest_filename")
    options.save_latest_filename.clear();
  else if (name == "run_name")
    options.run_name.clear();
  else
    throw Unsupported{"autoresume without " + name};
}

// Two runs; whether the second goes on from the first.
Json resume_without(const std::string& name, const Context& context) {
  bool resumed = false;
  for (const char* end : {"2ba", "1ep"}) {
    Json config = good_config();
    config["trainer"]["autoresume"] = true;
    config["trainer"]["max_duration"] = end;
    TrainerOptions options = checkpoint_options(config, context);
    leave_out(options, name);
    Trainer trainer(std::move(options));
    resumed = !trainer.resumed_from().empty();
    trainer.fit();
  }
  return {{"error", nullptr}, {"resumed", resumed}};
}

Json fit(const Json& config, const Context& context) {
  Trainer(checkpoint_options(config, context)).fit();
  return {{"error", nullptr}};
}

Json fit_with(const std::string& name, const Json& value, const Context& context) {
  Json config = good_config();
  config["trainer"][name] = value;
  return fit(config, context);
}

Json load_no_checkpoint(const Context& context) {
  std::ofstream("no-checkpoint.pt") << "this is no checkpoint";
  return fit_with("load_path", "no-checkpoint.pt", context);
}

Json save_without_folder(const Context& context) {
  Trainer trainer(checkpoint_options({{"trainer", {{"max_duration", "1ep"}}}}, context));
  trainer.save_checkpoint();
  return {{"error", nullptr}};
}

Json commit(const Json& c, const Context& context) {
  const std::string note = c["note"];
  if (const auto assignment = assignment_of(note)) return fit_with(assignment->first, assignment->second, context);
  if (const std::string name = missing_for_autoresume(c); !name.empty()) return resume_without(name, context);
  if (note == "unknown format variable") return fit_with("save_filename", "ba{batch}-{foo}", context);
  if (note == "load_path is not a checkpoint") return load_no_checkpoint(context);
  if (note == "save_checkpoint_to_save_folder without save_folder") return save_without_folder(context);
  throw Unsupported{"misuse in words that have no translation yet: " + note};
}

}  // namespace

Rules misuse_rules() {
  return {{.name = "autoresume_needs_nothing",
           .applies_to = "`autoresume` without `save_folder`, `save_latest_filename` or `run_name`",
           .composer_does = "ValueError",
           .we_do = "without a folder nothing is gone on from; without the link the newest checkpoint in the folder is "
                    "taken; without a name any run in the folder, and its name with it",
           .why = "`autoresume` is the default",
           .matches = [](const Json& c) { return !missing_for_autoresume(c).empty(); },
           .ours =
               [](Json& expected, const Json& c) {
                 expected = {{"error", nullptr}, {"resumed", missing_for_autoresume(c) != "save_folder"}};
               }}};
}

Outcome run_misuse(const Json& c, const Context& context) {
  const test::Sandbox sandbox;
  const Json recorded = {{"error", without_message(c)["error"]}};
  Json got;
  try {
    got = commit(c, context);
  } catch (const std::exception& error) {
    got = cause_result(error, recorded);
  }
  return judge(c, recorded, got, misuse_rules());
}

}  // namespace composer::replay
