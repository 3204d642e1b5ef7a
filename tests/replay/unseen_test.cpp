// Kinds of cases that the recorded ones of tests/golden do not have, through the same handlers.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "composer/checkpoint/name_format.h"
#include "composer/core/error.h"
#include "tests/replay/replay.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace composer::replay::unseen_test {
namespace {

Context context_of(const std::string& file) { return Context(test::repository() / "tests/golden" / file); }

// As the program that replays: an exception is a wrong result.
Outcome outcome(const std::string& file, const Json& c) {
  const Context context = context_of(file);
  const auto suite = std::ranges::find(suites(), file, &Suite::file);
  try {
    return suite->run(c, context);
  } catch (const std::exception& error) {
    return wrong(error.what());
  }
}

Json case_of(const std::string& file, const std::string& id) {
  const Context context = context_of(file);
  return *std::ranges::find_if(context.cases(), [&](const Json& c) { return c["id"] == id; });
}

Json time_json(const Json& value, const std::string& unit, const std::string& text) {
  return {{"time", {{"value", value}, {"unit", unit}, {"str", text}, {"repr", ""}, {"timestring", text}}}};
}

TEST_CASE("Every spelling of a time that Composer takes is the same time here, and the others are errors") {
  const std::vector<std::tuple<std::string, int, std::string>> counts = {
      {"5sec", 5, "sec"},     {"5SEC", 5, "sec"},          {" 5sec", 5, "sec"},
      {"5 sec", 5, "sec"},    {"+5sec", 5, "sec"},         {"1e3sec", 1000, "sec"},
      {"5s", 5, "sec"},       {"1h", 3600, "sec"},         {"1m", 60, "sec"},
      {"1h30s", 3630, "sec"}, {"23h59m59s", 86399, "sec"}, {"0s", 0, "sec"},
      {"4.0ep", 4, "ep"},     {"4.ba", 4, "ba"},           {"4e0sp", 4, "sp"},
      {"40e-1tok", 4, "tok"}, {"1_0ba", 10, "ba"},         {"5\tba", 5, "ba"},
      {"5 EP", 5, "ep"},      {"-0ba", 0, "ba"},           {"2Iter", 2, "iter"},
      {"007ba", 7, "ba"},     {"-3ba", -3, "ba"}};
  for (const auto& [input, value, unit] : counts) {
    CAPTURE(input);
    const Json result = time_json(value, unit, std::to_string(value) + unit);
    const Outcome found = outcome("time.json", {{"kind", "from_timestring"}, {"input", input}, {"result", result}});
    CHECK_MESSAGE(found.verdict == Verdict::EQUAL, found.text);
  }
  const std::vector<std::pair<std::string, std::string>> errors = {
      {"1H", "ValueError"},         {"0.5h", "ValueError"},  {"5epoch", "ValueError"}, {"5 s", "ValueError"},
      {"1min", "ValueError"},       {"ep", "ValueError"},    {"1ep2ba", "ValueError"}, {"0x10ba", "ValueError"},
      {"1.5ep", "TypeError"},       {"0.1sec", "TypeError"}, {"3e-1ba", "TypeError"},  {"infep", "OverflowError"},
      {"1e400ba", "OverflowError"}, {"5secs", "ValueError"}, {"1__0ba", "ValueError"}, {"1s1m", "ValueError"},
      {"5 5ba", "ValueError"},      {"-1h", "ValueError"},   {"nanba", "ValueError"}};
  for (const auto& [input, type] : errors) {
    CAPTURE(input);
    const Json result = {{"error", {{"type", type}, {"message", ""}}}};
    const Outcome found = outcome("time.json", {{"kind", "from_timestring"}, {"input", input}, {"result", result}});
    CHECK_MESSAGE(found.verdict == Verdict::EQUAL, found.text);
  }
}

TEST_CASE("Placeholders of file names take the format specs of Python") {
  const Json at = {{"iteration", 1}, {"epoch", 2},          {"batch", 1234567},      {"sample", 28},
                   {"token", 56},    {"batch_in_epoch", 3}, {"sample_in_epoch", 12}, {"token_in_epoch", 24}};
  const std::vector<std::pair<std::string, std::string>> names = {
      {"{batch:>9}", "  1234567"},
      {"{batch:<9}|", "1234567  |"},
      {"{batch:^10}|", " 1234567  |"},
      {"{batch:*>9}", "**1234567"},
      {"{batch:09d}", "001234567"},
      {"{batch:,}", "1,234,567"},
      {"{batch:_}", "1_234_567"},
      {"{batch:+d}", "+1234567"},
      {"{batch:x}", "12d687"},
      {"{batch:X}", "12D687"},
      {"{batch:o}", "4553207"},
      {"{batch:b}", "100101101011010000111"},
      {"{batch:_x}", "12_d687"},
      {"{batch:.2f}", "1234567.00"},
      {"{batch:e}", "1.234567e+06"},
      {"{batch: d}", " 1234567"},
      {"{batch:=+12}", "+    1234567"},
      {"{batch:0=+12}", "+00001234567"},
      {"{epoch:03d}", "002"},
      {"{epoch:03}", "002"},
      {"{epoch:1}", "2"},
      {"{epoch:010,}", "00,000,002"},
      {"{epoch:09,}", "0,000,002"},
      {"{epoch:08,}", "0,000,002"},
      {"{epoch:%}", "200.000000%"},
      {"{epoch:>>3}", ">>2"},
      {"{rank}", "0"},
      {"{rank:02d}", "00"},
      {"{world_size:>3}", "  1"},
      {"{{literal}}", "{literal}"},
      {"{{{rank}}}", "{0}"},
      {"{run_name:>6}", "   a b"},
      {"{run_name:.1}", "a"},
      {"{run_name:-^9}", "---a b---"},
      {"{run_name:s}", "a b"},
      {"{run_name:06}", "a b000"},
      {"{total_wct:>8}", "     0.0"},
      {"{total_wct:08.2f}", "00000.00"},
      {"{total_wct:g}", "0"},
      {"{foo:>8}", "   {foo}"},
      {"{foo}", "{foo}"},
      {"{iteration}", "{iteration}"},
      {"{iteration:>14}", "   {iteration}"},
      {"{sample:<05}", "28000"},
      {"{token:^+7d}", "  +56  "},
      {"{batch_in_epoch:>2}-{sample_in_epoch:02}-{token_in_epoch}", " 3-12-24"}};
  for (const auto& [format, name] : names) {
    CAPTURE(format);
    const Json row = {{"format", format}, {"run_name", "a b"}, {"timestamp", at}, {"result", name}};
    const Json c = {{"kind", "format_name_with_dist_and_time"}, {"rows", Json::array({row})}};
    const Outcome found = outcome("checkpoints.json", c);
    CHECK_MESSAGE(found.verdict == Verdict::EQUAL, found.text);
  }
  const Timestamp now;
  for (const char* format :
       {"{epoch:q}", "{epoch:s}", "{epoch:.3d}", "{epoch:3 }", "{run_name:d}", "{run_name:=8}", "{foo:03d}",
        "{iteration:03d}", "{epoch", "epoch}", "{run_name:,}", "{run_name:+}", "{total_wct:d}", "{epoch:x,}",
        "{epoch:,x}", "{epoch:.}", "{epoch:99999}", "{epoch:99999999999999999999}"}) {
    CAPTURE(format);
    CHECK_THROWS_AS(saving::format_name(format, "a b", &now), ConfigError);
  }
}

TEST_CASE("A file whose name has a format spec is found to conflict if it is later") {
  Json c = case_of("checkpoints.json", "files_conflict");
  for (const auto& [format, file] : std::vector<std::pair<std::string, std::string>>{
           {"b{batch:>4}.pt", "ck/b   3.pt"}, {"b{batch:,}.pt", "ck/b3,000.pt"}, {"e{epoch:03d}.pt", "ck/e012.pt"}}) {
    CAPTURE(format);
    c["config"]["trainer"]["save_filename"] = format;
    c["files_before"] = Json::array({file});
    c["listing"] = Json::array({{{"file", file}}});
    const Outcome found = outcome("checkpoints.json", c);
    CHECK_MESSAGE(found.verdict == Verdict::EQUAL, found.text);
  }
}

TEST_CASE("An evaluation loader of unknown length needs a subset, and then fires what one of this length fires") {
  for (const char* id : {"eval_default", "eval_3ba", "eval_dur_ba"}) {
    CAPTURE(id);
    Json c = case_of("events.json", id);
    c["config"]["eval"]["sized"] = false;
    CHECK(outcome("events.json", c).verdict == Verdict::WRONG);  // nothing can be made
    c["config"]["trainer"]["eval_subset_num_batches"] = 2;
    const Outcome found = outcome("events.json", c);
    CHECK_MESSAGE((found.verdict == Verdict::EQUAL || found.verdict == Verdict::DIFFERENT), found.text);
  }
}

TEST_CASE("load_ignore_keys of a part of the model leaves strict weights incomplete") {
  Json c = case_of("checkpoints.json", "resume_other_keys_weights_only_strict");
  c["second"].erase("model");
  c["second"]["trainer"]["max_duration"] = "2ba";
  c["second"]["trainer"]["load_ignore_keys"] = {"state/model/module.fc1.*"};
  const Outcome strict = outcome("checkpoints.json", c);
  CHECK_MESSAGE(strict.verdict == Verdict::EQUAL, strict.text);

  Json loose = case_of("checkpoints.json", "resume_ignore_model");
  loose["second"]["trainer"]["load_weights_only"] = true;
  loose["second"]["trainer"]["load_strict_model_weights"] = false;
  loose["after_load"] = {{"epoch", 0}, {"batch", 0}, {"sample", 0}, {"batch_in_epoch", 0}, {"sample_in_epoch", 0}};
  loose["optimizer_state_entries_after_load"] = 0;
  loose["second"]["trainer"]["max_duration"] = "1ba";
  loose["final"] = {{"epoch", 0}, {"batch", 1}, {"sample", 4}};
  loose.erase("batches");
  const Outcome found = outcome("checkpoints.json", loose);
  CHECK_MESSAGE(found.verdict == Verdict::EQUAL, found.text);
}

TEST_CASE("A count of epochs given as a fraction, also a whole one, is the error that Composer raises") {
  const Json error = {{"type", "TypeError"}, {"message", ""}};
  Json c = case_of("checkpoints.json", "files_default");
  c["error"] = error;
  c["listing"] = c["saved_checkpoints"] = Json::array();
  c["config"]["trainer"]["max_duration"] = 4.0;
  const Outcome duration = outcome("checkpoints.json", c);
  CHECK_MESSAGE(duration.verdict == Verdict::EQUAL, duration.text);
  c["config"]["trainer"]["max_duration"] = "2ep";
  c["config"]["trainer"]["save_interval"] = 1.0;
  const Outcome interval = outcome("checkpoints.json", c);
  CHECK_MESSAGE(interval.verdict == Verdict::EQUAL, interval.text);

  Json stopper = case_of("logged_keys.json", "early_stop_patience_2");
  stopper["kwargs"]["patience"] = 2.0;
  stopper["result"] = nullptr;
  stopper["error"] = error;
  const Outcome patience = outcome("logged_keys.json", stopper);
  CHECK_MESSAGE(patience.verdict == Verdict::EQUAL, patience.text);
}

}  // namespace
}  // namespace composer::replay::unseen_test
