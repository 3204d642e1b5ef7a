#include "tests/replay/file_lines.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <regex>
#include <string>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/loggers/file_logger.h"
#include "tests/replay/errors.h"
#include "tests/replay/logged_run.h"
#include "tests/replay/program.h"
#include "tests/support/folder.h"
#include "tests/support/quiet.h"

namespace composer::replay {
namespace {

// The recorded callbacks of these names, without what is no value of a log entry here.
class ExtraRecords final : public Callback {
 public:
  void batch_end(const State&, Logger& logger) override {
    logger.log_metrics({{"extra/int", std::int64_t{3}}, {"extra/str", std::string("text")}});
  }
  void epoch_end(const State&, Logger& logger) override {
    logger.log_table("MyTable",
                     {{"col1", "col2"}, {{std::int64_t{1}, std::string("a")}, {std::int64_t{2}, std::string("b")}}});
  }
};

class Printer final : public Callback {
 public:
  void epoch_end(const State&, Logger&) override {
    std::cout << "hello from the callback\ntwo words ";
    std::cout << "and the rest of the line\n";
  }
  void fit_end(const State&, Logger&) override { std::cerr << "to the error stream\n"; }
};

std::string without_version(const std::string& line) {
  static const std::regex version("(\\[hyperparameter\\]: composer_version: ).*");
  return std::regex_replace(line, version, "$1VERSION");
}

Json lines_of(const std::filesystem::path& path) {
  Json lines = Json::array();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(without_version(line));
  return lines;
}

Json recorded_file(const Json& c) {
  Json lines = Json::array();
  for (const Json& line : c.at("lines"))
    if (const auto text = line.get<std::string>(); !text.empty()) lines.push_back(without_version(text));
  return {{"lines", lines}, {"error", c.at("error")}};
}

using Lines = Json::array_t;

Json write(const Json& c, const Context& context, const std::filesystem::path& folder) {
  Json config = c.at("config");
  const Json given = config.value("file_logger", Json::object());
  config.erase("file_logger");
  const Json no_choices = Json::array();
  RandomLog log(no_choices);
  TrainerOptions options = logged_options(config, context, log);
  options.run_name = std::string("run");
  for (const Json& callback : config.value("callbacks", Json::array())) {
    if (callback == "Extra")
      options.callbacks.add(ExtraRecords());
    else
      options.callbacks.add(Printer());
  }
  options.loggers = {
      loggers::FileLogger({.path = folder / given.value("filename", std::string("{run_name}/logs-rank{rank}.txt")),
                           .log_traces = given.value("log_traces", true),
                           .capture_stdout = given.value("capture_stdout", true),
                           .capture_stderr = given.value("capture_stderr", true)})};
  {
    Trainer trainer(std::move(options));
    trainer.fit();
  }
  Json lines = lines_of(folder / c.at("file").get<std::string>());
  std::erase_if(lines.get_ref<Lines&>(), [](const Json& line) {  // rule means_of_epochs
    const auto text = line.get<std::string>();
    const std::size_t key = text.find("]: ") + 3, end = text.find(": ", key);
    return end != std::string::npos && is_mean_of_epoch(std::string_view(text).substr(key, end - key));
  });
  return lines;
}

bool drop_line(Json& expected, const std::regex& which) {
  return std::erase_if(expected["lines"].get_ref<Lines&>(),
                       [&](const Json& line) { return std::regex_match(line.get<std::string>(), which); }) > 0;
}

}  // namespace

Rules file_logger_rules() {
  const auto is_file = [](const Json& c) { return c["kind"] == "file_logger"; };
  return {
      {.name = "lines_of_a_file_end_where_their_value_ends",
       .applies_to = "The lines of FileLogger",
       .composer_does =
           "Ends metrics and hyperparameters with a space, puts texts in quotes, and prints the commit and the "
           "node of its own platform.",
       .we_do = "No space, no quotes; `composer_version` names the version.",
       .why = "As ConsoleLogger writes them.",
       .matches = is_file,
       .ours =
           [](Json& expected, const Json&) {
             drop_line(expected, std::regex("\\[hyperparameter\\]: (composer_commit_hash|node_name): .*"));
             for (Json& line : expected["lines"]) {
               auto text = line.get<std::string>();
               while (text.ends_with(' ')) text.pop_back();
               line = std::regex_replace(text, std::regex("^(\\[(?:metric|hyperparameter)\\].*: )\"(.*)\"$"), "$1$2");
             }
           }},
      {.name = "traces_and_tables_have_their_batch",
       .applies_to = "Traces and tables in the file of FileLogger",
       .composer_does = "Writes `[trace]: NAME:1` and `[table]: NAME: ...`.",
       .we_do = "Writes `[trace][batch=0]: NAME: 1` and `[table][batch=1]: NAME: ...`.",
       .why = "A line of a log tells when it was.",
       .matches = is_file,
       .ours =
           [](Json& expected, const Json&) {
             std::string batch = "0";
             for (Json& line : expected["lines"]) {
               const auto text = line.get<std::string>();
               std::smatch parts;
               if (std::regex_match(text, parts, std::regex("\\[metric\\]\\[batch=([0-9]+)\\]: .*"))) batch = parts[1];
               if (std::regex_match(text, parts, std::regex("\\[trace\\]: (.*):1")))
                 line = join("[trace][batch=", batch, "]: ", parts[1].str(), ": 1");
               if (std::regex_match(text, parts, std::regex("\\[table\\]: (.*)")))
                 line = join("[table][batch=", batch, "]: ", parts[1].str());
             }
           }},
      {.name = "values_in_files_are_numbers_texts_and_tensors",
       .applies_to = "A list, a dictionary, None or a tensor of several numbers among the metrics in a file",
       .composer_does = "Writes it as Python prints it.",
       .we_do = "Such a value does not compile, or is refused.",
       .why = "A log entry is a number, a text or a 0-d tensor, so that every logger can do something with it.",
       .matches =
           [is_file](const Json& c) {
             return is_file(c) && c["config"].value("callbacks", Json()) == Json::array({"Extra"});
           },
       .ours = [](Json& expected,
                  const Json&) { drop_line(expected, std::regex(".*: extra/(none|list|dict|tensor): .*")); }},
      {.name = "existing_files_are_not_replaced",
       .applies_to = "A file of FileLogger that exists, without `overwrite`",
       .composer_does = "Replaces it.",
       .we_do = "Refuses before training; the file is as it was.",
       .why = "A log of another run is not lost by a mistake.",
       .matches = [is_file](const Json& c) { return is_file(c) && !c["existing_content"].is_null(); },
       .ours =
           [](Json& expected, const Json&) {
             expected = {{"lines", {"old content"}}, {"error", {{"type", "ValueError"}}}};
           }},
  };
}

Outcome run_file_logger(const Json& c, const Context& context) {
  const test::Folder folder;
  const std::filesystem::path path = folder / c.at("file").get<std::string>();
  if (!c.at("existing_content").is_null()) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << c["existing_content"].get<std::string>();
  }
  Json got = {{"error", nullptr}};
  {
    const test::Quiet quiet;
    try {
      got["lines"] = write(c, context, folder.path());
    } catch (const std::exception& error) {
      got = {{"lines", lines_of(path)}, {"error", cause_result(error, {{"error", {{"type", "ValueError"}}}})["error"]}};
    }
  }
  return judge(c, recorded_file(c), got, file_logger_rules());
}

}  // namespace composer::replay
