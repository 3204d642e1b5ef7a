// console.json: the lines of ConsoleLogger, and how it formats values.
#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/loggers/console_logger.h"
#include "composer/loggers/format.h"
#include "composer/loggers/progress_bar.h"
#include "tests/replay/file_lines.h"
#include "tests/replay/logged_run.h"
#include "tests/replay/program.h"

namespace composer::replay {
namespace {

// The recorded callback of that name, without what is no value of a log entry here.
class ExtraValues final : public Callback {
 public:
  void batch_end(const State&, Logger& logger) override {
    logger.log_metrics(
        {{"extra/int", std::int64_t{3}}, {"extra/str", std::string("text")}, {"extra/tensor", at::ones({3})}});
  }
};

Json lines_of(const std::string& text) {
  Json lines = Json::array();
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(line.starts_with("composer_version: ") ? "composer_version: VERSION" : line);
  return lines;
}

Json recorded_print(const Json& c) {
  std::string text;
  for (const Json& line : c.at("lines")) text += (text.empty() ? "" : "\n") + line.get<std::string>();
  return lines_of(text);
}

Json print(const Json& c, const Context& context) {
  const Json& config = c.at("config");
  const Json no_choices = Json::array();
  RandomLog log(no_choices);
  TrainerOptions options = logged_options(config, context, log);
  for (const Json& callback : config.value("callbacks", Json::array())) {
    if (callback == "Extra")
      options.callbacks.add(ExtraValues());
    else
      add_callback(options.callbacks, callback);
  }
  std::ostringstream out;
  options.loggers = {loggers::ConsoleLogger({.log_interval = time_of(config.value("console_log_interval", Json("1ba"))),
                                             .stream = out,
                                             .log_traces = config.value("log_traces", false)})};
  Trainer trainer(std::move(options));
  for (const std::string& call : config.value("calls", std::vector<std::string>{"fit"})) {
    if (call == "fit")
      trainer.fit();
    else if (call == "eval")
      trainer.eval();
    else
      throw Unsupported{"call " + call};
  }
  trainer.close();
  return lines_of(out.str());
}

// What a bar said last: "train" or the evaluation's label, and its numbers.
Json last_of_bar(const std::string& bar, const std::string& text, const std::regex& number) {
  Json last = {{"bar", bar}, {"values", Json::object()}};
  for (auto it = std::sregex_iterator(text.begin(), text.end(), number); it != std::sregex_iterator(); ++it)
    last["values"][(*it)[1]] = (*it)[2];
  return last;
}

Json sorted_by_text(Json list) {
  std::ranges::sort(list.get_ref<Json::array_t&>(), {}, [](const Json& item) { return item.dump(); });
  return list;
}

// The last state of each recorded bar of training or "eval": of other evaluations, bars have no metrics.
Json last_of_recorded_bars(const Json& states) {
  static const std::regex state("(train|eval) +((?:Epoch|Batch) +[0-9]+:)?.*\\|.*\\|.*"),
      number("(?:/|, )(?:[a-z_]+/)*(\\w+)=([0-9.]+)");
  std::map<std::string, Json> bars;
  for (const Json& item : states) {
    const auto text = item.get<std::string>();
    std::smatch parts;
    if (!std::regex_match(text, parts, state)) continue;
    const bool has_means =
        parts[1] == "train" && parts[2].str().starts_with("Epoch");  // of ours, which are other numbers
    bars[parts[1].str() + parts[2].str()] = last_of_bar(parts[1], has_means ? "" : text, number);
  }
  Json list = Json::array();
  for (auto& [title, last] : bars) list.push_back(std::move(last));
  return sorted_by_text(std::move(list));
}

// Lines such as "epoch 1/2  3 batches  loss 1.5318  eval: CrossEntropy 1.2465  Accuracy 0.3333  0.2s".
Json last_of_our_bars(const std::string& lines) {
  static const std::regex evaluation("(?:  |^)(eval)(?:: |  [0-9]+/[0-9]+  )(CrossEntropy .*)"),
      number("(CrossEntropy|MulticlassAccuracy|total) ([0-9.]+)"), accuracy("Accuracy"), loss("  loss ");
  Json list = Json::array();
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    line = std::regex_replace(line, accuracy, "MulticlassAccuracy");
    std::smatch parts;
    if (std::regex_search(line, parts, evaluation)) list.push_back(last_of_bar(parts[1], parts[2], number));
    const bool has_means = line.starts_with("epoch");
    if (std::regex_search(line, parts, loss))
      list.push_back(last_of_bar("train", has_means ? "" : "total " + parts.suffix().str().substr(0, 6), number));
  }
  return sorted_by_text(std::move(list));
}

class OfUnknownLength final : public Loader {
 public:
  explicit OfUnknownLength(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {}
  void seek(std::int64_t epoch, std::int64_t batch) override { loader_->seek(epoch, batch); }
  std::optional<Batch> next() override { return loader_->next(); }

 private:
  std::shared_ptr<Loader> loader_;
};

Json progress(const Json& c, const Context& context) {
  Json config = c.at("config");
  const bool unsized = config.value("unsized", false);
  config.erase("unsized");
  const Json no_choices = Json::array();
  RandomLog log(no_choices);
  TrainerOptions options = logged_options(config, context, log);
  if (unsized) {
    auto& loader = options.train_dataloader.dataloader;
    loader = std::make_shared<OfUnknownLength>(loader);
  }
  std::ostringstream out;
  options.loggers = {loggers::ProgressBar({.stream = out})};
  Trainer trainer(std::move(options));
  trainer.fit();
  trainer.close();
  return last_of_our_bars(out.str());
}

// The value that a text of the recording stands for; nothing if it is no value of a log entry.
std::optional<LogValue> value_of(const std::string& text) {
  static const std::map<std::string, LogValue> special = {
      {"string \"abc\"", std::string("abc")},
      {"True", true},
      {"float 1/3", 1.0 / 3},
      {"tensor([7])", at::tensor({7}, at::kLong)},
      {"tensor(2.5)", at::scalar_tensor(2.5)},
      {"tensor of shape [2,3]", at::ones({2, 3})},
  };
  if (const auto found = special.find(text); found != special.end()) return found->second;
  std::smatch parts;
  if (std::regex_match(text, parts, std::regex("int (-?[0-9]+)"))) return std::int64_t{std::stoll(parts[1])};
  if (std::regex_match(text, parts, std::regex("(?:float )?(-?[0-9.e-]+|nan|-?inf)"))) return std::stod(parts[1]);
  return std::nullopt;
}

Json format_all(const Json& rows) {
  Json got = Json::array();
  for (const Json& row : rows)
    if (const auto value = value_of(row.at("value")))
      got.push_back({{"value", row["value"]}, {"text", loggers::format_log_value(*value)}});
  return got;
}

bool prints_epochs(const Json& c) {
  if (c["kind"] != "console_logger") return false;
  const Json interval = c["config"].value("console_log_interval", Json("1ba"));
  return interval.is_number() || interval.get<std::string>().ends_with("ep");  // a number counts epochs
}

// The numbers of losses and metrics of training are left out.
Json without_means(Json lines) {
  static const std::regex of_training("(\t Train (?:loss|metrics)/train/.*: ).*");
  for (Json& line : lines) line = std::regex_replace(line.get<std::string>(), of_training, "$1");
  return lines;
}

Rules console_rules() {
  return {
      {.name = "an_interval_in_epochs_has_means",
       .applies_to = "Losses and metrics of training that ConsoleLogger prints at an interval in epochs",
       .composer_does = "Prints those of the last batch.",
       .we_do = "Prints means over the batches since it last printed, weighted by their samples.",
       .why = "The last batch may be small, and its loss says little of the epoch.",
       .matches = prints_epochs,
       .ours = [](Json& expected, const Json&) { expected = without_means(expected); }},
      {.name = "no_names_of_the_machine_are_printed",
       .applies_to = "`node_name` and `composer_commit_hash` in what ConsoleLogger prints",
       .composer_does = "Prints an environment variable of its own platform, and the commit it was installed from.",
       .we_do = "Does not print them; `composer_version` is there.",
       .why = "There is no such platform, and a library is identified by its version.",
       .matches = [](const Json& c) { return c["kind"] == "console_logger"; },
       .ours =
           [](Json& expected, const Json&) {
             for (const char* key : {"node_name", "composer_commit_hash"})
               std::erase_if(expected.get_ref<Json::array_t&>(), [&](const Json& line) {
                 return line.get<std::string>().starts_with(std::string(key) + ": ");
               });
           }},
      {.name = "progress_has_lines_of_its_own",
       .applies_to = "What ProgressBar prints",
       .composer_does = "Draws a bar with the loss for each epoch, and one for each evaluation with its metrics.",
       .we_do =
           "One line for each epoch, with speed, remaining time, the means of losses and metrics of training, and the "
           "metrics of its evaluations. The last loss of a run in batches and the metrics of evaluations are the same "
           "numbers; those of evaluations that are not named \"eval\" are shown, too.",
       .why = "The lines of a run can be read below one another, also in a file; and the last batch of an epoch may be "
              "small, so that its loss says little.",
       .matches = [](const Json& c) { return c["kind"] == "progress_bar"; },
       .ours = [](Json& expected, const Json&) { expected = last_of_recorded_bars(expected); }},
      {.name = "values_are_numbers_texts_and_tensors",
       .applies_to = "A list, a dictionary, a table or None among the metrics",
       .composer_does = "Prints it as Python writes it.",
       .we_do = "Such a value does not compile.",
       .why = "A log entry is a number, a text or a tensor, so that every logger can do something with it.",
       .matches =
           [](const Json& c) {
             return c["kind"] == "format_log_data_value" ||
                    c["config"].value("callbacks", Json()) == Json::array({"Extra"});
           },
       .ours =
           [](Json& expected, const Json& c) {
             std::erase_if(expected.get_ref<Json::array_t&>(), [&](const Json& entry) {
               if (c["kind"] == "format_log_data_value") return !value_of(entry.at("value"));
               static const std::regex other("\t Train (extra/(none|list|dict)|MyTable): .*");
               return std::regex_match(entry.get<std::string>(), other);
             });
           }},
  };
}

Outcome run_console(const Json& c, const Context& context) {
  const std::string kind = c.at("kind");
  if (kind == "format_log_data_value") return judge(c, c.at("rows"), format_all(c.at("rows")), console_rules());
  if (kind == "file_logger") return run_file_logger(c, context);
  if (kind == "progress_bar") return judge(c, c.at("states"), progress(c, context), console_rules());
  if (kind == "console_logger") {
    Json got = print(c, context);
    if (prints_epochs(c)) got = without_means(std::move(got));
    return judge(c, recorded_print(c), got, console_rules());
  }
  return unsupported(kind);
}

}  // namespace

Suite console_suite() {
  Rules all = console_rules();
  for (Rule& rule : file_logger_rules()) all.push_back(std::move(rule));
  return {"console.json", "Loggers", run_console, std::move(all)};
}

}  // namespace composer::replay
