#include "composer/loggers/registry.h"

#include "composer/loggers/console_logger.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/progress_bar.h"

namespace composer::loggers {
namespace {

template <class Options>
Option<Options> seconds(std::string name, Seconds Options::*member) {
  return {{std::move(name), "number", detail::to_text((Options{}.*member).count())},
          [member](Options& options, const std::string& text) {
            double count = 0;
            detail::read_text(text, count);
            options.*member = Seconds(count);
          }};
}

template <class Options>
Option<Options> stream(TextStream Options::*member) {
  return {{"stream", "stderr or stdout", (Options{}.*member).name(), {}, {"stdin"}},
          [member](Options& options, const std::string& text) { options.*member = text; }};
}

}  // namespace

const Registry<Loggers>& registry() {
  using Console = ConsoleLoggerOptions;
  using Json = JsonLinesLoggerOptions;
  using Bar = ProgressBarOptions;
  static const Registry<Loggers> entries = {
      entry<ConsoleLogger, Console>("console", "Prints metrics",
                                    {option("log_interval", &Console::log_interval).refuses({"3sp", "0ba", "-1ep"}),
                                     stream(&Console::stream), option("log_traces", &Console::log_traces)}),
      entry<InMemoryLogger>("in_memory", "Keeps metrics in memory"),
      entry<JsonLinesLogger, Json>(
          "json_lines", "Writes metrics to a file, one JSON object a line",
          {option("path", &Json::path).refuses({"", "{rank}.jsonl"}), option("append", &Json::append),
           option("overwrite", &Json::overwrite),
           seconds("flush_interval", &Json::flush_interval).refuses({"-1", "nan", "inf"}),
           option("on_failure", &Json::on_failure, {{"continue", LogFailure::CONTINUE}, {"fail", LogFailure::FAIL}})}),
      entry<ProgressBar, Bar>("progress_bar", "Shows progress, losses and metrics, redrawn in place on a terminal",
                              {stream(&Bar::stream), seconds("redraw_interval", &Bar::redraw_interval).refuses({"0"}),
                               seconds("line_interval", &Bar::line_interval).refuses({"-1", "nan"})}),
  };
  return entries;
}

}  // namespace composer::loggers
