#include "composer/loggers/slack_logger.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/loggers/format.h"
#include "composer/loggers/no_writer.h"
#include "composer/loggers/string_map.h"
#include "composer/net/http.h"
#include "composer/util/environment.h"
#include "composer/util/json.h"
#include "composer/util/pattern.h"

namespace composer::loggers {
namespace {

using nlohmann::json;

constexpr const char* kSlackLogger = "SlackLogger";

std::string or_environment(const std::string& text, const char* name) {
  return text.empty() ? environment(name) : text;
}

std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// Replaces characters that Slack would read as the beginning of a link or of a special character. Returns as many whole
// characters as fit into `most` bytes.
std::string escaped(std::string_view text, std::size_t most) {
  std::string all;
  while (!text.empty()) {
    std::size_t length = 1;
    while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) ++length;
    std::string_view character = text.substr(0, length);
    text.remove_prefix(length);
    if (character == "&") character = "&amp;";
    if (character == "<") character = "&lt;";
    if (character == ">") character = "&gt;";
    if (all.size() + character.size() > most) break;
    all += character;
  }
  return all;
}

// Slack allows 3000 characters in a section, and 50 blocks in a message. At least two lines fit into one section, so 50
// entries need at most 26 sections.
json default_blocks(const std::vector<SlackEntry>& entries) {
  constexpr std::size_t kLongest = 2900, kLongestKey = 500, kLongestValue = 900;
  std::vector<std::string> sections(1);
  for (const SlackEntry& entry : entries) {
    std::string line = "*";
    (line += escaped(entry.key, kLongestKey)) += ":* ";
    (line += escaped(entry.value, kLongestValue)) += '\n';
    if (sections.back().size() + line.size() > kLongest) sections.emplace_back();
    sections.back() += line;
  }
  json blocks = json::array();
  blocks.push_back(
      {{"type", "header"}, {"text", {{"type", "plain_text"}, {"text", join("step ", entries.back().step)}}}});
  for (const std::string& section : sections)
    blocks.push_back({{"type", "section"}, {"text", {{"type", "mrkdwn"}, {"text", section}}}});
  return blocks;
}

// The field of the answer; null if it is missing, or if the answer is not an object.
json field(const json& answer, const char* name) {
  return answer.is_object() && answer.contains(name) ? answer.at(name) : json();
}

// Where messages are sent, and with which key.
struct Address {
  std::string url, key, channel;
};

Address address_of(const SlackLoggerOptions& options) {
  if (!options.webhook_url.empty()) return {options.webhook_url, "", ""};
  return {options.api_url + "/chat.postMessage", or_environment(options.slack_logging_api_key, "SLACK_LOGGING_API_KEY"),
          or_environment(options.channel_id, "SLACK_LOGGING_CHANNEL_ID")};
}

net::HttpOptions slack_http_options(const SlackLoggerOptions& options) {
  net::HttpOptions http;
  http.stall_limit = std::chrono::seconds(30);
  http.total_limit = std::chrono::seconds(60);
  http.retry.attempts = static_cast<int>(options.attempts);
  return http;
}

// Sends entries to Slack. A record without entries ends a message.
class SlackWriter final : public RecordWriter {
 public:
  explicit SlackWriter(const SlackLoggerOptions& options)
      : options_(options), address_(address_of(options)), client_(slack_http_options(options)) {}

  std::string where() const override { return address_.channel.empty() ? "Slack" : "Slack, " + address_.channel; }
  std::string_view noun() const override { return "values"; }

 private:
  void write(Records records) override {
    bool due = false;
    for (const Record* record : records) {
      due = due || record->entries().empty();
      for (const auto& [key, value] : record->entries())
        entries_.push_back({std::string(key), format_unquoted(value), record->step()});
    }
    if (due || static_cast<std::int64_t>(entries_.size()) >= options_.max_logs_per_message) send_all();
  }
  void flush() override { send_all(); }
  void close() override { send_all(); }

  void send_all() {
    const std::vector<SlackEntry> entries = std::exchange(entries_, {});
    const auto most = static_cast<std::size_t>(options_.max_logs_per_message);
    for (std::size_t begin = 0; begin < entries.size(); begin += most) {
      const auto first = entries.begin() + static_cast<std::ptrdiff_t>(begin);
      const std::vector<SlackEntry> part(first,
                                         first + static_cast<std::ptrdiff_t>(std::min(most, entries.size() - begin)));
      try {
        send(part);
      } catch (...) {
        lose(static_cast<std::int64_t>(part.size()), without_secret(describe(std::current_exception())));
      }
    }
  }

  // Removes the webhook's address, and parts of its path: whoever knows them can write to the channel.
  std::string without_secret(std::string text) const {
    if (!address_.channel.empty()) return text;
    const std::string url = net::shown_url(address_.url);
    const std::string path = url.substr(std::min(url.find('/', url.find("://") + 3), url.size()));
    for (const std::string& secret : {url, path, path.substr(path.rfind('/') + 1)})
      for (auto at = text.find(secret); secret.size() > 3 && at != std::string::npos; at = text.find(secret, at))
        text.replace(at, secret.size(), "***");
    return text;
  }

  void send(const std::vector<SlackEntry>& entries) {
    json message = {{"text", join("step ", entries.back().step)}};  // text of the notification
    message["blocks"] = options_.formatter_func ? formatted(entries) : default_blocks(entries);
    net::HttpRequest request{.method = "POST", .url = address_.url};
    request.headers = {{"Content-Type", "application/json; charset=utf-8"}};
    if (!address_.channel.empty()) {
      message["channel"] = address_.channel;
      request.headers.push_back({"Authorization", "Bearer " + address_.key});
    }
    request.body = dumped(message);
    request.repeat = has_answered_;
    const net::HttpResponse response = client_.send(request);
    has_answered_ = true;
    if (address_.channel.empty()) return;
    const json answer = util::parse_json_or_discard<json>(response.body);
    const json ok = field(answer, "ok"), error = field(answer, "error");
    if (!ok.is_boolean() || !ok.get<bool>())
      throw Error("Slack refused a message: ",
                  error.is_string() ? error.get<std::string>() : "it answered " + response.body.substr(0, 200));
  }

  json formatted(const std::vector<SlackEntry>& entries) const {
    json blocks;
    try {
      blocks = util::parse_json_or_discard<json>(options_.formatter_func(entries));
    } catch (const std::exception& error) {
      throw Error("formatter_func failed: ", describe(error));
    }
    if (!blocks.is_array()) throw Error("formatter_func must return a JSON array of blocks");
    return blocks;
  }

  const SlackLoggerOptions options_;
  const Address address_;
  net::HttpClient client_;
  std::vector<SlackEntry> entries_;
  bool has_answered_ = false;  // requests are not repeated before the first answer
};

std::vector<Option<SlackLoggerOptions>> slack_logger_options() {
  using O = SlackLoggerOptions;
  const auto is_interval = [](Time time) {
    return (time.unit() == TimeUnit::EPOCH || time.unit() == TimeUnit::BATCH) && time.count() >= 1;
  };
  return all_options(option("include_keys", &O::include_keys)
                         .example("loss/,metrics/")
                         .not_empty()
                         .worded("not be empty; .* includes every key, which is a lot for a channel")
                         .refuses({"("}),
                     part("formatter_func", &O::formatter_func, "a function"),
                     option("log_interval", &O::log_interval)
                         .must("be in ep or ba and at least 1", is_interval)
                         .refuses({"3sp", "0ba", "-1ep"}),
                     option("max_logs_per_message", &O::max_logs_per_message).from_to(1, 50),
                     option("webhook_url", &O::webhook_url).example("http://127.0.0.1:9/webhook").refuses({"ftp://a"}),
                     option("slack_logging_api_key", &O::slack_logging_api_key), option("channel_id", &O::channel_id),
                     option("api_url", &O::api_url), option("attempts", &O::attempts).from_to(1, 10));
}

void check_address(const SlackLoggerOptions& options) {
  const Address address = address_of(options);
  if (!address.url.starts_with("https://") && !address.url.starts_with("http://"))
    throw ConfigError(kSlackLogger, ": webhook_url and api_url must begin with https://");
  if (options.webhook_url.empty() && (address.key.empty() || address.channel.empty()))
    throw ConfigError(kSlackLogger,
                      ": set webhook_url, or slack_logging_api_key and channel_id (or SLACK_LOGGING_API_KEY and ",
                      "SLACK_LOGGING_CHANNEL_ID of the environment)");
}

}  // namespace

// Decides which keys are sent.
struct SlackLogger::Filter {
  std::vector<util::Pattern> patterns;
  SequenceMap<std::optional<bool>> known;
  std::vector<LogEntry> some;  // member, so that its memory is reused

  bool includes(std::string_view key) {
    std::optional<bool>& answer = known[key];
    if (!answer)
      answer = std::ranges::any_of(patterns, [&](const util::Pattern& pattern) { return pattern.begins(key); });
    return *answer;
  }
};

SlackLogger::SlackLogger(SlackLoggerOptions options)
    : BackgroundLogger(kSlackLogger, {.when_full = WhenFull::DROP_OLDEST}),
      options_(checked(kSlackLogger, std::move(options), slack_logger_options())),
      filter_(std::make_unique<Filter>()) {
  check_address(options_);
  for (const std::string& pattern : options_.include_keys)
    filter_->patterns.emplace_back(join(kSlackLogger, ": include_keys"), pattern);
}
SlackLogger::~SlackLogger() = default;
SlackLogger::SlackLogger(SlackLogger&&) noexcept = default;

std::shared_ptr<RecordWriter> SlackLogger::make_writer(const State& state) {
  if (state.rank != 0) return std::make_shared<NoWriter>();
  return std::make_shared<SlackWriter>(options_);
}

// The included entries. Valid until the next call.
std::span<const LogEntry> SlackLogger::included(std::span<const LogEntry> entries) {
  const auto is_included = [this](const LogEntry& entry) { return filter_->includes(entry.key); };
  const auto first = std::ranges::find_if_not(entries, is_included);
  if (first == entries.end()) return entries;
  filter_->some.assign(entries.begin(), first);
  std::copy_if(std::next(first), entries.end(), std::back_inserter(filter_->some), is_included);
  return filter_->some;
}

void SlackLogger::log_record(const Record& record, const State& state) {
  const auto some = included(record.entries());
  if (some.empty()) return;
  if (some.size() == record.entries().size()) return BackgroundLogger::log_record(record, state);
  BackgroundLogger::log_record(record.with(some), state);
}

void SlackLogger::end_message(const State& state, Logger& logger) {
  BackgroundLogger::log_record({Record::Kind::METRICS, {}, state.timestamp.batch, state.timestamp}, state);
  BackgroundLogger::epoch_end(state, logger);  // begins to send without waiting for more
}

void SlackLogger::batch_end(const State& state, Logger& logger) {
  const Time interval = options_.log_interval;
  const std::int64_t batch = state.timestamp.batch;
  if (interval.unit() == TimeUnit::BATCH && (batch == 1 || batch % interval.count() == 0)) end_message(state, logger);
}

void SlackLogger::epoch_end(const State& state, Logger& logger) {
  const Time interval = options_.log_interval;
  const std::int64_t epoch = state.timestamp.epoch;
  if (interval.unit() == TimeUnit::EPOCH && (epoch == 1 || epoch % interval.count() == 0)) end_message(state, logger);
}

namespace entries {

Entry<Loggers> slack() {
  return entry<SlackLogger>("slack", "Sends metrics to a channel of Slack", slack_logger_options());
}

}  // namespace entries
}  // namespace composer::loggers
