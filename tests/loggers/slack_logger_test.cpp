#include "composer/loggers/slack_logger.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/http_server.h"
#include "tests/support/warnings.h"

namespace composer::loggers::slack_logger_test {
namespace {

using nlohmann::json;
using test::HttpCall;
using test::HttpReply;

struct Run {
  explicit Run(SlackLoggerOptions options) : slack(std::move(options)) {}
  void batch() {
    state.timestamp = state.timestamp.to_next_batch(1, 0, {});
    slack.batch_end(state, logger);
  }
  void epoch() {
    state.timestamp = state.timestamp.to_next_epoch();
    slack.epoch_end(state, logger);
  }
  void close() { slack.close(state, logger); }
  State state;
  SlackLogger slack;
  Logger logger{state, {&slack}};
};

// The values of each message: the lines of its sections.
std::vector<std::string> messages(const test::HttpServer& server) {
  std::vector<std::string> all;
  for (const HttpCall& call : server.calls()) {
    std::string text;
    const json body = json::parse(call.body);
    for (const json& block : body.at("blocks"))
      if (block.at("type") == "section") text += std::string(block.at("text").at("text"));
    all.push_back(text);
  }
  return all;
}

HttpReply ok(const HttpCall&) { return {200, "ok"}; }

TEST_CASE("SlackLogger sends the values of included keys to a webhook at its interval, and the rest at close()") {
  const test::HttpServer server(ok);
  Run run({.include_keys = {"loss/", "metrics/.*acc"}, .log_interval = "2ep", .webhook_url = server.url() + "/hook"});
  for (int epoch = 0; epoch < 5; ++epoch) {
    run.batch();
    run.logger.log_metrics({{"loss/train", at::full({}, 0.5)}, {"time", 1.0}, {"x/loss/", 2.0}});
    run.epoch();
    run.slack.flush();
  }
  run.close();
  CHECK(messages(server).size() == 5);  // flush() sends everything
  const test::HttpServer other(ok);
  Run quiet({.include_keys = {"loss/", "metrics/.*acc"}, .log_interval = "2ep", .webhook_url = other.url() + "/hook"});
  quiet.logger.log_metrics({{"metrics/eval/acc<1>", std::string("a&b")}, {"metrics/other", 1.0}}, 3);
  quiet.logger.log_hyperparameters({{"lr", 1.0}, {"loss/name", std::string("ce")}});
  quiet.close();
  REQUIRE(messages(other).size() == 1);
  CHECK(messages(other)[0] == "*metrics/eval/acc&lt;1&gt;:* a&amp;b\n*loss/name:* ce\n");
  const HttpCall call = other.calls()[0];
  CHECK(call.method == "POST");
  CHECK(call.target == "/hook");
  CHECK(call.headers.at("content-type").starts_with("application/json"));
  CHECK_FALSE(call.headers.contains("authorization"));
}

TEST_CASE("SlackLogger sends at the first batch or epoch, and then at each multiple of its interval") {
  struct Row {
    const char* interval;
    std::vector<std::string> sent;
  };
  for (const auto& [interval, sent] : {
           Row{"2ba", {"1", "2", "4", "5"}},  // the last by close()
           Row{"1ep", {"2", "4", "5"}},
           Row{"2ep", {"2", "4", "5"}},
           Row{"3ep", {"2", "5"}},
       }) {
    CAPTURE(interval);
    std::mutex mutex;
    std::vector<std::string> last;  // value of each message
    test::HttpServer server([&](const HttpCall& call) {
      const std::lock_guard lock(mutex);
      std::string text = json::parse(call.body).at("blocks").back().at("text").at("text");
      text.pop_back();
      last.push_back(text.substr(text.rfind(' ') + 1));
      return HttpReply{200, "ok"};
    });
    Run run({.include_keys = {"a"}, .log_interval = Time::parse(interval), .webhook_url = server.url()});
    for (std::int64_t batch = 1; batch <= 5; ++batch) {
      run.logger.log_metrics({{"a", batch}}, batch);
      run.batch();
      const std::size_t wanted = [&] {
        std::size_t count = 0;
        for (const std::string& value : sent) count += std::stoll(value) <= batch && value != "5" ? 1 : 0;
        return count;
      }();
      if (batch % 2 == 0) run.epoch();
      // The background thread sends a second after a record; an interval that is due need not wait for it.
      for (;;) {
        const std::lock_guard lock(mutex);
        if (last.size() >= wanted) break;
      }
    }
    run.close();
    CHECK(last == sent);
  }
}

TEST_CASE("SlackLogger divides what is due into messages of at most max_logs_per_message entries") {
  const test::HttpServer server(ok);
  Run run({.include_keys = {".*"}, .max_logs_per_message = 3, .webhook_url = server.url()});
  for (std::int64_t i = 0; i < 7; ++i) run.logger.log_metrics({{"a", i}}, i);
  run.close();
  const auto sent = messages(server);
  REQUIRE(sent.size() == 3);
  CHECK(sent[0] == "*a:* 0\n*a:* 1\n*a:* 2\n");
  CHECK(sent[2] == "*a:* 6\n");
  CHECK(json::parse(server.calls()[2].body)["text"] == "step 6");
}

TEST_CASE("A message of SlackLogger has sections of at most 3000 characters") {
  const test::HttpServer server(ok);
  Run run({.include_keys = {".*"}, .webhook_url = server.url()});
  for (int i = 0; i < 20; ++i) run.logger.log_metrics({{"a", std::string(1000, 'x')}}, i);
  run.close();
  const json blocks = json::parse(server.calls()[0].body)["blocks"];
  CHECK(blocks.size() > 3);
  for (const json& block : blocks) CHECK(std::string(block["text"]["text"]).size() <= 3000);
}

TEST_CASE("A message of SlackLogger has at most 50 blocks and cuts long texts between characters") {
  const auto text_of = [](std::size_t count, const std::string& character) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += character;
    return text;
  };
  for (const std::string character : {"&", "<", "ä", "x", "€", "😀"}) {
    CAPTURE(character);
    for (const std::string shift : {"", "x", "xx", "xxx"}) {  // the limit is reached within a character
      const test::HttpServer server(ok);
      Run run({.include_keys = {".*"}, .webhook_url = server.url()});
      const std::string key = shift + text_of(600, character), value = shift + text_of(1000, character);
      for (int i = 0; i < 50; ++i) run.logger.log_metrics({{key, value}}, i);
      run.close();
      REQUIRE(server.calls().size() == 1);
      const std::string body = server.calls()[0].body;
      const json blocks = json::parse(body)["blocks"];
      CHECK(blocks.size() <= 50);
      CHECK(body.find("\xEF\xBF\xBD") == std::string::npos);  // stands for a byte that is not UTF-8
      std::size_t lines = 0;
      for (const json& block : blocks) {
        const std::string text = block["text"]["text"];
        CHECK(text.size() <= 3000);
        for (auto at = text.find('&'); at != text.npos; at = text.find('&', at + 1)) {
          const std::string entity = text.substr(at, text.find(';', at) - at + 1);
          if (entity != "&amp;" && entity != "&lt;") FAIL(entity);
        }
        lines += static_cast<std::size_t>(std::ranges::count(text, '\n'));
      }
      CHECK(lines == 50);
    }
  }
}

TEST_CASE("SlackLogger sends what formatter_func returns") {
  const test::HttpServer server(ok);
  const test::Warnings warnings;
  int call = 0;
  Run run({.include_keys = {".*"},
           .formatter_func =
               [&](const std::vector<SlackEntry>& entries) {
                 return ++call == 1 ? R"([{"type":"divider","n":)" + std::to_string(entries.size()) + "}]"
                                    : std::string("no JSON");
               },
           .webhook_url = server.url()});
  run.logger.log_metrics({{"a", 1.0}, {"b", 2.0}}, 4);
  run.slack.flush();
  run.logger.log_metrics({{"a", 1.0}}, 5);
  run.close();
  REQUIRE(server.calls().size() == 1);
  CHECK(json::parse(server.calls()[0].body)["blocks"] == json{{{"type", "divider"}, {"n", 2}}});
  CHECK(warnings.say("formatter_func must return a JSON array"));
}

TEST_CASE("With a key and a channel SlackLogger calls chat.postMessage, whose refusals are counted") {
  const test::Warnings warnings;
  std::mutex mutex;
  std::string answer = R"({"ok":true})";
  test::HttpServer server([&](const HttpCall&) {
    const std::lock_guard lock(mutex);
    return HttpReply{200, answer};
  });
  Run run(
      {.include_keys = {"a"}, .slack_logging_api_key = "xoxb", .channel_id = "C1", .api_url = server.url() + "/api"});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.slack.flush();
  {
    const std::lock_guard lock(mutex);
    answer = R"({"ok":false,"error":"channel_not_found"})";
  }
  run.logger.log_metrics({{"a", 2.0}, {"ab", 2.0}}, 2);
  run.slack.flush();
  run.close();
  REQUIRE(server.calls().size() == 2);
  const HttpCall call = server.calls()[0];
  CHECK(call.target == "/api/chat.postMessage");
  CHECK(call.headers.at("authorization") == "Bearer xoxb");
  CHECK(json::parse(call.body)["channel"] == "C1");
  CHECK(warnings.say("channel_not_found"));
  CHECK(warnings.say("2 values could not be written and are missing in Slack, C1"));
}

TEST_CASE("Strange answers of Slack and exceptions of formatter_func cost messages and not the run") {
  for (const std::string answer : {R"({"ok":false,"error":null})", R"({"ok":null})", R"({"ok":"yes"})",
                                   R"({"ok":false,"error":[1]})", "[true]", "null", "", "\xff"}) {
    CAPTURE(answer);
    const test::HttpServer server([&](const HttpCall&) { return HttpReply{200, answer}; });
    const test::Warnings warnings;
    Run run({.include_keys = {".*"}, .slack_logging_api_key = "k", .channel_id = "c", .api_url = server.url()});
    for (int batch = 0; batch < 2; ++batch) {
      run.logger.log_metrics({{"a", 1.0}});
      run.slack.flush();
    }
    run.close();
    CHECK(server.calls().size() == 2);
    CHECK(warnings.say("SlackLogger: Slack refused a message: "));
    CHECK(warnings.say("2 values could not be written"));
  }
  const test::HttpServer server(ok);
  const test::Warnings warnings;
  Run run({.include_keys = {".*"},
           .formatter_func = [](const auto&) -> std::string { throw std::out_of_range("mine"); },
           .webhook_url = server.url()});
  run.logger.log_metrics({{"a", 1.0}});
  run.slack.flush();
  run.close();
  CHECK(server.calls().empty());
  CHECK(warnings.say("SlackLogger: formatter_func failed: mine"));
  CHECK(warnings.say("1 values could not be written"));
}

TEST_CASE("A webhook that is away costs messages and not the run, and its address is not in the warnings") {
  const test::Warnings warnings;
  Run run({.include_keys = {"a"}, .webhook_url = test::refusing_url() + "/services/SECRET"});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.slack.flush();
  run.close();
  CHECK(warnings.say("1 values could not be written and are missing in Slack"));
  CHECK(warnings.say("POST ***"));
  CHECK_FALSE(warnings.say("SECRET"));
}

TEST_CASE("What a server repeats of the address of a webhook is not in the warnings") {
  const test::Warnings warnings;
  const test::HttpServer server([](const HttpCall& call) { return HttpReply{403, "no " + call.target + " SECRET"}; });
  Run run({.include_keys = {"a"}, .webhook_url = server.url() + "/services/SECRET"});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.close();
  CHECK(warnings.say("403"));
  CHECK_FALSE(warnings.say("SECRET"));
}

TEST_CASE("SlackLogger sends a message once as long as Slack has not answered, whatever attempts says") {
  const test::Warnings warnings;
  const test::HttpServer server([](const HttpCall&) { return HttpReply{503}; });
  Run run({.include_keys = {"a"}, .webhook_url = server.url(), .attempts = 2});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.close();
  CHECK(server.calls().size() == 1);
}

TEST_CASE("SlackLogger sends nothing from ranks other than 0, and nothing if nothing is included") {
  const test::HttpServer server(ok);
  Run run({.include_keys = {"a"}, .log_interval = "1ba", .webhook_url = server.url()});
  run.logger.log_metrics({{"b", 1.0}}, 1);
  run.batch();
  run.close();
  Run other({.include_keys = {"a"}, .log_interval = "1ba", .webhook_url = server.url()});
  other.state.rank = 1;
  other.logger.log_metrics({{"a", 1.0}}, 1);
  other.batch();
  other.close();
  CHECK(server.calls().empty());
}

TEST_CASE("SlackLogger takes key and channel from the environment, and rejects bad options") {
  const auto rejected = [](SlackLoggerOptions options) {
    CHECK_THROWS_AS(SlackLogger(std::move(options)), ConfigError);
  };
  const std::string url = "https://hooks.slack.com/x";
  rejected({.webhook_url = url});
  rejected({.include_keys = {"("}, .webhook_url = url});
  rejected({.include_keys = {"a"}});
  rejected({.include_keys = {"a"}, .slack_logging_api_key = "k"});
  rejected({.include_keys = {"a"}, .log_interval = "3sp", .webhook_url = url});
  rejected({.include_keys = {"a"}, .log_interval = "0ba", .webhook_url = url});
  rejected({.include_keys = {"a"}, .max_logs_per_message = 51, .webhook_url = url});
  rejected({.include_keys = {"a"}, .webhook_url = "hooks.slack.com"});
  rejected({.include_keys = {"a"}, .webhook_url = url, .attempts = 0});
  ::setenv("SLACK_LOGGING_API_KEY", "k", 1);
  ::setenv("SLACK_LOGGING_CHANNEL_ID", "c", 1);
  CHECK_NOTHROW(SlackLogger({.include_keys = {"a"}}));
  ::unsetenv("SLACK_LOGGING_API_KEY");
  ::unsetenv("SLACK_LOGGING_CHANNEL_ID");
}

}  // namespace
}  // namespace composer::loggers::slack_logger_test
